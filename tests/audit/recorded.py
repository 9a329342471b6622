"""Small recorded runs for the attacks to work on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from sklearn.datasets import load_breast_cancer

from fdml.audit.recording import Recording
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, columns
from fdml.experiments.paper import a9a_dataset
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import GuardSettings, ModelSettings, PrivacySettings, TrainingSettings
from tests.audit.in_process_recording import record_in_process

NOISE = GuardSettings(clip=2, noise="gaussian", sigma=8)
ROWS = 2000


def recorded(
    parts: dict[str, np.ndarray],
    labels: np.ndarray,
    training: TrainingSettings,
    guard: GuardSettings | None = None,
    privacy: PrivacySettings | None = None,
    model: ModelSettings | None = None,
) -> Recording:
    """A run over these features, labels at the first party; every party has the same guard and kind of model."""
    names = list(parts)
    plan = Plan(
        training,
        dict.fromkeys(names, model or model_settings(optimizer="sgd", l2=1e-4)),
        names[0],
        "logistic",
        2,
        guards={} if guard is None else dict.fromkeys(names, guard),
    )
    rows = {name: as_rows(values) for name, values in parts.items()}
    return record_in_process(plan, RowSet(rows, labels, np.ones(len(labels))), privacy=privacy)


@lru_cache(maxsize=4)
def breast_cancer(guard: GuardSettings | None = None, privacy: PrivacySettings | None = None) -> Recording:
    """569 rows, 15 numeric features at each of two parties, mini-batches of 32, 20 epochs."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[order]
    training = TrainingSettings(epochs=20, batch_size=32, batches_per_block=1, lookahead=0, learning_rate=0.5)
    return recorded({"a": X[:, :15], "b": X[:, 15:]}, y[order].astype(float), training, guard, privacy)


@lru_cache(maxsize=4)
def adult(guard: GuardSettings | None = None, parties: int = 2) -> Recording:
    """2000 rows of a9a, binary features only, settings as in a usual run."""
    sample = a9a_dataset().shuffled(7).train.take(np.arange(ROWS))
    parts = dict(sample.parts)
    if parties == 3:
        last = parts.pop("party-1")
        parts |= {"party-1": columns(last, np.arange(28)), "party-2": columns(last, np.arange(28, 56))}
    model = model_settings(optimizer="sgd", l2=3e-4)
    names = list(parts)
    guards = {} if guard is None else dict.fromkeys(names, guard)
    plan = Plan(
        TrainingSettings(epochs=20, batch_size=100, batches_per_block=4, learning_rate=0.5),
        dict.fromkeys(names, model),
        names[0],
        "logistic",
        2,
        guards=guards,
    )
    return record_in_process(plan, RowSet(parts, sample.labels, sample.weights))


def small(parties: str, widths: dict[str, int] | None = None, **settings: object) -> Recording:
    """A quick run of these parties over 24 rows, two features each or as many as given."""
    chance = np.random.default_rng(1)
    widths = widths or dict.fromkeys(parties, 2)
    parts = {name: chance.normal(size=(24, widths[name])) for name in parties}
    labels = (sum(values.sum(axis=1) for values in parts.values()) > 0).astype(float)
    training = TrainingSettings(epochs=2, batch_size=6, batches_per_block=2, learning_rate=0.2)
    return recorded(parts, labels, training, **settings)


def evaluated(held_out: int = 50, epochs: int = 20, seed: int = 3, **settings: object) -> Recording:
    """A run of two parties with so many held-out rows, evaluated after every epoch; labels cannot be told for sure."""
    chance = np.random.default_rng(seed)
    values = chance.normal(size=(200 + held_out, 4)).astype(np.float32)
    labels = (values.sum(axis=1) + 2.0 * chance.normal(size=len(values)) > 1.0).astype(float)

    def sample(rows: slice) -> RowSet:
        parts = {"a": as_rows(values[rows, :2]), "b": as_rows(values[rows, 2:])}
        return RowSet(parts, labels[rows], np.ones(len(labels[rows])))

    guard = settings.pop("guard", None)
    plan = Plan(
        TrainingSettings(epochs=epochs, batch_size=20, batches_per_block=2, learning_rate=0.1),
        dict.fromkeys("ab", model_settings(optimizer="sgd", l2=1e-4)),
        "a",
        "logistic",
        2,
        guards={} if guard is None else dict.fromkeys("ab", guard),
    )
    return record_in_process(plan, sample(slice(held_out, None)), sample(slice(held_out)), **settings)
