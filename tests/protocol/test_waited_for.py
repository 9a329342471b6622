import pytest

from fdml.protocol.messages import Waiting
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor, as_lists, waited_for
from fdml.protocol.wire import decode_from_server, encode_from_server

SEVERAL = (WaitedFor("telco", NEVER_SEEN), WaitedFor("shop", 62.4), WaitedFor("bank"), WaitedFor("mill", 3.0, "why"))


@pytest.mark.parametrize(
    ("each", "text", "missing"),
    [
        (WaitedFor("telco", NEVER_SEEN), "telco has not joined", True),
        (WaitedFor("telco", 62.4), "telco has been gone for 62 s", True),
        (WaitedFor("telco"), "telco is at work", False),
        (WaitedFor("telco", 3.0, "its run.toml differs"), "telco was refused: its run.toml differs", True),
    ],
)
def test_what_a_person_reads_of_a_party_that_is_waited_for(each, text, missing):
    assert each.text == text
    assert each.is_missing is missing


def test_they_travel_as_three_lists():
    assert waited_for(*as_lists(SEVERAL)) == SEVERAL
    assert decode_from_server(encode_from_server(Waiting(SEVERAL))) == Waiting(SEVERAL)


def test_a_refusal_is_cut_and_has_no_control_characters():
    (found,) = waited_for(["telco"], [1.0], ["\x1b[2J" + "x" * 1000])
    assert found.refusal.isprintable()
    assert len(found.refusal) < 410


def test_lists_of_other_lengths_are_no_parties():
    with pytest.raises(ValueError, match="shorter"):
        waited_for(["telco", "shop"], [1.0], ["", ""])
