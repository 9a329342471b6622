"""What the live page gets to show: the server's status and this side's own files, and nothing more."""

import json
import threading
import time
import urllib.request
from dataclasses import replace

import pytest

from fdml.errors import SettingsError
from fdml.federation.endpoint_counts import ENDPOINT
from fdml.federation.key_files import write_credentials
from fdml.federation.watch import Watch, watch
from fdml.federation.watch_sections import running_privacy
from fdml.monitor.page_server import PageServer
from fdml.settings import GuardSettings
from tests.cli.commands import fail
from tests.end_to_end.served import RawStream, labels, served
from tests.federation.test_run_report import COLUMN, ID, KEY, NO, RUN, YES, finished, values_of
from tests.federation.test_status import FOUND, evaluated, write_alignment, write_party, write_run
from tests.federation.test_status import KEY as GROUP_KEY
from tests.monitor.sample_events import Clock

__all__ = ["evaluated", "finished"]  # fixtures
NOBODY = "127.0.0.1:1"
"""Where no server listens."""


def shown(path, **options):
    """The state of a page that has looked once."""
    found = Watch(path, **{"plain": True, "server": NOBODY, "seconds": 5.0 if "server" in options else 0.1, **options})
    found.look()
    state = json.loads(found.published.text)
    assert state == json.loads(json.dumps(found.state(), allow_nan=False))
    return state


# A run that is over, and whose server is gone.


def test_a_finished_run_stays_viewable_without_its_server(finished):
    state = shown(finished / "ann" / "party.toml")
    assert (state["run"], state["side"]) == ("first", "ann")
    assert state["sentence"] == {
        "text": "Finished: this party's model is written.",
        "level": "done",
        "advice": "What it brought is in `runs/first/report.html`, in this party's folder.",
    }
    assert state["step"] == state["steps"] > 0
    assert state["next"][1] == "fdml report party.toml --run first"


def test_its_curves_are_those_of_the_history(finished):
    curves = shown(finished / "ann" / "party.toml", run="first")["curves"]
    rows = json.loads((finished / "ann" / RUN / "history.json").read_text())
    for name, curve in curves.items():
        assert curve["values"] == [row[name] for row in rows]
        assert curve["epoch"] == [row["epoch"] for row in rows]
    assert curves["test_metric"]["title"] == "Held-out AUC"
    assert curves["test_metric"]["levels"] == [["ann alone", rows[-1]["compared"]["alone"]]]


def test_rows_lag_privacy_and_settings_are_this_partys_own(finished):
    for party in ("ann", "bob"):
        state = shown(finished / party / "party.toml")
        assert state["rows"] == {"shared": 120, "train": 96, "held_out": 24, "lost": {}}
        assert sum(state["lag"].values()) == state["steps"]
        assert "without noise; there is no epsilon to state" in state["privacy"][0]
        assert dict(state["settings"])["training.batch_size"] == "8"


def test_a_party_without_labels_sees_no_figures_in_its_own_files(finished):
    assert shown(finished / "bob" / "party.toml")["curves"] == {}


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_no_feature_label_id_or_key_is_on_the_page_or_in_the_metrics(finished, party):
    found = Watch(finished / party / "party.toml", plain=True, server=NOBODY, seconds=0.1)
    found.look()
    for text in (found.published.text, found.metrics()):
        assert not [each for each in (COLUMN, ID, YES, NO, KEY, KEY[:16], str(finished)) if each in text]
        assert not [value for value in values_of(finished) if value in text]


def test_the_accounts_of_the_ledger_are_there_without_names_of_files(finished):
    found = shown(finished / "ann" / "party.toml")["accounts"]
    assert [each["run"] for each in found["runs"]] == ["first"]
    assert found["runs"][0]["direct"] is None, "without noise there is no bound"
    assert "data" not in json.dumps(found)


def test_figures_of_an_endpoint_are_there_while_it_runs(finished):
    path = finished / "ann" / ENDPOINT
    assert shown(finished / "ann" / "party.toml")["serving"] is None
    try:
        path.write_text(json.dumps({"at": time.time(), "requests": 3}))
        assert shown(finished / "ann" / "party.toml")["serving"] == {"requests": 3}
        path.write_text(json.dumps({"at": time.time() - 60.0, "requests": 3}))
        assert shown(finished / "ann" / "party.toml")["serving"] is None
    finally:
        path.unlink()


def test_a_port_that_is_taken_is_named(finished):
    found = Watch(finished / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1)
    with (
        PageServer("127.0.0.1", 0, found.published, found.metrics) as taken,
        pytest.raises(SettingsError, match="cannot listen at 127"),
    ):
        watch(found, "127.0.0.1", taken.port, on_start=print)


def test_curves_are_made_anew_only_where_there_is_something_new(finished, monkeypatch):
    clock = Clock()
    found = Watch(finished / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1, clock=clock)
    found.look()
    curves = found.state()["curves"]
    clock.now += 10.0
    found.look()
    assert found.state()["curves"] is curves
    (finished / "ann" / RUN / "measures.json").touch()
    clock.now += 10.0
    found.look()
    assert found.state()["curves"] is not curves
    assert found.state()["curves"] == curves


# A run that goes on.


def live_party(folder, run, name, aligned=True):
    write_run(folder, run.target, run.settings.members)
    write_credentials(folder / name / "keys", run.credentials(name))
    own = write_party(folder, name)
    if aligned:
        write_alignment(folder / name, run, GROUP_KEY)
    return own


