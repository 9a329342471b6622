"""The log of decisions: it only grows, every line follows from the one before, and whoever changes it is found."""

import datetime
import json
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import StateCorrupt
from fdml.federation.decision_log import LOG, Decision, DecisionLog, latest, verified

KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)


def log_of(folder, key=KEY):
    return DecisionLog(folder, key, lambda: NOON)


def decision(run="first", choice="accepted", **changes):
    values = {"run_hash": "ab" * 32, "starter": "ann", "by": "policy", "rule": "policy.accept", "reason": "within"}
    return Decision(run=run, choice=choice, **{**values, **changes})


@pytest.fixture
def three(tmp_path):
    log = log_of(tmp_path)
    for name in ("first", "second", "third"):
        log.append(decision(name))
    return log


def lines_of(log):
    return log.path.read_bytes().splitlines()


def rewrite(log, lines):
    log.path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_decisions_are_read_as_they_were_written(three):
    assert [each.decision for each in three.read()] == [decision(name) for name in ("first", "second", "third")]
    assert [each.number for each in three.read()] == [1, 2, 3]


def test_there_is_no_decision_before_the_first(tmp_path):
    assert log_of(tmp_path / "none").read() == []


def test_a_line_is_one_json_object_and_only_its_owner_can_read_the_file(three):
    first = json.loads(lines_of(three)[0])
    assert (first["run"], first["choice"], first["time"]) == ("first", "accepted", "2024-01-01T12:00:00+00:00")
    assert stat.S_IMODE(three.path.stat().st_mode) == 0o600


def test_the_last_decision_on_a_run_counts(three):
    three.append(decision("first", "stopped"))
    three.append(decision("first", "waits", run_hash="cd" * 32))
    last = latest(three.read())
    assert last["first", "ab" * 32].choice == "stopped"
    assert last["first", "cd" * 32].choice == "waits"
    assert ("zed", "ab" * 32) not in last


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("field", ["run", "choice", "reason", "starter", "time", "signature"])
def test_a_changed_line_is_named(three, number, field):
    lines = lines_of(three)
    facts = json.loads(lines[number - 1])
    facts[field] = "00" + facts[field][2:]
    lines[number - 1] = json.dumps(facts, sort_keys=True).encode()
    rewrite(three, lines)
    with pytest.raises(StateCorrupt, match=f"line {number} of the log"):
        three.read()


@pytest.mark.parametrize("gone", [0, 1])
def test_a_line_that_was_taken_out_is_missed_by_the_one_after_it(three, gone):
    lines = lines_of(three)
    del lines[gone]
    rewrite(three, lines)
    with pytest.raises(StateCorrupt, match=f"line {gone + 1} of the log"):
        three.read()


def test_lines_in_another_order_do_not_hold(three):
    first, second, third = lines_of(three)
    rewrite(three, [first, third, second])
    with pytest.raises(StateCorrupt, match="line 2 of the log"):
        three.read()


def test_a_line_without_the_party_s_key_does_not_hold(three, tmp_path):
    forger = log_of(tmp_path / "forged", OTHER)
    for name in ("first", "second", "third", "fourth"):
        forger.append(decision(name))
    rewrite(three, [*lines_of(three), lines_of(forger)[3]])
    with pytest.raises(StateCorrupt, match="line 4 of the log"):
        three.read()


def test_nothing_wrong_is_signed_over(three):
    rewrite(three, lines_of(three)[1:])
    with pytest.raises(StateCorrupt, match="line 1 of the log"):
        three.append(decision("fourth"))


def test_what_is_no_decision_is_named(three):
    rewrite(three, [*lines_of(three), b"[]"])
    with pytest.raises(StateCorrupt, match="line 4 of the log of decisions does not hold: it is no decision"):
        three.read()


def test_a_line_that_a_crash_has_torn_is_no_decision(three):
    whole = three.path.read_bytes()
    three.path.write_bytes(whole + lines_of(three)[0][:40])
    assert len(three.read()) == 3
    three.append(decision("fourth"))
    assert [each.number for each in three.read()] == [1, 2, 3, 4]
    assert three.path.read_bytes().startswith(whole)


