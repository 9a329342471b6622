import json
from dataclasses import replace

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import PROTOCOL
from fdml.server.membership import Membership
from tests.server.run_states import ALIGNMENT, RUN_HASH, hello


@pytest.fixture
def register():
    """The store and the browser have joined; the store came first, and is at its third start."""
    register = Membership(RUN_HASH)
    register.admit("store", hello(3))
    register.admit("browser", hello(1))
    return register


REFUSED = {
    "protocol": (
        {"protocol": PROTOCOL + 1},
        Refusal.MISMATCH,
        rf"party 'guard' speaks protocol {PROTOCOL + 1}, the server {PROTOCOL}; install the same fdml",
    ),
    "run": (
        {"run_hash": b"\xab" * 32},
        Refusal.MISMATCH,
        r"party 'guard' has a run.toml with hash abababababab, the server one with 000102030405; give both",
    ),
    "rows": (
        {"rows": 12},
        Refusal.MISMATCH,
        r"party 'guard' has 12 rows and 3 held out, 'store' has 11 and 3; all parties must hold the same rows",
    ),
    "held out": (
        {"held_out": 4},
        Refusal.MISMATCH,
        r"party 'guard' has 11 rows and 4 held out, 'store' has 11 and 3",
    ),
    "alignment": (
        {"alignment_hash": b"\xcd" * 32},
        Refusal.MISMATCH,
        r"party 'guard' has other rows than 'store' \(alignment cdcdcdcdcdcd against 202122232425\); check the ids",
    ),
    "no rows": ({"rows": 0}, Refusal.INVALID, r"party 'guard' has no rows to train on; check its files"),
    "incarnation 0": ({"incarnation": 0}, Refusal.FENCED, r"is at its start 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_mismatch_says_which_side_has_what_and_changes_nothing(register, what):
    change, refusal, text = REFUSED[what]
    before = json.dumps(register.facts())
    with pytest.raises(MessageRefused, match=text) as refused:
        register.admit("guard", replace(hello(), **change))
    assert refused.value.refusal is refusal
    assert json.dumps(register.facts()) == before
    register.admit("guard", hello())


@pytest.mark.parametrize("what", REFUSED)
def test_a_party_already_there_is_held_to_the_same(register, what):
    change, refusal, _ = REFUSED[what]
    with pytest.raises(MessageRefused) as refused:
        register.admit("browser", replace(hello(2), **change))
    assert refused.value.refusal is refusal
    assert register.incarnation("browser") == 1


def test_the_first_party_to_join_says_which_rows_there_are():
    register = Membership(RUN_HASH)
    assert register.alignment is None
    register.admit("browser", hello(rows=5, held_out=0))
    assert (register.alignment.rows, register.alignment.held_out, register.alignment.party) == (5, 0, "browser")
    assert register.alignment.digest == ALIGNMENT


def test_a_refused_first_party_says_nothing():
    register = Membership(RUN_HASH)
    for change in ({"protocol": 0}, {"run_hash": b"x" * 32}, {"rows": 0}):
        with pytest.raises(MessageRefused):
            register.admit("guard", hello(**change))
        assert register.alignment is None
        assert register.incarnation("guard") == 0


def test_an_older_start_is_shut_out(register):
    for old in (1, 2):
        with pytest.raises(
            MessageRefused, match=rf"'store' is at its start {old}, the server knows its start 3: .* its state was lost"
        ) as refused:
            register.admit("store", hello(old))
        assert refused.value.refusal is Refusal.FENCED
    assert register.incarnation("store") == 3


def test_the_same_start_may_come_again_and_a_newer_one_takes_its_place(register):
    register.admit("store", hello(3))
    register.admit("store", hello(7))
    assert register.incarnation("store") == 7
    with pytest.raises(MessageRefused):
        register.admit("store", hello(3))


def test_starts_of_one_party_do_not_shut_out_another(register):
    register.admit("guard", hello(1))
    assert [register.incarnation(party) for party in ("store", "browser", "guard")] == [3, 1, 1]


def test_a_restored_register_is_the_same(register):
    other = Membership(RUN_HASH)
    other.restore(json.loads(json.dumps(register.facts())))
    assert other.facts() == register.facts()
    assert other.alignment == register.alignment
    with pytest.raises(MessageRefused, match="the server knows its start"):
        other.admit("store", hello(2))
    empty = Membership(RUN_HASH)
    empty.restore(json.loads(json.dumps(Membership(RUN_HASH).facts())))
    assert empty.alignment is None
