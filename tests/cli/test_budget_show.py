"""fdml budget show: what all runs have spent."""

import json

import pytest

from fdml.errors import StateCorrupt
from fdml.privacy.accounts import AccountFile, BudgetedAccount, Counts, RunAccount, ShownLabels
from fdml.privacy.ledger import GradientMechanism, Mechanism, epsilon_of
from fdml.storage.disk import FolderDisk
from tests.cli.commands import fail, succeed
from tests.federation.folders import write_run

GAUSSIAN = Mechanism("gaussian", 2.0, 8.0)
GUARD = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\ntotal_epsilon = 6.0\n'


@pytest.fixture
def party(tmp_path):
    write_run(tmp_path)
    path = tmp_path / "ann" / "party.toml"
    path.write_text(path.read_text() + GUARD)
    return path


def spend(party, name="life", *, data="f1", gradients=None, **counts):
    file = AccountFile(FolderDisk(party.parent / "ledger"))
    account = RunAccount("shop", data, f"{data}.csv", GAUSSIAN, gradients, Counts())
    BudgetedAccount(file, name, account, total=None, delta=1e-5).count(**counts)
    return file


def shown(party, tmp_path):
    text = succeed("budget", "show", party, "--json", tmp_path / "figures.json")
    return text, json.loads((tmp_path / "figures.json").read_text())


def test_a_ledger_before_the_first_run_has_spent_nothing(party, tmp_path):
    text, figures = shown(party, tmp_path)
    assert (figures["accounts"], figures["spent"]) == ([], {"direct": 0.0, "record_level": 0.0})
    assert figures["left"] == 6.0
    assert "left of guard.total_epsilon 6: 6" in text


def test_runs_are_listed_under_their_data_file_and_add_up(party, tmp_path):
    spend(party, "one", releases=3, held_out=3)
    spend(party, "two", releases=2)
    spend(party, "three", data="f2", releases=1)
    text, figures = shown(party, tmp_path)
    assert [(each["file"], len(each["runs"])) for each in figures["accounts"]] == [("f1.csv", 2), ("f2.csv", 1)]
    assert figures["accounts"][0]["direct"] == epsilon_of(GAUSSIAN, 5, 1e-5)
    assert figures["spent"] == {"direct": epsilon_of(GAUSSIAN, 6, 1e-5), "record_level": None}
    assert figures["left"] == pytest.approx(6.0 - epsilon_of(GAUSSIAN, 6, 1e-5))
    assert "no bound" in text
    assert "f1.csv (f1)" in text


def test_the_record_level_is_shown_where_training_had_noise(party, tmp_path):
    gradients = GradientMechanism(1.0, 20.0)
    spend(party, gradients=gradients, releases=2, uses=4)
    _, figures = shown(party, tmp_path)
    assert figures["spent"]["record_level"] == epsilon_of(GAUSSIAN, 2, 1e-5, 4 * gradients.squared_mu)


def test_labels_are_shown_by_column(party, tmp_path):
    file = spend(party, releases=1)
    file.show_labels("q1", ShownLabels("churn", 2.0, 2), "a")
    file.show_labels("q2", ShownLabels("churn", 0.5, 2), "b")
    text, figures = shown(party, tmp_path)
    assert figures["label_epsilon"] == {"churn": 2.5}
    assert "labels 'churn': 2.5 (shown in 2 ways)" in text


def test_a_total_that_is_not_set_is_said(party, tmp_path):
    party.write_text(party.read_text().replace("total_epsilon = 6.0\n", ""))
    text, figures = shown(party, tmp_path)
    assert (figures["total_epsilon"], figures["left"]) == (None, None)
    assert "no total is set" in text


def test_another_ledger_folder_can_be_shared_by_runs(party, tmp_path):
    party.write_text('ledger = "../common"\n' + party.read_text())
    _, figures = shown(party, tmp_path)
    assert figures["ledger"].endswith("common")
    assert (tmp_path / "common").is_dir()


def test_a_damaged_ledger_is_one_line(party):
    spend(party, releases=1)
    (party.parent / "ledger" / "accounts.json").write_text("{")
    assert "what was spent is unknown" in fail(StateCorrupt, "budget", "show", party)
