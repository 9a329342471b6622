"""What one reaches for in a session: scaling, weights of classes, early stopping, frames, coefficients, progress."""

from __future__ import annotations

import inspect
import io
import pickle
import re
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from fdml import FeatureDistributedClassifier, FeatureDistributedRegressor
from fdml.errors import LabelError, SettingsError
from fdml.experiments.estimator_fitting import warn_unless_converged

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FEW = {"epochs": 8, "batch_size": 20, "batches_per_block": 4, "optimizer": "sgd", "l2": 1e-4, "random_state": 0}


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


# Scaling


def test_columns_of_any_size_are_scaled_inside(cancer):
    """Newcomer 14: unscaled, it was worse than guessing."""
    X, y = cancer
    assert FeatureDistributedClassifier(**FEW).fit(X, y).score(X, y) > 0.97
    assert FeatureDistributedClassifier(**FEW, scale="none").fit(X / 1000, y).score(X / 1000, y) < 0.95


def test_scaling_does_not_depend_on_the_units(cancer):
    X, y = cancer
    units = 10.0 ** np.arange(-3, 3).repeat(5)
    plain = FeatureDistributedClassifier(**FEW).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(
        FeatureDistributedClassifier(**FEW).fit(X * units, y).predict_proba(X * units), plain, rtol=1e-4
    )


def test_sparse_rows_stay_sparse_and_can_be_predicted_dense(cancer):
    X, y = cancer
    few = np.where(np.median(X, axis=0) < X, X, 0.0)
    model = FeatureDistributedClassifier(**FEW).fit(sp.csr_matrix(few), y)
    assert not model.scaling_.centre.any()
    assert model.score(sp.csr_matrix(few), y) > 0.9
    np.testing.assert_allclose(model.predict_proba(few), model.predict_proba(sp.csr_matrix(few)), rtol=1e-5)


def test_another_scale_is_refused(cancer):
    with pytest.raises(SettingsError, match="scale is 'minmax'; it can be 'standard' or 'none'"):
        FeatureDistributedClassifier(scale="minmax").fit(*cancer)


# Groups


def test_groups_may_be_a_dict_of_parties(cancer):
    X, y = cancer
    groups = {"clinic": range(0, 10), "laboratory": range(10, 30)}
    model = FeatureDistributedClassifier(groups, **FEW).fit(X, y)
    assert list(model.models_) == ["clinic", "laboratory"]
    listed = FeatureDistributedClassifier(list(groups.values()), **FEW).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), listed.predict_proba(X))


def test_columns_that_no_party_has_are_remarked_on(cancer):
    X, y = cancer
    frame = pd.DataFrame(X, columns=[f"c{number}" for number in range(30)])
    with pytest.warns(UserWarning, match=r"column c29 is in no group, so no party learns from it"):
        FeatureDistributedClassifier([range(0, 29)], **FEW).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FeatureDistributedClassifier([range(0, 29), [29]], **{**FEW, "epochs": 2}).fit(frame, y)


# Frames


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_give_names_and_a_wrong_order_is_refused(cancer, frame):
    X, y = cancer
    columns = {f"c{number}": X[:, number] for number in range(30)}
    groups = {
        "clinic": [f"c{number}" for number in range(15)],
        "laboratory": [f"c{number}" for number in range(15, 30)],
    }
    model = FeatureDistributedClassifier(groups, **FEW).fit(frame(columns), y)
    assert model.feature_names_in_.tolist() == list(columns)
    np.testing.assert_array_equal(
        model.predict(frame(columns)), FeatureDistributedClassifier(**FEW).fit(X, y).predict(X)
    )
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame(dict(reversed(columns.items()))))


# Classes


def test_balanced_classes_count_alike_in_all(cancer):
    X, y = cancer
    keep = np.concatenate([np.flatnonzero(y == 1), np.flatnonzero(y == 0)[:12]])
    X, y = X[keep, :6], y[keep]
    plain = FeatureDistributedClassifier(**FEW).fit(X, y)
    balanced = FeatureDistributedClassifier(**FEW, class_weight="balanced").fit(X, y)
    assert balanced_accuracy_score(y, balanced.predict(X)) > balanced_accuracy_score(y, plain.predict(X)) + 0.1
    count = np.bincount(y)
    table = dict(enumerate(len(y) / (2 * count)))
    np.testing.assert_array_equal(
        FeatureDistributedClassifier(**FEW, class_weight=table).fit(X, y).predict_proba(X), balanced.predict_proba(X)
    )
    weights = (len(y) / (2 * count))[y]
    np.testing.assert_array_equal(
        FeatureDistributedClassifier(**FEW).fit(X, y, sample_weight=weights).predict_proba(X), balanced.predict_proba(X)
    )


