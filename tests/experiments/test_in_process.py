from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from fdml.align.sealed_metrics import open_metrics
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, span
from fdml.errors import DataError, MessageRefused, PeerTimeout, SettingsError, TrainingDiverged
from fdml.events import EpochDone, Remark, StepDone
from fdml.experiments.in_memory import KEY
from fdml.experiments.in_process import train_in_process
from fdml.models.calibration import IDENTITY
from fdml.models.metrics import mean_loss, metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, joint_score
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Finished, Gradient, HeldOutPredictions, Hello, Push, SealedMetrics
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings


def sample_of(rows=600, features=12, parties=3, seed=0):
    X, y = make_classification(rows, features, n_informative=features, n_redundant=0, random_state=seed)
    cut = np.array_split(np.arange(features), parties)
    parts = {f"p{at}": as_rows(X[:, columns]) for at, columns in enumerate(cut)}
    return RowSet(parts, y.astype(float), np.ones(rows))


def plan_of(sample, models=None, **training):
    models = models or {name: model_settings() for name in sample.parts}
    settings = TrainingSettings(**{"epochs": 10, "batch_size": 100, **training})
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


@pytest.mark.slow
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


# Evaluation, through the same conversation as in a run of processes


def split_of(held_out=150, **options):
    sample = sample_of(**options)
    cut = len(sample) - held_out
    return sample.take(np.arange(cut)), sample.take(np.arange(cut, len(sample)))


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
def test_the_figures_found_in_the_run_are_those_of_the_exact_models(kind):
    train, test = split_of()
    models = dict.fromkeys(train.parts, model_settings(kind))
    result = train_in_process(plan_of(train, models, epochs=3), train, held_out=test, keep_epochs=True)
    assert sorted(result.evaluations) == [1, 2, 3]
    for snapshot in result.snapshots:
        for name, state in snapshot.states.items():
            result.models[name].restore(state)
        score, found = result.score(test.parts), result.evaluations[snapshot.epoch]
        assert found.party == "p0"
        assert found.test_loss == pytest.approx(mean_loss("logistic", score, test), abs=1e-6)
        assert found.test_metric == pytest.approx(metric("binary", score, test), abs=1e-6)


def test_the_training_loss_found_in_the_run_falls():
    train, test = split_of()
    result = train_in_process(plan_of(train, epochs=4), train, held_out=test)
    losses = [result.evaluations[epoch].train_loss for epoch in (1, 2, 3, 4)]
    assert losses == sorted(losses, reverse=True)


def test_without_held_out_rows_nothing_is_evaluated():
    sample = sample_of()
    assert train_in_process(plan_of(sample, epochs=2), sample).evaluations == {}


def test_over_private_labels_the_label_party_evaluates_and_the_server_is_not_told():
    train, test = split_of()
    plan = plan_of(train, epochs=2, learning_rate=0.1)
    messages = []
    result = train_in_process(
        plan,
        train,
        held_out=test,
        privacy=PrivacySettings(labels="private"),
        tap=lambda party, message: messages.append((party, message)),
    )
    assert all(found.test_loss is not None for found in result.evaluations.values())
    metrics = [message for _, message in messages if isinstance(message, SealedMetrics)]
    assert metrics == [SealedMetrics(1), SealedMetrics(2)]
    assert {party for party, message in messages if isinstance(message, Gradient)} == {"p0"}


def test_few_exchanges_give_a_calibration_that_the_last_figures_are_of():
    train, test = split_of()
    result = train_in_process(plan_of(train, epochs=6, exchanges=2), train, held_out=test)
    assert result.calibration is not IDENTITY
    last = result.evaluations[max(result.evaluations)]
    assert last.test_loss == pytest.approx(mean_loss("logistic", result.score(test.parts), test), abs=1e-6)


