"""The report of a run at each of its parties: what stands in it, and what does not."""

import json
import re
import shutil

import pytest

from fdml.errors import SettingsError
from fdml.federation.join import join
from fdml.federation.run_folder import MODEL
from fdml.federation.run_record import newest_run, read_record
from fdml.federation.run_report import REPORT, flat, run_report, write_report
from fdml.monitor.history import read_history
from fdml.monitor.log_lines import JsonLines
from fdml.monitor.measures import MEASURES, read_measures
from fdml.monitor.report import render
from fdml.settings import run_hash
from tests.cli.commands import fail, succeed
from tests.federation.folders import EPOCHS, ROWS, RUN, serving, together, write_run
from tests.monitor.sample_events import plain_console

KEY = "5ec7e7" * 10 + "abcd"
COLUMN, ID, YES, NO = "canary_column", "canary-id-", "canary-yes", "canary-no"


def plant_canaries(home):
    """Let ids, classes and the names of columns be words that nothing else has."""
    for party in ("ann", "bob"):
        path = home / party / "data.csv"
        head, *lines = path.read_text().splitlines()
        cells = [line.split(",") for line in lines]
        named = {"yes": YES, "no": NO}
        rows = [",".join([ID + row[0], row[1], *(named[each] for each in row[2:])]) for row in cells]
        path.write_text("\n".join([head.replace("x", COLUMN), *rows]) + "\n")


