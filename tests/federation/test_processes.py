import sys
import time

import pytest

from fdml.errors import PartyFailed, SettingsError
from fdml.events import Evaluated, Finished, Remark
from fdml.federation.processes import ChildProcess, Children, run_processes
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.monitor.listeners import ignore_events
from tests.end_to_end.cluster import write_run
from tests.end_to_end.topologies import topology

ROWS, EPOCHS = 200, 3


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A small run whose server takes any port."""
    folder = tmp_path_factory.mktemp("run") / "run"
    write_run(folder, 0, ("ann", "bob"), ROWS, {"epochs": EPOCHS})
    return folder


@pytest.fixture(scope="module")
def finished(home):
    """The events and the history of a whole run of processes, started from nothing."""
    events = []
    return events, run_processes(home / "run.toml", on_event=events.append)


def remarks(events, party):
    return [event.text for event in events if event.party == party and isinstance(event, Remark)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "mesh"])
def test_without_a_server_there_is_no_process_but_the_parties(tmp_path, kind):
    """Over a server, at a host and without any the figures are the same."""
    with topology(tmp_path / "run", kind, ("ann", "bob")) as files:
        events = []
        found = run_processes(files.home / "run.toml", on_event=events.append)
    assert {each.party for each in events if isinstance(each, Remark)} <= {"ann", "bob"}
    assert found["alignment"]["shared_rows"] == 400
    assert found["history"][-1]["test_metric"] > 0.7


@pytest.mark.slow
def test_a_run_of_processes_gives_the_label_party_s_history(finished):
    _, found = finished
    assert found["alignment"] == {"rows": {"ann": ROWS, "bob": ROWS}, "shared_rows": ROWS, "train_rows": 160}
    assert [row["epoch"] for row in found["history"]] == list(range(1, EPOCHS + 1))
    assert found["history"][-1]["test_metric"] > 0.8


@pytest.mark.slow
def test_the_lines_of_every_process_become_its_remarks(finished):
    events, _ = finished
    assert {event.party for event in events} == {"server", "ann", "bob"}
    assert any(text.startswith("serving run 'first' at 127.0.0.1:") for text in remarks(events, "server"))
    assert f"{EPOCHS} of {EPOCHS} epochs" in " ".join(remarks(events, "bob"))
    assert any("model in" in text for text in remarks(events, "ann"))
    assert not any(text.startswith("ann: ") for text in remarks(events, "ann")), "its name is the event's"
    assert not any("figures written" in text for text in remarks(events, "server"))


@pytest.mark.slow
def test_the_server_took_a_port_that_was_free(finished):
    events, _ = finished
    (line,) = [text for text in remarks(events, "server") if "serving" in text]
    assert 1024 < int(line.rpartition(":")[2]) < 65536


@pytest.mark.slow
def test_every_party_has_left_its_model(home, finished):
    for party in ("ann", "bob"):
        card = Bundle.check(home / party / "runs" / "first" / MODEL)
        assert (card.run, card.party) == ("first", party)


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(home, finished, warm_starts):
    events = []
    again = run_processes(home / "run.toml", on_event=events.append)
    assert again["history"] == finished[1]["history"]
    assert "was finished before" in remarks(events, "server")[0]


@pytest.mark.slow
def test_a_party_that_fails_ends_the_run_and_is_named_with_its_reason(tmp_path, warm_starts):
    write_run(tmp_path / "run", 0, ("ann", "bob"), ROWS, {})
    (tmp_path / "run" / "bob" / "data.csv").unlink()
    with pytest.raises(PartyFailed, match=r"bob stopped: there is no file .*data\.csv'; correct data\.path"):
        run_processes(tmp_path / "run" / "run.toml", on_event=ignore_events)


@pytest.mark.slow
def test_a_server_that_cannot_start_ends_the_run_before_any_party_starts(tmp_path, warm_starts):
    write_run(tmp_path / "run", 0, ("ann", "bob"), ROWS, {})
    (tmp_path / "run" / "server" / "keys" / "key.pem").unlink()
    events = []
    with pytest.raises(PartyFailed, match=r"server stopped: .*key\.pem"):
        run_processes(tmp_path / "run" / "run.toml", on_event=events.append)
    assert {event.party for event in events} <= {"server"}


def test_settings_that_cannot_be_read_are_found_before_anything_starts(tmp_path):
    with pytest.raises(SettingsError, match=r"run\.toml"):
        run_processes(tmp_path / "run.toml", on_event=ignore_events)


# One process.


def ended(children):
    while children.are_running():
        time.sleep(0.01)


def test_what_a_child_prints_is_forwarded_once_and_whole(tmp_path):
    events = []
    with Children(tmp_path, events.append) as children:
        children.start("ann", "--version")
        ended(children)
        ended(children)
    assert [event.text.split()[0] for event in events] == ["fdml"]


@pytest.mark.slow
def test_a_child_that_fails_is_an_error_with_its_own_words(tmp_path):
    with Children(tmp_path, ignore_events) as children:
        children.start("ann", "status", str(tmp_path / "no-such-run.toml"))
        with pytest.raises(PartyFailed, match=r"ann stopped: .*no-such-run\.toml"):
            ended(children)


def test_leaving_the_block_ends_a_child_that_still_runs(home, tmp_path):
    with Children(tmp_path, ignore_events) as children:
        child = children.start("server", "serve", str(home / "federation.toml"), "--plain")
        assert child.is_running
    assert child.process.returncode is not None


class Ended:
    """A process that has ended."""

    def __init__(self, code):
        self.returncode = code

    def poll(self):
        return self.returncode


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (
            1,
            "ann: 1 of 3 epochs\nfdml: there is no file 'x'; correct data.path\n",
            "there is no file 'x'; correct data.path",
        ),
        (1, "Traceback\nValueError: odd\n", "ValueError: odd"),
        (3, "", "exit code 3, no message"),
        (-9, "ann: 1 of 3 epochs\n", "killed by SIGKILL; run the same command again, it goes on where it stopped"),
    ],
)
def test_the_reason_of_a_failure_is_its_last_message(tmp_path, code, output, reason):
    (tmp_path / "log").write_text(output)
    assert ChildProcess("ann", Ended(code), tmp_path / "log").failure() == reason


def test_a_line_that_is_not_complete_waits_for_its_end(tmp_path):
    log = tmp_path / "log"
    child = ChildProcess("ann", Ended(None), log)
    log.write_text("one\ntw")
    assert child.new_lines() == ["one"]
    assert child.new_lines() == []
    log.write_text("one\ntwo\nthree\n")
    assert child.new_lines() == ["two", "three"]


def test_children_run_the_same_python(tmp_path):
    with Children(tmp_path, ignore_events) as children:
        assert children.start("ann", "--version").process.args[0] == sys.executable
        ended(children)


@pytest.mark.slow
def test_processes_tell_how_far_they_are_where_that_is_asked(tmp_path, warm_starts):
    write_run(tmp_path / "run", 0, ("ann", "bob"), ROWS, {"epochs": EPOCHS})
    events = []
    run_processes(tmp_path / "run" / "run.toml", on_event=events.append, tells=True, options=["--quiet"])
    evaluated = [each for each in events if isinstance(each, Evaluated)]
    assert [each.epoch for each in evaluated] == list(range(1, EPOCHS + 1))
    assert all(each.test_metric is not None for each in evaluated), "of the label party, with its figures"
    assert {each.party for each in events if isinstance(each, Finished)} == {"ann", "bob"}
    assert not any("epochs" in text for text in remarks(events, "bob")), "quiet"
