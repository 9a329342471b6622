from __future__ import annotations

import numpy as np
import pytest

from fdml.data.row_set import mean_one
from fdml.data.rows import as_rows, to_dense
from fdml.data.table import PartyData, Table
from fdml.errors import DataError, LabelError
from fdml.experiments.dataset import build_dataset


def party(values, labels=None, ids=None, weights=None):
    values = np.asarray(values, float).reshape(len(values), -1)
    names = tuple(f"f{at}" for at in range(values.shape[1]))
    column = None if ids is None else np.array([str(each) for each in ids], object)
    return Table(as_rows(values), names, column, None if labels is None else np.asarray(labels), weights)


def two(rows=50, **kwargs):
    values = np.arange(rows)
    return {
        "a": PartyData(party(values, labels=values % 2, ids=values, **kwargs)),
        "b": PartyData(party(values[::-1] * 10, ids=values[::-1])),
    }


def test_rows_of_both_parties_belong_together_after_joining_splitting_and_shuffling():
    problem = build_dataset(two(), "a", "binary", None, 0.2, 7).shuffled(3)
    for sample, size in ((problem.train, 40), (problem.test, 10)):
        mine, theirs = to_dense(sample.parts["a"])[:, 0], to_dense(sample.parts["b"])[:, 0]
        assert len(sample) == size
        assert (mine * 10 == theirs).all()
        assert (mine % 2 == sample.labels).all()
    every = np.concatenate([to_dense(problem.train.parts["a"]), to_dense(problem.test.parts["a"])])
    assert sorted(every[:, 0]) == list(range(50))


def test_pooled_has_all_features_and_alone_one_partys():
    problem = build_dataset(two(), "a", "binary", None, 0.2, 7)
    assert to_dense(problem.pooled().train.parts["pooled"]).shape == (40, 2)
    assert list(problem.only("b").train.parts) == ["b"]


def test_test_rows_that_the_parties_bring_are_used():
    data = {name: PartyData(each.train, each.train) for name, each in two().items()}
    problem = build_dataset(data, "a", "binary", None, 0.2, 7)
    assert (len(problem.train), len(problem.test)) == (50, 50)


def test_test_rows_at_one_party_only_are_refused():
    data = two()
    data["a"] = PartyData(data["a"].train, data["a"].train)
    with pytest.raises(DataError, match="party 'b' has no test rows but 'a' has"):
        build_dataset(data, "a", "binary", None, 0.2, 7)


def test_a_label_party_without_labels_is_refused():
    with pytest.raises(LabelError, match=r"label party 'b' has no labels; set data.label"):
        build_dataset(two(), "b", "binary", None, 0.2, 7)


def test_an_empty_party_is_refused_unless_it_has_the_labels():
    data = two()
    empty = np.zeros((50, 0))
    data["b"] = PartyData(party(empty, ids=np.arange(50)))
    with pytest.raises(DataError, match="party 'b' has no features; only the label party may have none"):
        build_dataset(data, "a", "binary", None, 0.2, 7)
    data = two()
    data["a"] = PartyData(party(empty, labels=np.arange(50) % 2, ids=np.arange(50)))
    assert len(build_dataset(data, "a", "binary", None, 0.2, 7).train) == 40


def test_a_holdout_that_leaves_nothing_is_refused():
    with pytest.raises(DataError, match=r"holding out 0.01 of 10 rows leaves 10 to train on and 0 to test on"):
        build_dataset(two(10), "a", "binary", None, 0.01, 7)


def test_weights_are_scaled_to_mean_one():
    weights = np.arange(50.0)
    problem = build_dataset(two(weights=weights), "a", "binary", None, 0.2, 7)
    assert problem.train.weights.mean() == pytest.approx(1.0)
    with pytest.raises(DataError, match="all row weights are zero"):
        mean_one(np.zeros(3), 3)
