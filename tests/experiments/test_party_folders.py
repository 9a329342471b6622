"""A run whose parties' folders are all here, read after it has ended."""

import shutil

import numpy as np
import pytest

from fdml.audit.load_recording import read_recording
from fdml.errors import AlignmentError, DataError
from fdml.experiments.compare import compare
from fdml.experiments.comparison_input import from_run_file
from fdml.experiments.party_folders import dataset_of, finished_folders, load_model, plan_of, read_party_folders
from fdml.federation.join import join
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.models.metrics import mean_loss, metric
from fdml.monitor.listeners import ignore_events
from fdml.party.plan import joint_score
from fdml.settings.federation import read_run
from tests.federation.folders import EPOCHS, ROWS, serving, together, write_run

PARTIES = ("ann", "bob")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    home = tmp_path_factory.mktemp("folders") / "run"
    write_run(home)

    def joined(party):
        return lambda: join(home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events)

    with serving(home / "run.toml") as server:
        together(*(joined(party) for party in PARTIES))
    return home / "run.toml"


@pytest.fixture(scope="module")
def folders(finished):
    return read_party_folders(finished, read_run(finished))


def test_every_partys_rows_are_in_the_order_of_the_run(finished, folders):
    problem = dataset_of(read_run(finished), folders)
    total = sum(to_dense_column(problem.train.parts[party], folders, party) for party in PARTIES)
    assert ((total > 0) == (problem.train.labels == 1)).all(), "the label is the sign of the sum, row by row"
    assert (len(problem.train), len(problem.test)) == (ROWS * 4 // 5, ROWS // 5)


def to_dense_column(rows, folders, party):
    """A party's feature before it was scaled, from its own file."""
    file = folders[party].folder.path / "data.csv"
    values = np.loadtxt(file, str, delimiter=",", skiprows=1)[:, 1].astype(float)
    assert len(rows.values) == len(folders[party].shared.train)
    return values[folders[party].shared.train]


def test_the_models_on_disk_give_the_figures_that_the_run_reported(finished, folders):
    """Promise 9: a prediction is the same number wherever it is made."""
    run = read_run(finished)
    problem = dataset_of(run, folders)
    plan = plan_of(run, folders, problem)
    models = {name: load_model(plan, home) for name, home in folders.items()}
    score = joint_score(models, problem.test.parts, problem.objective)
    reported = Bundle.load(finished.parent / "ann" / "runs" / "first" / MODEL).card.metrics
    assert reported.epoch == EPOCHS
    assert reported.test_loss == pytest.approx(mean_loss("logistic", score, problem.test), abs=1e-6)
    assert reported.test_metric == pytest.approx(metric("binary", score, problem.test), abs=1e-6)


def test_a_comparison_takes_the_rows_of_a_run_that_has_finished_here(finished, folders):
    problem, contenders, seed = from_run_file(finished)
    own = dataset_of(read_run(finished), folders)
    assert problem.run_seed == seed == own.run_seed
    np.testing.assert_array_equal(problem.test.labels, own.test.labels)
    np.testing.assert_array_equal(problem.shuffled(seed).train.labels, own.train.labels)
    joint = {each.scheme: each.last for each in compare(problem, contenders, [seed])}["joint"]
    reported = Bundle.load(finished.parent / "ann" / "runs" / "first" / MODEL).card.metrics
    assert joint.test_metric == pytest.approx(reported.test_metric, abs=1e-9), "it is the run's own training again"
    assert joint.test_loss == pytest.approx(reported.test_loss, abs=1e-6)


@pytest.mark.parametrize("change", ["settings", "data", "model"])
def test_rows_of_a_run_are_left_where_it_is_not_as_it_was(finished, tmp_path, change):
    home = tmp_path / "run"
    shutil.copytree(finished.parent, home)
    if change == "settings":
        text = (home / "run.toml").read_text()
        (home / "run.toml").write_text(text.replace(f"epochs = {EPOCHS}", f"epochs = {EPOCHS + 1}"))
    elif change == "data":
        path = home / "bob" / "data.csv"
        path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    else:
        shutil.rmtree(home / "bob" / "runs" / "first" / MODEL)
    assert finished_folders(home / "run.toml", read_run(home / "run.toml")) is None
    problem, _, _ = from_run_file(home / "run.toml")
    assert problem.run_seed is None


def test_a_recording_of_the_run_has_what_every_party_pushed(finished):
    recording = read_recording(finished)
    for party in PARTIES:
        assert sorted(recording.pushes[party]) == list(range(recording.schedule.steps))
        np.testing.assert_array_equal(recording.plain[party][0], 0.0)
    assert recording.truth.models.keys() == set(PARTIES)


def test_a_run_that_was_not_aligned_is_named_with_what_to_do(tmp_path):
    run = write_run(tmp_path)
    with pytest.raises(AlignmentError, match="party 'ann' has not aligned its rows; run `fdml simulate` first"):
        read_party_folders(run, read_run(run))


def test_a_folder_of_another_party_is_named(tmp_path):
    run = write_run(tmp_path)
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text().replace('party = "bob"', 'party = "ann"'))
    (tmp_path / "ann" / "party.toml").write_text(path.read_text())
    with pytest.raises((DataError, AlignmentError), match=r"is of party 'ann'; it should be of 'bob'|not aligned"):
        read_party_folders(run, read_run(run))
