"""The paper's experiment: the table `fdml demo` prints, and its joint training as processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdml.data.readers import load
from fdml.data.rows import to_dense, width
from fdml.experiments.compare import compare
from fdml.experiments.paper import (
    GROUPS,
    PAPER,
    PARTIES,
    a9a_dataset,
    contenders,
    joint_by_processes,
    write_a9a_run,
)
from fdml.federation.key_files import own_credentials
from fdml.monitor.history import SCHEMES
from fdml.party.settings import read_party
from fdml.protocol.agreed_training import SLOWEST_LINE, agreed_training
from fdml.protocol.identity import Identity
from fdml.settings.federation import read_run


@pytest.fixture(scope="module")
def problem():
    return a9a_dataset()


@pytest.fixture(scope="module")
def table(problem):
    """Mean of three seeds, last epoch, nothing picked by test figures."""
    curves = compare(problem, contenders(), seeds=range(3))
    return {(curve.model, curve.scheme): curve.last for curve in curves}


@pytest.mark.slow
def test_the_a9a_table_reaches_its_figures(table):
    assert table["LR", "joint"].test_loss <= 0.3242
    assert table["LR", "joint"].test_metric >= 0.9024
    assert table["NN", "joint"].test_loss <= 0.3218
    assert table["NN", "joint"].test_metric >= 0.9040
    assert table["NN", "pooled"].test_metric >= 0.9048
    for model in ("LR", "NN"):
        joint = table[model, "joint"].test_metric
        assert joint >= table[model, "alone"].test_metric + 0.015
        assert joint >= table[model, "late fusion"].test_metric + 0.003
        assert joint >= PAPER[model, "joint"].test_metric - 0.0005


def test_a9a_is_cut_as_in_the_paper(problem):
    assert (len(problem.train), len(problem.test)) == (32_561, 16_281)
    assert [width(problem.train.parts[party]) for party in PARTIES] == [67, 56]
    assert sum(map(len, GROUPS)) == 123
    assert (problem.label_party, problem.loss) == (PARTIES[0], "logistic")


def test_the_papers_table_has_both_models_and_no_late_fusion():
    assert {model for model, _ in PAPER} == {each.name for each in contenders()} == {"LR", "NN"}
    assert {scheme for _, scheme in PAPER} == set(SCHEMES) - {"late fusion"}


def test_the_contenders_are_those_of_the_paper():
    lr, nn = contenders()
    assert (lr.training.batch_size, nn.training.batch_size) == (100, 100)
    assert {model.kind for model in lr.models.values()} == {"linear"}
    assert {model.hidden for model in nn.models.values()} == {(64,)}
    assert tuple(lr.models) == PARTIES


# Written as a run of processes


@pytest.fixture(scope="module")
def written(problem, tmp_path_factory):
    """The run of a few rows, at another seed than the default."""
    some = {"train": problem.train.take(np.arange(300)), "test": problem.test.take(np.arange(80))}
    part = replace(problem, **some)
    folder = tmp_path_factory.mktemp("paper") / "run"
    write_a9a_run(folder, part, contenders()[1], 3, "127.0.0.1:0")
    return folder, part


def test_the_run_has_the_contenders_settings_and_its_seed(written):
    folder, _ = written
    run = read_run(folder / "run.toml")
    assert (run.parties, run.label_party, run.server) == (PARTIES, PARTIES[0], "127.0.0.1:0")
    assert (run.training.epochs, run.training.seed) == (40, 3)
    for party in PARTIES:
        assert read_party(folder / party / "party.toml").model == contenders()[1].models[party]
        own_credentials(folder / party / "keys", Identity("demo", "party", party), run)


def test_a_slow_line_does_not_change_what_is_trained(written):
    folder, part = written
    training = read_run(folder / "run.toml").training
    fast, slow = (agreed_training(training, len(part.train), len(PARTIES), line) for line in (0, SLOWEST_LINE))
    assert fast == slow


def test_every_party_has_its_own_columns_in_an_order_of_its_own(written):
    folder, part = written
    loaded = {party: load(read_party(folder / party / "party.toml").data) for party in PARTIES}
    ids = {party: [str(each) for each in data.train.ids] for party, data in loaded.items()}
    assert sorted(ids[PARTIES[0]]) == sorted(ids[PARTIES[1]])
    assert ids[PARTIES[0]] != ids[PARTIES[1]]
    for party, data in loaded.items():
        order = [int(each.rpartition("-")[2]) for each in ids[party]]
        np.testing.assert_array_equal(to_dense(data.train.rows), to_dense(part.train.parts[party])[order])
    assert loaded[PARTIES[1]].train.labels is None
    order = [int(each.rpartition("-")[2]) for each in ids[PARTIES[0]]]
    np.testing.assert_array_equal(loaded[PARTIES[0]].train.labels, part.train.labels[order])


@pytest.mark.slow
def test_processes_train_the_models_that_one_process_does(written, tmp_path, warm_starts):
    """`joint_by_processes` raises where a bit differs; what it gives are the figures of every epoch."""
    _, part = written
    lr = contenders()[0]
    records = joint_by_processes(part, lr, 3, tmp_path / "run")
    assert [record.epoch for record in records] == list(range(1, lr.training.epochs + 1))
    seconds = [record.seconds for record in records]
    assert seconds == sorted(seconds)
    assert records[-1].train_objective < records[0].train_objective
