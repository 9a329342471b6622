from __future__ import annotations

import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fdml.cli import data as command
from fdml.cli.data import data
from fdml.data.archives import read_arrays
from fdml.errors import SettingsError
from fdml.experiments.comparison_input import from_run_file
from fdml.federation.key_files import read_credentials
from fdml.federation.processes import run_processes
from fdml.monitor.listeners import ignore_events
from fdml.party.settings import read_party
from fdml.settings.federation import read_run

pytestmark = pytest.mark.slow

app = typer.Typer(callback=lambda: None)
app.command("data")(data)


def made(*words):
    run = CliRunner().invoke(app, ["data", *map(str, words)])
    assert run.exit_code == 0, run.output
    return run


def refused(*words):
    run = CliRunner().invoke(app, ["data", *map(str, words)])
    assert run.exit_code == 1
    assert isinstance(run.exception, SettingsError)
    return str(run.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("data") / "twin"
    made("app-store", "--rows", 3000, "--out", out)
    return out


def test_it_says_what_it_wrote_and_how_to_train_on_it(tmp_path):
    run = made("app-store", "--rows", 1000, "--out", tmp_path / "twin")
    assert "1,000 rows that store, browser, guard share" in run.stdout
    assert f"fdml simulate {tmp_path / 'twin' / 'run.toml'}" in run.stdout
    assert re.search(r"making rows: (\d+) of \1 chunks", run.stderr)


def test_the_settings_name_three_parties_and_their_files(folder):
    run = read_run(folder / "run.toml")
    assert (run.parties, run.label_party, run.task) == (("store", "browser", "guard"), "store", "binary")
    for name in run.parties:
        party = read_party(folder / name / "party.toml")
        assert party.party == name
        assert party.federation.resolve() == (folder / "federation.toml").resolve()
        assert party.data.path.is_file()
        assert party.data.test_path is not None
        assert party.data.test_path.is_file()


def test_every_side_has_keys(folder):
    for side in ("server", "store", "browser", "guard"):
        assert read_credentials(folder / side / "keys").key


def test_compare_can_be_pointed_at_it(folder):
    problem, _, _ = from_run_file(folder / "run.toml")
    assert (len(problem.train), len(problem.test)) == (2700, 300)
    assert list(problem.train.parts) == ["store", "browser", "guard"]
    assert 0 < problem.train.labels.mean() < 0.06


@pytest.mark.slow
def test_simulate_just_works(tmp_path, warm_starts):
    out = tmp_path / "twin"
    made("app-store", "--rows", 20_000, "--out", out)
    text = (out / "federation.toml").read_text()
    (out / "federation.toml").write_text(text.replace(":7443", ":0"))
    found = run_processes(out / "run.toml", on_event=ignore_events)
    assert found["alignment"]["shared_rows"] == 18_000
    assert found["history"][-1]["test_loss"] < 0.13


def test_the_options_reach_the_data(tmp_path):
    made("app-store", "--rows", 1000, "--seed", 3, "--test-share", 0.5, "--out", tmp_path / "a")
    made("app-store", "--rows", 1000, "--test-share", 0.5, "--out", tmp_path / "b")
    ours, theirs = (read_arrays(tmp_path / name / "store" / "test.npz") for name in "ab")
    assert len(ours["y"]) == len(theirs["y"]) == 510
    assert not np.array_equal(ours["ids"], theirs["ids"])


def test_an_empty_folder_will_do(tmp_path):
    made("app-store", "--rows", 1000, "--out", tmp_path)
    assert (tmp_path / "run.toml").is_file()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    said = refused("app-store", "--rows", 1000, "--out", tmp_path)
    assert str(tmp_path) in said
    assert "choose a new folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "letter.txt" in refused("app-store", "--rows", 1000, "--out", tmp_path / "letter.txt")
    assert "choose another folder" in refused("app-store", "--rows", 1000, "--out", tmp_path / "letter.txt" / "twin")


def test_too_few_rows_are_refused_before_anything_is_written(tmp_path):
    said = refused("app-store", "--rows", 999, "--out", tmp_path / "twin")
    assert "999" in said
    assert "1000 or more" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0, 1, -0.1, "nan"])
