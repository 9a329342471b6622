from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fdml import FeatureDistributedClassifier, FeatureDistributedRegressor
from fdml.errors import DataError, LabelError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # most train for few epochs

CHECK = """
import json
from sklearn.utils.estimator_checks import check_estimator
import fdml
found = check_estimator(getattr(fdml, {name!r})(**{settings!r}), on_fail=None, on_skip=None)
print(json.dumps([[each["check_name"], each["status"], repr(each["exception"])] for each in found]))
"""


WEIGHED = {"check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"}
"""A row of weight 2 is that row twice; but in batches of a few rows the second comes later, and auto counts rows."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "others"),
    [({"epochs": 20, "batch_size": 1000, "l2": 1e-4, "optimizer": "sgd"}, set()), ({"epochs": 20}, WEIGHED)],
)
@pytest.mark.parametrize("name", ["FeatureDistributedClassifier", "FeatureDistributedRegressor"])
def test_scikit_learns_own_checks_all_pass_and_none_is_skipped(name, settings, others):
    """In a process of its own: one check runs only with SCIPY_ARRAY_API set before scipy is imported."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK.format(name=name, settings=settings)],
        env=environment, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) > 50
    assert {each[0] for each in found if each[1] != "passed"} == others


def split(load, seed=0):
    X, y = load(return_X_y=True)
    scaled = StandardScaler().fit_transform(X)
    return train_test_split(scaled, y, test_size=0.3, random_state=seed)


def measure(model, X, y):
    return (
        roc_auc_score(y, model.decision_function(X)) if len(getattr(model, "classes_", ())) == 2 else model.score(X, y)
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("load", [load_breast_cancer, load_digits, load_diabetes])
def test_joint_is_as_good_as_pooled_on_scikit_learns_data(load, model):
    X, X_test, y, y_test = split(load)
    kind = FeatureDistributedRegressor if load is load_diabetes else FeatureDistributedClassifier
    settings = {"model": model, "epochs": 60, "batch_size": 20, "random_state": 0, "l2": 1e-2, "hidden": (16,)}
    joint = kind(**settings).fit(X, y)
    pooled = kind(groups=[range(X.shape[1])], **settings).fit(X, y)
    assert len(joint.groups_) == 2
    assert measure(joint, X_test, y_test) >= measure(pooled, X_test, y_test) - 0.01
    floor = {load_breast_cancer: 0.98, load_digits: 0.94, load_diabetes: 0.3}[load]
    assert measure(pooled, X_test, y_test) > floor, "pooled itself is poor, so being near it says nothing"


@pytest.fixture
def cancer():
    return split(load_breast_cancer)


@pytest.mark.slow
def test_sparse_and_dense_rows_give_the_same_model(cancer):
    X, X_test, y, _ = cancer
    model = FeatureDistributedClassifier(scale="none", random_state=0)
    dense = model.fit(X, y).decision_function(X_test)
    sparse = model.fit(sp.csr_array(X), y).decision_function(sp.csr_array(X_test))
    np.testing.assert_allclose(dense, sparse, rtol=1e-6)


def test_groups_may_be_named_and_may_overlap(cancer):
    X, X_test, y, y_test = cancer
    names = [f"f{at}" for at in range(X.shape[1])]
    groups = [names[:20], names[10:]]
    model = FeatureDistributedClassifier(groups=groups, epochs=60, random_state=0)
    with pytest.warns(UserWarning, match=r"column f10 \(and 9 more\) is in several groups"):
        model.fit(pd.DataFrame(X, columns=names), y)
    assert model.groups_ == [list(range(20)), list(range(10, 30))]
    assert model.score(pd.DataFrame(X_test, columns=names), y_test) > 0.95


@pytest.mark.parametrize("groups", [[[0, 99]], [["nothing"]], [[], [1]], []])
def test_groups_that_cannot_be_are_refused(cancer, groups):
    with pytest.raises(DataError, match=r"no feature|no groups|has no features"):
        FeatureDistributedClassifier(groups=groups).fit(cancer[0], cancer[2])


def test_warm_start_goes_on_where_the_last_fit_ended(cancer):
    X, _, y, _ = cancer
    settings = {"epochs": 2, "learning_rate": 0.01, "lr_decay": "constant", "random_state": 0}
    cold = FeatureDistributedClassifier(**settings).fit(X, y).fit(X, y)
    warm = FeatureDistributedClassifier(warm_start=True, **settings).fit(X, y).fit(X, y)
    loss = [-np.log(each.predict_proba(X)[np.arange(len(y)), y]).mean() for each in (cold, warm)]
    assert loss[1] < loss[0]


@pytest.mark.slow
def test_hinge_gives_decisions_but_no_probabilities(cancer):
    X, X_test, y, y_test = cancer
    svm = FeatureDistributedClassifier(loss="hinge", random_state=0).fit(X, y)
    assert svm.score(X_test, y_test) > 0.95
    assert not hasattr(svm, "predict_proba")


@pytest.mark.slow
def test_probabilities_sum_to_one_and_follow_the_classes():
    X, X_test, y, _ = split(load_digits)
    names = np.array([f"digit {each}" for each in y])
    model = FeatureDistributedClassifier(random_state=0).fit(X, names)
    np.testing.assert_allclose(model.predict_proba(X_test).sum(axis=1), 1.0)
    assert (model.classes_[model.predict_proba(X_test).argmax(axis=1)] == model.predict(X_test)).all()


def small_net(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 4), torch.nn.Tanh(), torch.nn.Linear(4, outputs))


