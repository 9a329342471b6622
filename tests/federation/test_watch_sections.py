import pytest

from fdml.federation.watch_sections import account_rows, running_privacy, with_own_shares
from fdml.monitor.measures import Measures, Start
from fdml.party.settings import read_party
from fdml.settings import GuardSettings
from tests.federation.folders import write_run

ROW = {"state": "training", "name": "ann", "own": True, "waiting_share": 0.5, "waited_seconds": 20.0}


def measured(*pairs):
    return Measures(tuple(Start(0.0, seconds=seconds, waited_seconds=waited) for seconds, waited in pairs))


def shares(row, measures):
    return with_own_shares([row], measures)[0]["shares"]


def test_time_of_this_party_is_computing_waiting_and_line():
    assert shares(ROW, measured((100.0, 30.0))) == {"computing": 0.7, "waiting": 0.2, "line": 0.1}


def test_all_starts_count():
    assert shares(ROW, measured((60.0, 10.0), (40.0, 20.0))) == {"computing": 0.7, "waiting": 0.2, "line": 0.1}


def test_no_share_is_below_none_or_above_all():
    assert shares(ROW, measured((10.0, 5.0))) == {"computing": 0.5, "waiting": 0.5, "line": 0.0}
    assert shares(ROW, measured((10.0, 50.0))) == {"computing": 0.0, "waiting": 1.0, "line": 0.0}


def test_of_others_only_the_waits_are_known():
    other = {**ROW, "own": False}
    assert shares(other, measured((100.0, 30.0))) == {"waiting": 0.5, "rest": 0.5}
    assert shares({**other, "waiting_share": None}, None) is None


@pytest.mark.parametrize("measures", [None, Measures()])
def test_before_anything_is_measured_this_party_is_as_the_server_sees_it(measures):
    assert shares(ROW, measures) == {"waiting": 0.5, "rest": 0.5}


def test_a_party_without_a_ledger_has_no_accounts(tmp_path):
    write_run(tmp_path)
    assert account_rows(read_party(tmp_path / "ann" / "party.toml")) is None


def test_a_ledger_that_cannot_be_read_is_left_out(tmp_path):
    write_run(tmp_path)
    settings = read_party(tmp_path / "ann" / "party.toml")
    settings.ledger.mkdir(parents=True, exist_ok=True)
    (settings.ledger / "accounts.json").write_text("not a ledger")
    assert account_rows(settings) is None


def test_what_protects_is_said_while_the_run_goes_on():
    nothing = running_privacy(GuardSettings(), {"push": 3})
    assert nothing[0].startswith("nothing protects this party's predictions")
    assert "predictions of a block of training rows have left 3 times so far" in nothing


def test_of_a_party_that_is_gone_or_was_not_counted_there_are_no_shares():
    assert shares({**ROW, "state": "gone for 8 s"}, measured((10.0, 5.0))) is None
    assert shares({**ROW, "waited_seconds": None}, measured((10.0, 5.0))) is None
