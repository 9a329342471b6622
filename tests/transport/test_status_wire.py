import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import ExchangeError, Refusal
from fdml.monitor.status import PartyStatus, RunStatus
from fdml.protocol.messages import SealedMetrics
from fdml.transport.status_wire import decode_status, encode_status

counts = st.integers(0, 2**63 - 1)
steps = st.integers(-1, 2**62)
seconds = st.floats(0, 1e9)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
parties = st.builds(
    PartyStatus,
    name=names,
    connected=st.booleans(),
    pushed=steps,
    served=steps,
    waits_for=st.lists(names).map(tuple),
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
metrics = st.builds(SealedMetrics, st.integers(0, 2**32 - 1), st.binary(max_size=60))
statuses = st.builds(
    RunStatus,
    run=names,
    steps=counts,
    parties=st.lists(parties, max_size=4).map(tuple),
    history=st.lists(metrics, max_size=4).map(tuple),
    refused=st.dictionaries(st.sampled_from([each.name.lower() for each in Refusal]), counts),
)


@given(status=statuses)
def test_a_status_comes_back_as_it_was_sent(status):
    assert decode_status(encode_status(status)) == status


def test_steps_before_the_first_come_back_as_such():
    (party,) = decode_status(encode_status(RunStatus("shop", parties=(PartyStatus("ann"),)))).parties
    assert (party.pushed, party.served) == (-1, -1)


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x1a\x02\x0a"])
def test_bytes_that_are_no_status_are_named(raw):
    with pytest.raises(ExchangeError, match=f"status of {len(raw)} bytes cannot be read .*; use the server's version"):
        decode_status(raw)


@pytest.mark.parametrize(
    "status",
    [
        RunStatus("[/x]"),
        RunStatus("shop", parties=(PartyStatus("[bold red]all parties have finished[/]"),)),
        RunStatus("shop", parties=(PartyStatus("ann", waits_for=("bob", "\x1b[2J")),)),
    ],
)
def test_a_lying_server_s_names_do_not_get_to_the_terminal(status):
    """Finding 9: `fdml status` shows names in a table, where markup would be acted on."""
    with pytest.raises(ExchangeError, match="which no party can have"):
        decode_status(encode_status(status))


def test_reasons_that_there_are_not_are_left_out():
    status = RunStatus("shop", refused={"gap": 3, "[/x]": 4})
    assert decode_status(encode_status(status)).refused == {"gap": 3}
