import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import ExchangeError
from fdml.monitor.status import PartyStatus, RunStatus
from fdml.protocol.messages import Metrics
from fdml.transport.status_wire import decode_status, encode_status

counts = st.integers(0, 2**63 - 1)
steps = st.integers(-1, 2**62)
seconds = st.floats(0, 1e9)
figures = st.none() | st.floats(allow_nan=False)
parties = st.builds(
    PartyStatus,
    name=st.text(),
    connected=st.booleans(),
    pushed=steps,
    served=steps,
    waits_for=st.lists(st.text()).map(tuple),
    waiting_seconds=seconds,
    waited_seconds=seconds,
    bytes_in=counts,
    bytes_out=counts,
    incarnation=counts,
    finished=st.booleans(),
    aligning=st.booleans(),
    aligned=st.booleans(),
    largest_prediction=st.none() | st.floats(allow_nan=False),
    stands_out=st.booleans(),
)
metrics = st.builds(Metrics, st.integers(0, 2**32 - 1), seconds, figures, figures, figures)
statuses = st.builds(
    RunStatus,
    run=st.text(),
    steps=counts,
    parties=st.lists(parties, max_size=4).map(tuple),
    history=st.lists(metrics, max_size=4).map(tuple),
    refused=st.dictionaries(st.text(), counts, max_size=4),
)


@given(status=statuses)
def test_a_status_comes_back_as_it_was_sent(status):
    assert decode_status(encode_status(status)) == status


def test_a_figure_of_zero_is_not_a_figure_that_is_kept_back():
    status = RunStatus("shop", history=(Metrics(1, 0.0, 0.0, 0.0, 0.0), Metrics(2, 0.0)))
    first, second = decode_status(encode_status(status)).history
    assert (first.test_loss, first.test_metric) == (0.0, 0.0)
    assert (second.test_loss, second.test_metric) == (None, None)


def test_steps_before_the_first_come_back_as_such():
    (party,) = decode_status(encode_status(RunStatus("shop", parties=(PartyStatus("ann"),)))).parties
    assert (party.pushed, party.served) == (-1, -1)


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x1a\x02\x0a"])
def test_bytes_that_are_no_status_are_named(raw):
    with pytest.raises(ExchangeError, match=f"status of {len(raw)} bytes cannot be read .*; use the server's version"):
        decode_status(raw)