def test_a_live_run_shows_who_is_where(evaluated, tmp_path):
    state = shown(live_party(tmp_path, evaluated, "bob"), plain=False, server=None)
    assert [each["name"] for each in state["parties"]] == ["ann", "bob"]
    assert [each["own"] for each in state["parties"]] == [False, True]
    assert state["sentence"]["text"]


def test_metrics_that_the_party_may_open_are_its_curves(evaluated, tmp_path):
    curves = shown(live_party(tmp_path, evaluated, "bob"), plain=False, server=None)["curves"]
    assert curves["test_loss"]["values"] == [each.test_loss for each in FOUND]
    assert curves["test_metric"]["seconds"] == [each.seconds for each in FOUND]


def test_the_servers_own_machine_sees_no_figures(evaluated, tmp_path):
    write_credentials(tmp_path / "server" / "keys", evaluated.credentials("server"))
    path = write_run(tmp_path, evaluated.target, evaluated.settings.members)
    state = shown(path, plain=False, server=None)
    assert (state["side"], state["curves"], state["settings"]) == ("server", {}, [])
    assert "ask at a party" in state["privacy"][0]


def test_nobody_is_shown_how_large_predictions_are(tmp_path):
    with served(tmp_path / "run") as run, RawStream(run.target, run.credentials("ann")) as line:
        line.send(run.hello(), labels())
        text = json.dumps(shown(live_party(tmp_path, run, "bob", aligned=False), plain=False, server=None))
        assert "largest" not in text
        assert "prediction" not in text


def test_a_server_that_is_gone_and_one_that_has_no_such_run_are_told_apart(evaluated, tmp_path):
    own = live_party(tmp_path, evaluated, "bob")
    gone = shown(own, plain=False, server=NOBODY, run="e2e")["sentence"]
    assert gone["text"].startswith("The server has not answered for 0.0 s")
    assert gone["level"] == "late"
    none = shown(own, plain=False, server=None, run="second")["sentence"]
    assert "has run 'e2e' alone, not 'second'" in none["text"]
    assert none["level"] == "waiting"


def test_files_that_have_changed_are_read_every_other_second(finished):
    clock = Clock()
    found = Watch(finished / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1, clock=clock)
    found.look()
    found._record = None
    for changed, is_read in ((True, False), (False, True)):
        if changed:
            (finished / "ann" / RUN / "measures.json").touch()
        clock.now += 1.0
        found.look()
        assert (found._record is not None) == is_read


def test_files_that_have_not_changed_are_not_read_again(finished):
    clock = Clock()
    found = Watch(finished / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1, clock=clock)
    found.look()
    found._record = None
    clock.now += 10.0
    found.look()
    assert found._record is None


def test_the_page_is_served_until_it_is_stopped(finished):
    stop, told = threading.Event(), []

    def look(server: PageServer) -> None:
        with urllib.request.urlopen(server.address, timeout=10) as page:
            told.append(page.read())
        with urllib.request.urlopen(f"{server.address}metrics", timeout=10) as metrics:
            told.append(metrics.read())
        stop.set()

    watched = Watch(finished / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1)
    watch(watched, "127.0.0.1", 0, on_start=look, stop=stop)
    assert b"<!doctype html>" in told[0]
    assert b"fdml_run_steps_done" in told[1]


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ({}, "nothing protects this party's predictions: they leave without noise"),
        ({"noise": "gaussian", "clip": 3.0, "sigma": 1.0}, "gaussian noise protects this party's predictions"),
        ({"noise": "gaussian", "clip": 3.0, "sigma": "auto", "epsilon": 2.5}, "the budget of this run is epsilon 2.5"),
    ],
)
def test_while_a_run_goes_on_its_protection_is_in_plain_words(guard, words):
    first, second, last = running_privacy(GuardSettings(**guard), {"push": 1200})
    assert words in first
    assert second == "predictions of a block of training rows have left 1,200 times so far"
    assert "written at the end" in last


# The command.


@pytest.mark.parametrize("listen", ["7480", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":7480"])
def test_an_address_that_is_none_is_refused(finished, listen):
    text = fail(SettingsError, "watch", finished / "ann" / "party.toml", "--listen", listen)
    assert "it takes an address and a port" in text


@pytest.mark.parametrize("token", ["short", "with spaces in all of it", "ümläute-are-not-ascii"])
def test_a_token_that_is_too_short_or_strange_is_refused(finished, tmp_path, token):
    path = tmp_path / "token"
    path.write_text(token)
    assert "16 or more letters" in fail(SettingsError, "watch", finished / "ann" / "party.toml", "--token-file", path)
    assert "cannot read the token" in fail(
        SettingsError, "watch", finished / "ann" / "party.toml", "--token-file", tmp_path / "none"
    )


def test_a_server_is_asked_no_more_once_all_have_finished(evaluated, tmp_path):
    found = Watch(live_party(tmp_path, evaluated, "bob"), plain=False, seconds=5.0)
    found.look()
    parties = tuple(replace(each, finished=True) for each in found._live.status.parties)
    found._live.note(replace(found._live.status, parties=parties))
    found.look()
    assert all(each["state"] == "finished" for each in found.state()["parties"]), "it would say otherwise if asked"
    assert found.state()["sentence"]["level"] == "done"