def test_where_only_the_label_party_is_noisy_the_loss_is_that_of_what_was_released():
    """Finding 7: scale and offset were fitted to its exact predictions, and told the server 15.62 instead of 12.61."""
    train, test = split_of()
    plan = replace(
        plan_of(train, epochs=6, exchanges=1), guards={"p0": GuardSettings(clip=3, noise="gaussian", sigma=4)}
    )
    messages = []
    result = train_in_process(plan, train, held_out=test, tap=lambda _, message: messages.append(message))
    assert result.calibration is IDENTITY
    last = max(result.evaluations)
    released = sum(
        decode(each.release.values).reshape(-1, 1)
        for each in messages
        if isinstance(each, HeldOutPredictions) and each.epoch == last
    )
    (told,) = [open_metrics(KEY, each) for each in messages if isinstance(each, SealedMetrics) and each.epoch == last]
    assert told.test_loss == result.evaluations[last].test_loss
    assert told.test_loss == pytest.approx(mean_loss("logistic", released, test), abs=1e-12)


def test_where_the_score_is_recalibrated_others_are_told_of_the_score_as_released():
    """Finding 7: a calibration is made of predictions that never left."""
    train, test = split_of()
    messages = []
    result = train_in_process(
        plan_of(train, epochs=6, exchanges=2), train, held_out=test, tap=lambda _, message: messages.append(message)
    )
    last = max(result.evaluations)
    (told,) = [open_metrics(KEY, each) for each in messages if isinstance(each, SealedMetrics) and each.epoch == last]
    uncalibrated = joint_score(result.models, test.parts, result.objective)
    assert told.test_loss == pytest.approx(mean_loss("logistic", uncalibrated, test), abs=1e-6)
    assert told.test_loss != result.evaluations[last].test_loss


# In turns


def bits(result):
    return {name: array.tobytes() for each in result.models.values() for name, array in each.state().items()}


@pytest.mark.parametrize(
    "chosen",
    [{}, {"lookahead": 3, "passes": 2}, {"exchanges": 2, "epochs": 5}, {"batches_per_block": 1, "lookahead": 0}],
)
def test_at_staleness_0_parties_that_take_turns_train_as_threads_do(chosen):
    train, test = split_of(rows=300)
    plan = plan_of(train, **{"epochs": 3, **chosen})
    threads, turns = (train_in_process(plan, train, held_out=test, in_turns=each) for each in (False, True))
    assert bits(threads) == bits(turns)
    figures = [
        [(each.epoch, each.train_loss, each.test_loss, each.test_metric) for each in result.evaluations.values()]
        for result in (threads, turns)
    ]
    assert figures[0] == figures[1]


def test_in_turns_a_stale_run_can_be_repeated():
    sample = sample_of(rows=300)
    plan = plan_of(sample, epochs=3, staleness=3, lookahead=2)
    first, second = (train_in_process(plan, sample, in_turns=True) for _ in range(2))
    assert bits(first) == bits(second)
    assert first.lags == second.lags


def test_noise_from_the_seed_can_be_repeated_and_is_counted():
    sample = sample_of(rows=300)
    plan = replace(plan_of(sample, epochs=2), guards={"p1": GuardSettings(clip=2.0, noise="gaussian", sigma=1.0)})
    first, second = (train_in_process(plan, sample) for _ in range(2))
    assert bits(first) == bits(second)
    assert first.ledgers["p1"].releases("block 0") == 2
    assert bits(first) != bits(train_in_process(plan_of(sample, epochs=2), sample))


def test_a_blind_server_changes_nothing_but_what_it_sees():
    sample, seen = sample_of(rows=300), {}
    plan, results = plan_of(sample, epochs=2), []
    for server in ("plain", "blind"):
        pushes = seen.setdefault(server, [])
        results.append(
            train_in_process(
                plan,
                sample,
                privacy=PrivacySettings(server=server),
                in_turns=True,
                tap=lambda party, message, to=pushes: to.append(message) if isinstance(message, Push) else None,
            )
        )
    assert bits(results[0]) == bits(results[1])
    plain, blind = (np.concatenate([push.release.values.ravel() for push in seen[each]]) for each in seen)
    assert not (plain == blind).any()
    assert np.abs(plain).max() < 2**50 < np.abs(blind).max(), "a masked value may be anything"