def test_a_regression_has_no_classes_to_weigh():
    with pytest.raises(SettingsError, match="class_weight is for classes"):
        FeatureDistributedRegressor(class_weight="balanced").fit(*load_diabetes(return_X_y=True))


# Early stopping


def test_early_stopping_keeps_the_epoch_with_the_lowest_held_out_loss():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 60))
    y = (X[:, 0] + random.normal(size=200) > 0).astype(int)
    settings = {**FEW, "epochs": 40, "learning_rate": 0.5, "lr_decay": "constant", "l2": 0.0}
    whole = FeatureDistributedClassifier(**settings).fit(X, y)
    stopped = FeatureDistributedClassifier(**settings, early_stopping=True, validation_fraction=0.25).fit(X, y)
    assert whole.n_iter_ == 40 > stopped.n_iter_
    assert stopped.n_iter_ == len(stopped.loss_curve_) == len(stopped.validation_curve_)
    assert stopped.validation_curve_[-1] == min(stopped.validation_curve_)
    assert whole.validation_curve_ == []
    X_new = random.normal(size=(2000, 60))
    y_new = (X_new[:, 0] + random.normal(size=2000) > 0).astype(int)
    losses = [-np.log(each.predict_proba(X_new)[np.arange(2000), y_new]).mean() for each in (whole, stopped)]
    assert losses[1] < losses[0]


def test_held_out_rows_of_one_class_are_enough(cancer):
    X, y = cancer
    few = np.concatenate([np.flatnonzero(y == 1)[:40], np.flatnonzero(y == 0)[:2]])
    model = FeatureDistributedClassifier(**FEW, early_stopping=True, validation_fraction=0.05).fit(X[few], y[few])
    assert model.n_iter_ == len(model.validation_curve_) >= 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction is 1; give a share between 0 and 1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change is 0; give at least 1"),
    ],
)
def test_early_stopping_that_cannot_be_is_refused(cancer, settings, said):
    with pytest.raises(SettingsError, match=said):
        FeatureDistributedClassifier(early_stopping=True, **settings).fit(*cancer)


# Losses, convergence, progress


def test_the_loss_falls_and_is_kept_for_every_epoch(cancer):
    model = FeatureDistributedClassifier(**FEW).fit(*cancer)
    assert model.n_iter_ == len(model.loss_curve_) == FEW["epochs"]
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]


def test_training_that_was_too_short_says_so(cancer):
    with pytest.warns(ConvergenceWarning, match=r"not converged: the loss still falls \d+ % an epoch; raise"):
        FeatureDistributedClassifier(**{**FEW, "epochs": 6, "batch_size": 500}).fit(*cancer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FeatureDistributedClassifier(**{**FEW, "epochs": 60}).fit(*cancer)


@pytest.mark.parametrize(("losses", "said"), [([1.0, 0.9, 0.8, 0.7], "not converged"), ([1.0, 2.0, 3.0], "diverged")])
def test_what_losses_tell_of_a_training(losses, said):
    with pytest.warns(ConvergenceWarning, match=f"training has {said}"):
        warn_unless_converged(losses)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_converged(losses[:1])


def test_verbose_shows_epochs_and_losses(cancer, capsys):
    FeatureDistributedClassifier(**FEW).fit(*cancer)
    assert capsys.readouterr() == ("", "")
    FeatureDistributedClassifier(**FEW, verbose=True).fit(*cancer)
    assert re.search(r"fit: 8 of 8 epochs, \d+ s, training loss 0\.\d{4}", capsys.readouterr().err)


# Going on


def test_partial_fit_goes_on_over_new_rows(cancer):
    X, y = cancer
    model = FeatureDistributedClassifier(**FEW)
    scores = []
    for start in range(0, 500, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1])
        scores.append(model.score(X, y))
    assert scores[-1] > max(scores[0], 0.9)
    assert model.n_iter_ == len(model.loss_curve_) == 5