def test_a_new_key_begins_a_new_log_that_follows_from_the_old_one(three):
    renewed = log_of(three.path.parent, OTHER)
    assert renewed.read() == []
    old = lines_of(three)
    entry = renewed.append(decision("fourth"))
    assert (three.path.parent / "log-1.jsonl").read_bytes().splitlines() == old
    assert len(verified((three.path.parent / "log-1.jsonl").read_bytes(), KEY.public_key())) == 3
    assert [each.decision.run for each in renewed.read()] == ["fourth"]
    assert entry.before != "0" * 64


def test_the_first_line_cannot_be_passed_off_as_an_older_key_s(three):
    lines = lines_of(three)
    lines[0] = lines[0].replace(json.loads(lines[0])["key"].encode(), b"sha256:" + b"0" * 64)
    rewrite(three, lines)
    with pytest.raises(StateCorrupt, match="line 1 of the log"):
        three.read()


def test_a_plain_log_is_chained(tmp_path):
    log = log_of(tmp_path, None)
    log.append(decision("first"))
    log.append(decision("second"))
    assert (tmp_path / LOG).is_file()
    rewrite(log, [lines_of(log)[0].replace(b"first", b"fires"), lines_of(log)[1]])
    with pytest.raises(StateCorrupt, match="line 2 of the log"):
        log.read()


def test_another_program_can_check_it_with_the_public_key(three):
    raw = three.path.read_bytes()
    assert len(verified(raw, KEY.public_key())) == 3
    with pytest.raises(StateCorrupt, match="line 1 of the log"):
        verified(raw, OTHER.public_key())


# Logs of older keys.


@pytest.fixture
def renewed(three):
    """The log of a new key, beside that of the old one."""
    log = log_of(three.path.parent, OTHER)
    log.append(decision("fourth"))
    return log


def older_of(log):
    return log.path.parent / "log-1.jsonl"


def test_runs_of_older_logs_are_known(renewed):
    assert [each.decision.run for each in renewed.older()] == ["first", "second", "third"]


@pytest.mark.parametrize("damage", ["gone", "cut", "changed", "first line gone"])
def test_an_older_log_that_was_changed_or_cut_is_missed_by_the_one_after_it(renewed, damage):
    """The first line of a log is signed and has the hash of the last one before it, and that of all others."""
    older = older_of(renewed)
    lines = older.read_bytes().splitlines(keepends=True)
    kept = {
        "gone": [],
        "cut": lines[:2],
        "changed": [lines[0].replace(b"first", b"fires"), *lines[1:]],
        "first line gone": lines[1:],
    }[damage]
    older.write_bytes(b"".join(kept)) if kept else older.unlink()
    with pytest.raises(StateCorrupt, match=r"the log of decisions.* does not hold"):
        renewed.read()


def test_a_crash_while_an_older_log_is_put_aside_does_not_break_the_chain(three):
    three.path.rename(older_of(three))
    renewed = log_of(three.path.parent, OTHER)
    renewed.append(decision("fourth"))
    assert [each.decision.run for each in renewed.read()] == ["fourth"]
    assert renewed.read()[0].before != "0" * 64


def test_a_log_of_the_first_key_follows_from_nothing(three):
    """A log that was moved away with all its lines is begun anew, and the place of the old one is empty."""
    lines = lines_of(three)
    facts = json.loads(lines[0])
    assert facts["before"] == "0" * 64
    assert three.older() == []


def test_a_first_line_that_a_crash_has_torn_is_cut_off(tmp_path):
    log = log_of(tmp_path)
    log.append(decision("first"))
    torn = log.path.read_bytes()[:40]
    log.path.write_bytes(torn)
    assert log.read() == []
    log.append(decision("second"))
    assert [each.decision.run for each in log.read()] == ["second"]
