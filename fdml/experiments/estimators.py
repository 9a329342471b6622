"""scikit-learn's front door: the columns of one matrix are split among parties that train jointly.

For trying out what joint training would give, before any company is asked.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fdml.data.label_encoding import fit_labels
from fdml.errors import LabelError, SettingsError
from fdml.experiments.estimator_parameters import documented
from fdml.experiments.feature_distributed import FeatureDistributed
from fdml.models.losses import Logistic, Softmax, loss_named


def _gives_probabilities(estimator: FeatureDistributed) -> bool:
    if estimator.loss == "hinge":
        raise AttributeError('loss="hinge" gives no probabilities; use decision_function, or loss="logistic"')
    return True


@documented
class FeatureDistributedClassifier(ClassifierMixin, FeatureDistributed):  # type: ignore[misc]
    """Two or more classes; `loss` is "logistic" or "hinge" for two, "softmax" for more."""

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train all parties jointly.

        Parameters
        ----------
        X : rows and columns of numbers: an array, a sparse matrix, or a pandas, polars or Arrow frame.
        y : the class of every row.
        sample_weight : how much every row counts; None counts all alike.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        labels, weights = _texts(np.asarray(y)), self._weighted(X, y, sample_weight)
        return self._fit(X, labels, weights, "multiclass" if len(np.unique(labels)) > 2 else "binary")

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go once over these rows, from where the parties are; the step does not fall.

        Parameters
        ----------
        X, y, sample_weight : as of `fit`. Scaling is learned from the first call's rows.
        classes : all classes there are; needed in the first call, if its rows do not have them all.
        """
        first = not hasattr(self, "models_")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=first)
        check_classification_targets(y)
        labels = _texts(np.asarray(y))
        if first:
            known = np.unique(labels if classes is None else _texts(np.asarray(classes)))
            self.code_ = fit_labels("multiclass" if len(known) > 2 else "binary", known, None)
        elif classes is not None and not np.array_equal(np.unique(_texts(np.asarray(classes))), self.classes_):
            raise ValueError("classes differ from those of the first partial_fit; leave them out, or fit anew")
        if not np.isin(labels, self.classes_).all():
            raise LabelError("y has a class that was not there in the first partial_fit; give it all in `classes`")
        return self._partial_fit(X, labels, self._weighted(X, y, sample_weight))

    def _weighted(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """The rows' weights times those of their classes."""
        weights = self._checked_weights(X, sample_weight)
        if self.class_weight is None:
            return weights
        of_class: NDArray[np.float64] = compute_sample_weight(self.class_weight, np.asarray(y))
        return weights * of_class

    @property
    def classes_(self) -> NDArray[np.generic]:
        """The classes, sorted; columns of `predict_proba` are in this order."""
        check_is_fitted(self, "code_")
        classes = self.code_.classes
        return np.zeros(0) if classes is None else classes

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Of linear parties: the weight of every feature in the joint score, `(1 or classes, features)`."""
        return self._weights()[0].T

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Of linear parties: the joint score of a row of zeros."""
        return self._weights()[1]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The joint score: one column per class, or one number per row for two classes."""
        score = self._score(X).astype(np.float64)
        return score[:, 0] if len(self.classes_) == 2 else score

    def predict(self, X: Any) -> NDArray[np.generic]:
        """The most likely class of each row."""
        score = self.decision_function(X)
        chosen: NDArray[np.generic] = self.classes_[
            score.argmax(axis=1) if score.ndim == 2 else (score > 0).astype(int)
        ]
        return chosen

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class."""
        check_is_fitted(self)
        link: Logistic | Softmax = loss_named(self._loss)  # type: ignore[assignment]
        return link.probability(self._score(X))


@documented
class FeatureDistributedRegressor(RegressorMixin, FeatureDistributed):  # type: ignore[misc]
    """One target; `loss` is "squared", "poisson" for counts and rates, or "quantile" for the quantile `quantile`."""

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train all parties jointly.

        Parameters
        ----------
        X : rows and columns of numbers: an array, a sparse matrix, or a pandas, polars or Arrow frame.
        y : the target of every row.
        sample_weight : how much every row counts; None counts all alike.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        return self._fit(X, np.asarray(y), self._weighted(X, sample_weight), "regression")

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Go once over these rows, from where the parties are; the step does not fall.

        Parameters
        ----------
        X, y, sample_weight : as of `fit`. The scaling of features and target is learned from the first call's rows.
        """
        first = not hasattr(self, "models_")
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True, reset=first
        )
        weights = self._weighted(X, sample_weight)
        if first:
            self.code_ = fit_labels("regression", np.asarray(y), weights, self._link("regression"))
        return self._partial_fit(X, np.asarray(y), weights)

    def _weighted(self, X: Any, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        if self.class_weight is not None:
            raise SettingsError("class_weight is for classes, and a regression has none; leave it out")
        return self._checked_weights(X, sample_weight)

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Of linear parties: the weight of every feature in the prediction (by Poisson in its logarithm)."""
        return self._weights()[0][:, 0]

    @property
    def intercept_(self) -> float:
        """Of linear parties: the prediction of a row of zeros, by Poisson its logarithm."""
        return float(self._weights()[1][0])

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of each row."""
        score = self._score(X)
        return self.code_.inverse_transform(score)


def _texts(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels of mixed or text objects as text."""
    return labels.astype(str) if labels.dtype.kind == "O" else labels