def test_partial_fit_needs_all_classes_at_first():
    X, y = load_iris(return_X_y=True)
    model = FeatureDistributedClassifier(**FEW).partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    assert model.partial_fit(X, y).predict_proba(X).shape == (150, 3)
    with pytest.raises(ValueError, match="classes differ from those of the first"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(LabelError, match="class that was not there in the first partial_fit"):
        FeatureDistributedClassifier(**FEW).partial_fit(X[:100], y[:100]).partial_fit(X, y)


def test_a_regression_goes_on_in_the_units_of_its_first_rows():
    X, y = load_diabetes(return_X_y=True)
    model = FeatureDistributedRegressor(**FEW)
    for _ in range(15):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.4


# Coefficients


def test_coefficients_make_the_score_of_the_input_as_it_was_given(cancer):
    X, y = cancer
    model = FeatureDistributedClassifier(**FEW).fit(X, y)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 30), (1,))
    np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-3)


def test_coefficients_of_several_classes_and_of_a_regression():
    X, y = load_iris(return_X_y=True)
    model = FeatureDistributedClassifier(**FEW).fit(X, y)
    assert model.coef_.shape == (3, 4)
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, model.decision_function(X), atol=1e-4)
    X, y = load_diabetes(return_X_y=True)
    regression = FeatureDistributedRegressor(**FEW).fit(X, y)
    assert regression.coef_.shape == (10,)
    np.testing.assert_allclose(X @ regression.coef_ + regression.intercept_, regression.predict(X), rtol=1e-4)


@pytest.mark.slow
def test_coefficients_come_near_those_of_a_pooled_model(cancer):
    X, y = cancer
    joint = FeatureDistributedClassifier(**{**FEW, "epochs": 200, "l2": 0.01}).fit(X, y)
    pooled = LogisticRegression(C=1 / (0.01 * len(y)), max_iter=5000).fit((X - X.mean(0)) / X.std(0), y)
    np.testing.assert_allclose(joint.coef_[0] * X.std(0), pooled.coef_[0], atol=0.05)


def test_shared_columns_count_once_for_each_party_and_left_out_ones_not_at_all(cancer):
    X, y = cancer
    with pytest.warns(UserWarning, match="group"):
        model = FeatureDistributedClassifier([range(0, 4), range(2, 6)], **FEW).fit(X, y)
    assert not model.coef_[0, 6:].any()
    np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-3)


def test_only_linear_parties_have_coefficients(cancer):
    X, y = cancer
    X = X.astype(np.float32)  # dense rows in double precision would need kernels of their own
    model = FeatureDistributedClassifier(model="mlp", hidden=(4,), **{**FEW, "epochs": 1}).fit(X, y)
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="only linear parties have coefficients"):
        model.coef_  # noqa: B018
    with pytest.raises(NotFittedError):
        FeatureDistributedClassifier().coef_  # noqa: B018


# Files


def test_a_fitted_estimator_is_the_same_after_pickle_joblib_and_save(cancer, tmp_path):
    X, y = cancer
    groups = {"clinic": list(range(15)), "laboratory": list(range(15, 30))}
    model = FeatureDistributedClassifier(groups, **FEW, early_stopping=True).fit(X, y)
    model.save(tmp_path / "estimator.npz")
    joblib.dump(model, tmp_path / "model.joblib")
    for other in (
        pickle.load(io.BytesIO(pickle.dumps(model))),
        joblib.load(tmp_path / "model.joblib"),
        FeatureDistributedClassifier.load(tmp_path / "estimator.npz"),
    ):
        assert other.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
        assert other.get_params() == model.get_params()
        assert (other.loss_curve_, other.validation_curve_) == (model.loss_curve_, model.validation_curve_)
        np.testing.assert_array_equal(other.coef_, model.coef_)
    assert clone(model).get_params() == model.get_params()


# Documentation


@pytest.mark.parametrize("kind", [FeatureDistributedClassifier, FeatureDistributedRegressor])
def test_every_parameter_is_explained(kind):
    explained = re.findall(r"^    (\w+) : ", kind.__doc__.partition("Attributes")[0], re.MULTILINE)
    assert explained == list(inspect.signature(kind).parameters)
