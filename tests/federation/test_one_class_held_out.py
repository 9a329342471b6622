"""Held-out rows of one class have no AUC; the run trains to its end all the same and says so."""

import json

import pytest

from fdml.events import Remark
from fdml.federation.join import join
from fdml.federation.run_record import read_record
from fdml.monitor.listeners import ignore_events
from tests.cli.commands import call
from tests.federation.folders import EPOCHS, RUN, serving, together, write_run
from tests.federation.test_run_report import words_of
from tests.federation.test_watch import shown


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose test files have rows of one class alone, and what ann's process said."""
    home, events = tmp_path_factory.mktemp("one-class") / "run", []
    write_run(home)
    rows = {}
    for party in ("ann", "bob"):
        head, *lines = (home / party / "data.csv").read_text().splitlines()
        rows[party] = head, dict(line.split(",", 1) for line in lines)
    held = [id for id, rest in rows["ann"][1].items() if rest.endswith("yes")][:20]
    for party, (head, lines) in rows.items():
        train = [f"{id},{rest}" for id, rest in lines.items() if id not in held]
        test = [f"{id},{lines[id]}" for id in held]
        (home / party / "data.csv").write_text("\n".join([head, *train]) + "\n")
        (home / party / "test.csv").write_text("\n".join([head, *test]) + "\n")
        path = home / party / "party.toml"
        path.write_text(path.read_text().replace('path = "data.csv"', 'path = "data.csv"\ntest_path = "test.csv"'))
    listeners = {"ann": events.append, "bob": ignore_events}
    with serving(home / "run.toml") as server:
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml", plain=True, server=server.address, on_event=listeners[party]
                )
                for party in listeners
            )
        )
    return home, events


def test_the_run_trains_to_its_end_without_an_auc(finished):
    home, _ = finished
    rows = json.loads((home / "ann" / RUN / "history.json").read_text())
    assert len(rows) == EPOCHS
    assert [row["test_metric"] for row in rows] == [None] * EPOCHS
    assert all(row["test_loss"] > 0 for row in rows)
    assert read_record(home / "ann", "ann", "first").card is not None


def test_it_is_said_before_the_first_epoch_what_will_be_missing(finished):
    _, events = finished
    said = [event.text for event in events if isinstance(event, Remark) and "one class" in event.text]
    assert said == [
        "all 20 held-out rows have one class: there will be no AUC and no gain, only their loss; raise "
        "evaluation.holdout, or bring test files with both classes"
    ]


def test_page_report_and_commands_bear_it(finished):
    home, _ = finished
    page = shown(home / "ann" / "party.toml")
    assert "test_metric" not in page["curves"]
    assert "test_loss" in page["curves"]
    report = words_of((home / "ann" / RUN / "report.html").read_text())
    assert "Not known: AUC of the held-out rows is not defined" in report
    assert call("report", home / "ann" / "party.toml").exit_code == 0


def test_a_comparison_of_such_rows_is_no_trouble_for_the_page(finished):
    home, _ = finished
    assert call("compare", home / "run.toml").exit_code == 0
    levels = shown(home / "ann" / "party.toml")["curves"]["test_loss"]["levels"]
    assert [name for name, _ in levels] == ["ann alone", "late fusion", "pooled"]