@pytest.mark.parametrize(
    "model", ["linear", pytest.param("fm", marks=pytest.mark.slow), "mlp", ["mlp", "linear"], [small_net, "linear"]]
)
def test_a_saved_estimator_predicts_the_same_after_loading(tmp_path, cancer, model):
    X, X_test, y, _ = cancer
    fitted = FeatureDistributedClassifier(model=model, epochs=2, random_state=0).fit(X, np.where(y, "bad", "good"))
    fitted.save(tmp_path / "estimator.npz")
    given = {"model": model} if isinstance(model, list) and callable(model[0]) else {}
    loaded = FeatureDistributedClassifier.load(tmp_path / "estimator.npz", **given)
    assert (loaded.predict(X_test) == fitted.predict(X_test)).all()
    assert loaded.predict_proba(X_test).tobytes() == fitted.predict_proba(X_test).tobytes()


def test_a_saved_regressor_keeps_the_units_of_its_target(tmp_path):
    X, X_test, y, _ = split(load_diabetes)
    fitted = FeatureDistributedRegressor(epochs=5, random_state=0).fit(X, y)
    fitted.save(tmp_path / "estimator.npz")
    loaded = FeatureDistributedRegressor.load(tmp_path / "estimator.npz")
    assert loaded.predict(X_test).tobytes() == fitted.predict(X_test).tobytes()


def test_what_cannot_be_loaded_is_refused_with_a_reason(tmp_path, cancer):
    X, _, y, _ = cancer
    path = tmp_path / "estimator.npz"
    with pytest.raises(DataError, match="there is no file"):
        FeatureDistributedClassifier.load(path)
    path.write_bytes(b"not an archive")
    with pytest.raises(DataError, match="not an estimator that fdml saved"):
        FeatureDistributedClassifier.load(path)
    np.savez(path, theta=np.array([{"an": "object"}]), allow_pickle=True)
    with pytest.raises(DataError, match="not an estimator that fdml saved"):
        FeatureDistributedClassifier.load(path)
    FeatureDistributedClassifier(model=small_net, epochs=1).fit(X, y).save(path)
    with pytest.raises(DataError, match=r"FeatureDistributedClassifier.load"):
        FeatureDistributedRegressor.load(path)
    with pytest.raises(SettingsError, match="torch parties"):
        FeatureDistributedClassifier.load(path)


def test_wrong_choices_are_named(cancer):
    X, _, y, _ = cancer
    with pytest.raises(LabelError, match="one class only"):
        FeatureDistributedClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(SettingsError, match=r"no model kind 'forest'; there are linear, fm, mlp"):
        FeatureDistributedClassifier(model="forest").fit(X, y)
    with pytest.raises(SettingsError, match="3 models for 2 groups"):
        FeatureDistributedClassifier(model=["mlp"] * 3).fit(X, y)
    with pytest.raises(SettingsError, match="loss 'softmax' does not fit task 'binary'"):
        FeatureDistributedClassifier(loss="softmax").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        FeatureDistributedClassifier().fit(np.where(X[3, 2] == X, np.nan, X), y)


def test_it_works_in_a_pipeline_and_a_grid_search(cancer):
    X, X_test, y, y_test = cancer
    pipeline = make_pipeline(StandardScaler(), FeatureDistributedClassifier(epochs=3, random_state=0))
    search = GridSearchCV(pipeline, {"featuredistributedclassifier__l2": [1e-4, 1e-1]}, cv=2).fit(X, y)
    assert search.score(X_test, y_test) > 0.9
    clone(search.best_estimator_)


def test_rows_of_weight_zero_count_for_nothing(cancer):
    X, X_test, y, _ = cancer
    spoiled = np.concatenate([y, 1 - y[:50]])
    weights = np.concatenate([np.ones(len(y)), np.zeros(50)])
    settings = {"epochs": 30, "batch_size": 1000, "l2": 1e-4, "random_state": 0}
    clean = FeatureDistributedClassifier(**settings).fit(X, y).predict_proba(X_test)
    weighed = (
        FeatureDistributedClassifier(**settings).fit(np.vstack([X, X[:50]]), spoiled, weights).predict_proba(X_test)
    )
    np.testing.assert_allclose(clean, weighed, rtol=1e-6)
