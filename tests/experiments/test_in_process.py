from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, span
from fdml.errors import DataError, MessageRefused, PeerTimeout, SettingsError, TrainingDiverged
from fdml.events import EpochDone, StepDone
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import mean_loss
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, joint_score
from fdml.settings import TrainingSettings


def sample_of(rows=600, features=12, parties=3, seed=0):
    X, y = make_classification(rows, features, n_informative=features, n_redundant=0, random_state=seed)
    cut = np.array_split(np.arange(features), parties)
    parts = {f"p{at}": as_rows(X[:, columns]) for at, columns in enumerate(cut)}
    return RowSet(parts, y.astype(float), np.ones(rows))


def plan_of(sample, models=None, **training):
    models = models or {name: model_settings() for name in sample.parts}
    settings = TrainingSettings(**{"learning_rate": "auto", "epochs": 10, **training})
    return Plan(settings, models, "p0", "logistic", 2)


def small_net(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))


def accuracy(outcome, sample):
    return np.mean((outcome.score(sample.parts)[:, 0] > 0) == sample.labels)


def test_a_mix_of_linear_fm_mlp_and_torch_parties_trains_in_one_run():
    torch.manual_seed(0)
    sample = sample_of(parties=4)
    kinds = {
        "p0": model_settings("linear"),
        "p1": model_settings("fm", factors=4),
        "p2": model_settings("mlp", hidden=(16,)),
        "p3": model_settings("torch", module=small_net, optimizer="adam"),
    }
    plan = plan_of(sample, kinds, epochs=40)
    outcome = train_in_process(plan, sample)
    assert accuracy(outcome, sample) > 0.75
    for name in sample.parts:
        others = {other: model for other, model in outcome.models.items() if other != name}
        without = mean_loss("logistic", joint_score(others, sample.parts, plan.objective), sample)
        assert without > mean_loss("logistic", outcome.score(sample.parts), sample), f"{name} adds nothing"


def test_listeners_get_every_step_and_epoch_of_every_party():
    sample, events = sample_of(), []
    train_in_process(plan_of(sample, epochs=2, batches_per_block=2), sample, on_event=events.append)
    assert len([event for event in events if isinstance(event, StepDone)]) == 3 * 2 * 3
    assert sorted((e.party, e.epoch) for e in events if isinstance(e, EpochDone)) == [
        (f"p{party}", epoch) for party in range(3) for epoch in (1, 2)
    ]


def test_a_run_continued_from_its_states_goes_on_learning():
    sample = sample_of()
    first = train_in_process(plan_of(sample, epochs=1), sample)
    states = {name: model.state() for name, model in first.models.items()}
    second = train_in_process(plan_of(sample, epochs=5), sample, start=states)
    assert accuracy(second, sample) >= accuracy(first, sample)
    fresh = train_in_process(plan_of(sample, epochs=5), sample)
    assert not np.array_equal(second.models["p0"].parameters, fresh.models["p0"].parameters)


def test_a_label_party_without_features_brings_only_its_bias():
    sample = sample_of()
    parts = {"p0": as_rows(np.zeros((600, 0))), **{name: sample.parts[name] for name in ("p1", "p2")}}
    without = RowSet(parts, sample.labels, sample.weights)
    outcome = train_in_process(plan_of(without), without)
    assert outcome.models["p0"].parameters.shape == (1,)
    assert accuracy(outcome, without) > 0.7


def test_one_party_that_fails_stops_the_others_and_its_own_error_is_raised():
    sample = sample_of()
    wild = {name: model_settings() for name in sample.parts}
    wild["p1"] = model_settings(learning_rate=1e9, l2=0.0)
    with pytest.raises(TrainingDiverged, match="lower learning_rate"):
        train_in_process(plan_of(sample, wild, epochs=50, peer_timeout_seconds=30), sample)


class Sleepy(torch.nn.Linear):
    """A party that takes its time."""

    def forward(self, features):
        if len(features):
            time.sleep(0.5)
        return super().forward(features)


def test_a_silent_party_is_named_when_the_peer_timeout_ends():
    sample = sample_of()
    kinds = {**{n: model_settings() for n in ("p0", "p1")}, "p2": model_settings("torch", module=Sleepy)}
    training = TrainingSettings(peer_timeout_seconds=0.2, learning_rate="auto", batches_per_block=2)
    with pytest.raises(PeerTimeout, match=r"waited 0.2 s at step \d+ for 'p2'.*training.peer_timeout_seconds"):
        train_in_process(Plan(training, kinds, "p0", "logistic", 2), sample)


def test_a_step_size_that_l2_would_turn_round_is_refused():
    sample = sample_of()
    with pytest.raises(SettingsError, match=r"learning_rate 2 times l2 0.6 must be below 1"):
        train_in_process(plan_of(sample, {n: model_settings(l2=0.6) for n in sample.parts}, learning_rate=2.0), sample)


def test_no_rows_is_an_error():
    sample = sample_of()
    nothing = RowSet({n: span(r, 0, 0) for n, r in sample.parts.items()}, sample.labels[:0], sample.weights[:0])
    with pytest.raises(MessageRefused, match="party 'p0' has no rows to train on"):
        train_in_process(plan_of(nothing, learning_rate=0.1), nothing)


def test_states_of_another_model_are_refused():
    sample = sample_of()
    states = {"p0": train_in_process(plan_of(sample), sample).models["p1"].state()}
    with pytest.raises(DataError, match="another model"):
        train_in_process(plan_of(sample, {n: model_settings("fm") for n in sample.parts}), sample, start=states)