def values_of(home):
    """All features, as they stand in the files and shorter."""
    found = set()
    for party in ("ann", "bob"):
        for line in (home / party / "data.csv").read_text().splitlines()[1:]:
            value = line.split(",")[1]
            found |= {value, value[:8], value.lstrip("-")[:8]}
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run, whose label party has noise on nothing."""
    home = tmp_path_factory.mktemp("report") / "run"
    write_run(home, group_key=KEY)
    plant_canaries(home)
    logs = {party: plain_console() for party in ("ann", "bob")}
    with serving(home / "run.toml") as server:
        works = [
            lambda party=party: join(
                home / party / "party.toml",
                plain=True,
                server=server.address,
                on_event=JsonLines(logs[party][0], "first"),
            )
            for party in logs
        ]
        together(*works)
    for party, (_, log) in logs.items():
        (home / f"{party}.jsonl").write_text(log.getvalue())
    return home


def page(home, party):
    return (home / party / RUN / REPORT).read_text()


def words_of(text):
    """The page as a reader sees it."""
    return " ".join(re.sub(r"<[^>]+>", " ", text.split("</style>", 1)[1]).split())


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_every_party_ends_with_a_report_that_only_it_can_read(finished, party):
    path = finished / party / RUN / REPORT
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"Run first at {party}" in words_of(path.read_text())


def test_the_label_party_s_report_begins_with_what_joint_training_brought(finished):
    history = read_history(finished / "ann" / RUN / "history.json")
    compared, words = history[EPOCHS].compared, words_of(page(finished, "ann"))
    assert f"{compared.gain:+.3f} AUC over ann alone" in words.split("What joint training brought")[0]
    for figures in (history[EPOCHS].figures, compared.figures):
        assert f"{figures['auc']:.4f}" in words
        assert f"{figures['brier']:.4f}" in words


def test_its_curves_have_the_numbers_of_the_history(finished):
    history, text = read_history(finished / "ann" / RUN / "history.json"), page(finished, "ann")
    for epoch, each in history.items():
        for figure in (each.train_loss, each.test_loss, each.test_metric):
            assert f'<td class="n">{epoch}</td><td class="n">{figure:.4f}</td>' in text


def test_it_has_calibration_and_lift_of_the_held_out_rows(finished):
    found = read_history(finished / "ann" / RUN / "history.json")[EPOCHS].reliability
    words = words_of(page(finished, "ann"))
    assert sum(found.rows) == pytest.approx(ROWS / 5)
    assert f"{found.lift[0]:.2f} times as many are positive" in words


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_lag_waiting_traffic_rows_privacy_settings_and_how_to_repeat_it_are_in_every_report(finished, party):
    measures, words = read_measures(finished / party / RUN / MEASURES), words_of(page(finished, party))
    (start,) = measures.starts
    assert min(start.bytes_sent, start.bytes_received) > 0
    assert f"0 restarts. {sum(measures.lag.values()):,} steps" in words
    assert f"{start.bytes_sent / 1e6:.2f} MB" in words
    assert f"shared by all to train on held out {ROWS} {ROWS * 4 // 5} {ROWS // 5}" in words
    assert f"what this run showed of {party}" in words
    assert "without noise; there is no epsilon to state" in words
    assert "training.batch_size 8" in words
    assert f"run hash {run_hash(read_record(finished / party, party, 'first').settings).hex()}" in words
    assert "fdml run run.toml --name first-again" in words
    assert "same models, bit by bit" in words


def test_a_party_without_labels_has_no_figures_of_them(finished):
    words = words_of(page(finished, "bob"))
    history = read_history(finished / "ann" / RUN / "history.json")
    assert "What joint training brought is for ann, which has the labels" in words
    for each in history.values():
        assert f"{each.test_loss:.4f}" not in words
        assert f"{each.test_metric:.4f}" not in words


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_no_feature_label_id_or_key_is_in_a_report(finished, party):
    text = page(finished, party)
    for canary in (COLUMN, ID, YES, NO, KEY, KEY[:16], str(finished)):
        assert canary not in text
    assert not [value for value in values_of(finished) if value in text]
    for name in ("group_key", "members", "label ="):
        assert name not in text


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_no_feature_label_id_or_key_is_in_the_lines_for_collectors_of_logs(finished, party):
    text = (finished / f"{party}.jsonl").read_text()
    assert {json.loads(line)["event"] for line in text.splitlines()} >= {"StepDone", "Released", "Aligned"}
    assert not [each for each in (COLUMN, ID, YES, NO, KEY, KEY[:16], str(finished)) if each in text]
    assert not [value for value in values_of(finished) if value in text]


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_no_feature_label_id_or_key_is_in_the_measures(finished, party):
    text = (finished / party / RUN / MEASURES).read_text()
    assert not [each for each in (COLUMN, ID, YES, NO, KEY, *values_of(finished)) if each in text]


def test_the_command_makes_it_again_also_elsewhere(finished, tmp_path):
    path = finished / "ann" / RUN / REPORT
    before = page(finished, "ann")
    path.unlink()
    assert f"report: {path}" in succeed("report", finished / "ann" / "party.toml")
    again = page(finished, "ann")
    assert words_of(before).split("Made")[0] == words_of(again).split("Made")[0]
    succeed("report", finished / "ann" / "party.toml", "--run", "first", "--out", tmp_path / "r.html")
    assert "Run first at ann" in (tmp_path / "r.html").read_text()
    assert "there is no run 'none'" in fail(SettingsError, "report", finished / "ann" / "party.toml", "--run", "none")


def test_a_run_that_goes_on_has_a_report_too(finished, tmp_path):
    home = tmp_path / "ann"
    shutil.copytree(finished / "ann" / RUN, home / RUN)
    for name in (MODEL, "state"):
        shutil.rmtree(home / RUN / name)
    for name in ("privacy.json", MEASURES, REPORT):
        (home / RUN / name).unlink()
    rows = json.loads((home / RUN / "history.json").read_text())[:1]
    rows[0]["compared"] = rows[0]["reliability"] = None
    (home / RUN / "history.json").write_text(json.dumps(rows))
    words = words_of(write_report(home, "ann", newest_run(home)).read_text())
    assert "not finished" in words
    assert "this run was not compared with training alone" in words
    assert "The statement is written when the run ends." in words
    assert "Nothing was measured at this party." in words
    (home / RUN / "history.json").unlink()
    assert "No epoch was evaluated" in words_of(render(run_report(read_record(home, "ann", "first"))))


def test_a_damaged_bundle_ends_no_report(finished, tmp_path):
    home = tmp_path / "bob"
    shutil.copytree(finished / "bob" / RUN, home / RUN)
    (home / RUN / MODEL / "card.json").write_text("{")
    assert read_record(home, "bob", "first").card is None


def test_without_a_run_the_way_to_one_is_named(tmp_path):
    with pytest.raises(SettingsError, match="no run has begun"):
        newest_run(tmp_path)


def test_settings_that_name_keys_columns_or_classes_are_left_out():
    values = {
        "members": {"ann": "ab"},
        "keys": {"bob": ["zip"]},
        "training": {"class_weight": {"sick": 2.0}, "seed": 7},
    }
    assert list(flat({**values, "parties": ["a", "b"], "loss": None})) == [("training.seed", "7"), ("parties", "a, b")]
