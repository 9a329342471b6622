from __future__ import annotations

import json
import math
import re
import tomllib

import pytest
import typer
from typer.testing import CliRunner

from fdml.cli.budget import EXCHANGES, budget
from fdml.errors import SettingsError
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.settings import GuardSettings, TrainingSettings
from tests.privacy.ledgers import can_release

app = typer.Typer(callback=lambda: None)
app.add_typer(budget, name="budget")


def planned(*words):
    run = CliRunner().invoke(app, ["budget", "plan", *map(str, words)])
    assert run.exit_code == 0, run.output
    return run.stdout


def refused(*words):
    run = CliRunner().invoke(app, ["budget", "plan", *map(str, words)])
    assert run.exit_code == 1
    assert isinstance(run.exception, SettingsError)
    return str(run.exception)


def table(text):
    """The rows of figures: exchanges, sigma, sigma / clip, epsilon."""
    return [
        [float(cell) for cell in line.split()] for line in text.splitlines() if re.fullmatch(r"[\s\d.e+-]+\d", line)
    ]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [0.5, 3, 10])
def test_the_sigma_shown_keeps_to_the_budget_shown(noise, epsilon):
    rows = table(planned("--epsilon", epsilon, "--noise", noise))
    assert [row[0] for row in rows] == list(EXCHANGES)
    for exchanges, sigma, ratio, claimed in rows:
        ledger = Ledger(Mechanism(noise, 3.0, sigma), None, 1e-5, epsilon)
        ledger.count_release("a row", int(exchanges))
        assert 0.99 * epsilon < claimed <= epsilon
        assert ledger.epsilon("a row") == pytest.approx(claimed, abs=6e-5)
        assert ratio == pytest.approx(sigma / 3.0, abs=0.006)


def test_more_exchanges_need_more_noise():
    sigmas = [row[1] for row in table(planned("--epsilon", 3))]
    assert sigmas == sorted(sigmas)
    assert sigmas[-1] / sigmas[0] == pytest.approx(math.sqrt(40), rel=1e-3)


def test_the_figure_of_the_notes_is_in_the_table():
    ten = next(row for row in table(planned("--epsilon", 3, "--clip", 1)) if row[0] == 10)
    assert ten[1] == pytest.approx(8.79, abs=0.01)


def test_what_the_figures_mean_stands_below():
    text = " ".join(planned("--epsilon", 3, "--parties", 4).split())
    assert (
        "scope: each pushed prediction; not the effect through the weights, nor through scaling, step size and categories"
        in text
    )
    assert "delta is per row" in text
    assert "Fewer exchanges need less noise" in text
    assert "An evaluation releases the held-out rows" in text
    assert "4 parties with such noise make a total 2.00 times as noisy" in text
    assert "make a total" not in planned("--epsilon", 3, "--parties", 1)


def test_the_lines_to_write_are_ready_to_write():
    text = planned("--epsilon", 3)
    run = text[text.index("[training]") : text.index("and in every party.toml")]
    party = text[text.index("[guard]") :]
    assert tomllib.loads(run) == {"training": {"exchanges": 5}}
    assert tomllib.loads(party)["guard"] == {"clip": 3.0, "noise": "gaussian", "sigma": 18.66, "epsilon": 3.0}


@pytest.mark.parametrize("words", [(), ("--noise", "laplace"), ("--clip", 0.5), ("--delta", 1e-7)])
def test_the_lines_of_every_row_are_settings_that_fdml_takes(tmp_path, words):
    file = tmp_path / "budget.json"
    planned("--epsilon", 2, *words, "--json", file)
    for row in json.loads(file.read_text())["rows"]:
        training = TrainingSettings(**tomllib.loads(row["run_toml"])["training"])
        guard = GuardSettings(**tomllib.loads(row["party_toml"])["guard"])
        assert training.exchanges == row["exchanges"]
        ledger = Ledger(Mechanism(guard.noise, guard.clip, guard.sigma), None, guard.delta, guard.epsilon)
        assert can_release(ledger, "a row", training.exchanges)
        assert not can_release(ledger, "a row", training.exchanges + 1)


def test_a_delta_of_ones_own_is_among_the_lines_and_the_usual_one_is_not():
    assert "delta = 1e-07" in planned("--epsilon", 3, "--delta", 1e-7)
    assert "delta =" not in planned("--epsilon", 3)


def test_the_figures_are_written_as_json(tmp_path):
    file = tmp_path / "budget.json"
    text = planned("--epsilon", 3, "--noise", "laplace", "--parties", 3, "--json", file)
    written = json.loads(file.read_text())
    rows = written.pop("rows")
    assert written == {
        "epsilon": 3.0, "delta": 1e-5, "clip": 3.0, "noise": "laplace", "parties": 3,
        "scope": "each pushed prediction; not the effect through the weights, nor through scaling, step size and categories",
    }  # fmt: skip
    assert [row["sigma"] for row in rows] == [row[1] for row in table(text)]
    assert all(row["epsilon"] <= 3.0 for row in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epsilon", 0), "the budget epsilon is 0.0; it takes a number above 0"),
        (("--epsilon", "nan"), "the budget epsilon is nan"),
        (("--epsilon", 3, "--delta", 0), "delta is 0.0; it takes a number between 0 and 1"),
        (("--epsilon", 3, "--clip", -1), "clip is -1.0; it takes a number above 0"),
        (("--epsilon", 3, "--noise", "none"), "--noise is 'none'; it takes gaussian, laplace"),
        (("--epsilon", 3, "--json", "no/such/budget.json"), "there is no folder 'no/such'"),
    ],
)
def test_wrong_options_are_named(words, message):
    assert message in refused(*words)


def test_a_plan_needs_a_budget():
    assert CliRunner().invoke(app, ["budget", "plan"]).exit_code == 2
    assert CliRunner().invoke(app, ["budget", "plan", "--epsilon", "3", "--parties", "0"]).exit_code == 2