def test_a_test_share_must_leave_rows_on_both_sides(tmp_path, share):
    said = refused("app-store", "--rows", 1000, f"--test-share={share}", "--out", tmp_path / "twin")
    assert "from 0.001 to 0.9" in said
    assert str(share) in said


def test_an_unknown_kind_is_answered_with_the_known(tmp_path):
    said = refused("app-shop", "--out", tmp_path / "twin")
    assert "'app-shop'" in said
    assert "app-store" in said


def test_a_negative_seed_is_wrong_usage(tmp_path):
    words = ["data", "app-store", "--rows", "1000", "--seed", "-1", "--out", str(tmp_path / "twin")]
    assert CliRunner().invoke(app, words).exit_code == 2


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "write_keys", fail)
    run = CliRunner().invoke(app, ["data", "app-store", "--rows", "1000", "--out", str(tmp_path / "twin")])
    assert run.exit_code != 0
    assert list(tmp_path.iterdir()) == []


# Data from packages


@pytest.fixture(scope="module")
def adult(tmp_path_factory):
    out = tmp_path_factory.mktemp("data") / "adult"
    made("adult", "--rows", 3000, "--out", out)
    return out


@pytest.mark.parametrize(
    ("kind", "parties", "wrote"),
    [
        (
            "nyc-flights",
            ("airline", "weather", "aircraft"),
            "rows of airline that lead to rows of weather and aircraft",
        ),
        ("census-income", ("register", "employer", "tax-office"), "rows that register, employer, tax-office share"),
    ],
)
def test_a_sample_is_a_run_with_settings_rows_and_keys(tmp_path, kind, parties, wrote):
    out = tmp_path / "run"
    said = made(kind, "--rows", 1000, "--out", out)
    assert f"1,000 {wrote}" in said.stdout
    assert f"fdml simulate {out / 'run.toml'}" in said.stdout
    run = read_run(out / "run.toml")
    assert (run.federation, run.name, run.parties, run.label_party) == (kind, "first", parties, parties[0])
    assert set(run.members) == {"server", *parties}
    for name in parties:
        assert read_party(out / name / "party.toml").party == name
        assert read_credentials(out / name / "keys").key
    problem, _, _ = from_run_file(out / "run.toml")
    assert list(problem.train.parts) == list(parties)
    if kind == "nyc-flights":  # one aircraft of seven is unknown
        assert 800 < len(problem.train) + len(problem.test) < 900
    else:
        assert (len(problem.train), len(problem.test)) == (1000, 500)


def test_a_sample_trains_as_it_is(adult, warm_starts):
    text = (adult / "federation.toml").read_text()
    (adult / "federation.toml").write_text(text.replace(":7443", ":0"))
    found = run_processes(adult / "run.toml", on_event=ignore_events)
    assert found["alignment"]["shared_rows"] == 3000
    assert found["history"][-1]["test_metric"] > 0.85


def test_the_same_seed_draws_the_same_rows(tmp_path, adult):
    made("adult", "--rows", 3000, "--out", tmp_path / "again")
    made("adult", "--rows", 3000, "--seed", 8, "--out", tmp_path / "other")
    path = "browser/train.parquet"
    first, again, other = ((folder / path).read_bytes() for folder in (adult, tmp_path / "again", tmp_path / "other"))
    assert first == again
    assert first != other


def test_the_test_share_is_that_of_held_out_rows(tmp_path):
    made("nyc-flights", "--rows", 1000, "--test-share", 0.5, "--out", tmp_path / "run")
    assert read_run(tmp_path / "run" / "run.toml").evaluation.holdout == 0.5
    assert "between 0 and 1" in refused("nyc-flights", "--test-share", 1, "--out", tmp_path / "no")
    assert "brings test rows of its own" in refused("adult", "--test-share", 0.3, "--out", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_sample_has_no_more_rows_than_there_are(tmp_path):
    assert "adult has 32,561" in refused("adult", "--rows", 40_000, "--out", tmp_path / "no")
    assert list(tmp_path.iterdir()) == []