def test_the_tap_sees_all_that_the_server_acts_on_in_order():
    sample, messages = sample_of(rows=300), []
    plan = plan_of(sample, epochs=1, batches_per_block=2)
    train_in_process(plan, sample, in_turns=True, tap=lambda party, message: messages.append((party, message)))
    for party in sample.parts:
        kinds = [type(message) for sender, message in messages if sender == party]
        assert kinds[0] is Hello
        assert kinds[-1] is Finished
        assert [message.step for sender, message in messages if sender == party and isinstance(message, Push)] == [0, 1]


def test_a_party_that_fails_in_its_turn_raises_its_own_error():
    sample = sample_of()
    wild = {**{n: model_settings() for n in sample.parts}, "p1": model_settings(learning_rate=1e9, l2=0.0)}
    with pytest.raises(TrainingDiverged, match="lower learning_rate"):
        train_in_process(plan_of(sample, wild, epochs=50), sample, in_turns=True)


def overfitting(stop_after, rows=400, **options):
    """A training whose held-out loss soon rises: few rows, many features, no penalty."""
    sample = sample_of(rows=rows, features=60, parties=2, seed=3)
    noisy = replace(
        sample, labels=np.where(np.random.default_rng(1).random(rows) < 0.3, 1 - sample.labels, sample.labels)
    )
    models = {name: model_settings(l2=0.0) for name in sample.parts}
    plan = plan_of(
        noisy, models, epochs=30, batch_size=10, batches_per_block=4, learning_rate=0.02, lr_decay="constant"
    )
    train, test = noisy.take(np.arange(rows // 2)), noisy.take(np.arange(rows // 2, rows))
    return train_in_process(plan, train, held_out=test, stop_after=stop_after, **options), test


def test_training_that_gains_nothing_ends_and_gives_the_models_of_the_best_epoch():
    outcome, test = overfitting(3)
    losses = {epoch: each.test_loss for epoch, each in outcome.evaluations.items()}
    assert outcome.best_epoch == min(losses, key=losses.get) == max(losses) - 3 < 27
    assert mean_loss("logistic", outcome.score(test.parts), test) == pytest.approx(losses[outcome.best_epoch], abs=1e-6)
    assert mean_loss("logistic", overfitting(None)[0].score(test.parts), test) > losses[outcome.best_epoch]


def test_threads_and_turns_stop_at_the_same_step_and_keep_the_same_bits():
    (threads, _), (turns, _) = overfitting(2), overfitting(2, in_turns=True)
    assert threads.best_epoch == turns.best_epoch
    assert threads.coordinator.end == turns.coordinator.end
    for name, model in threads.models.items():
        for key, array in model.state().items():
            assert array.tobytes() == turns.models[name].state()[key].tobytes()


def test_stopping_without_held_out_rows_is_refused():
    sample = sample_of(rows=40)
    with pytest.raises(SettingsError, match="stop_after needs held-out rows to decide by, and there are none"):
        train_in_process(plan_of(sample), sample, stop_after=2)


def test_held_out_rows_of_one_class_do_not_end_a_run_and_are_said_once():
    sample, said = sample_of(rows=60), []
    test = sample.take(np.flatnonzero(sample.labels == 1)[:5])
    outcome = train_in_process(plan_of(sample, epochs=3), sample, held_out=test, on_event=said.append)
    assert [each.test_metric for each in outcome.evaluations.values()] == [None] * 3
    assert all(each.figures["accuracy"] is not None for each in outcome.evaluations.values())
    remarks = [event.text for event in said if isinstance(event, Remark) and "not defined" in event.text]
    assert len(remarks) == 1


def test_a_training_that_goes_astray_or_is_too_short_says_so():
    sample = sample_of(rows=400)
    test, options = sample.take(np.arange(50)), {"batch_size": 10, "batches_per_block": 4}
    calm = train_in_process(plan_of(sample, epochs=20, **options), sample, held_out=test).convergence
    short = train_in_process(
        plan_of(sample, epochs=4, **options, learning_rate=0.003), sample, held_out=test
    ).convergence
    wild = train_in_process(
        plan_of(sample, epochs=4, **options, learning_rate=30.0, lr_decay="constant"), sample, held_out=test
    ).convergence
    assert (calm.trend, short.trend) == ("converged", "falling")
    assert wild.trend in ("diverged", "falling") or wild.text == ""
