"""Every check of what a party stores, on its own."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fdml.align.sealed_metrics import seal_metrics
from fdml.errors import InvariantBroken
from fdml.events import Evaluated
from fdml.party.checkpoint import Checkpoint, Progress
from fdml.privacy.statement import Spent, Statement
from fdml.protocol.messages import Gradient, HeldOutPredictions, Metrics, Push, Release, SealedMetrics
from simulator.party_invariants import PartyChecker, SentMessages
from simulator.reference import alignment_of
from simulator.scenarios import Scenario

RELEASE = Release(np.zeros(1, np.int64))


def drawn(fits):
    scenarios = (Scenario.draw(Random(seed)) for seed in range(2000))
    return next(scenario for scenario in scenarios if fits(scenario))


def each_epoch(scenario):
    return scenario.settings.evaluation.every == "epoch" and scenario.schedule.epochs > 1


@pytest.fixture(scope="module")
def shared_labels():
    return drawn(lambda each: each_epoch(each) and each.gradient_party is None and each.has_ids)


@pytest.fixture(scope="module")
def private_labels():
    return drawn(lambda each: each_epoch(each) and each.gradient_party is not None)


@pytest.fixture
def messages():
    return SentMessages()


def checkpoint(step, *unacknowledged, pending=()):
    progress = Progress(0.0, dict.fromkeys(pending, (0.0, 0.0)), 0)
    return Checkpoint({}, step, {}, progress, unacknowledged)


def other_party(scenario):
    return next(name for name in scenario.settings.parties if name != scenario.settings.label_party)


def test_held_out_predictions_must_be_in_the_checkpoint_or_at_the_server(shared_labels, messages):
    checker, party = PartyChecker(shared_labels, messages), other_party(shared_labels)
    last = shared_labels.schedule.blocks - 1
    predictions = HeldOutPredictions(1, RELEASE)
    with pytest.raises(InvariantBroken, match="leaves out the HeldOutPredictions of 1"):
        checker.saved(party, checkpoint(last))
    checker.saved(party, checkpoint(last, predictions))
    messages.store(party, [predictions])
    checker.saved(party, checkpoint(last))


def test_before_an_epoch_has_ended_nothing_of_it_is_missed(shared_labels, messages):
    checker = PartyChecker(shared_labels, messages)
    for step in range(-1, shared_labels.schedule.blocks - 1):
        checker.saved(other_party(shared_labels), checkpoint(step))


def test_an_epoch_is_pending_at_the_label_party_or_its_metrics_are_kept(shared_labels, messages):
    checker, party = PartyChecker(shared_labels, messages), shared_labels.settings.label_party
    last, predictions = shared_labels.schedule.blocks - 1, HeldOutPredictions(1, RELEASE)
    checker.saved(party, checkpoint(last, predictions, pending=[1]))
    checker.saved(party, checkpoint(last, predictions, SealedMetrics(1)))
    with pytest.raises(InvariantBroken, match="leaves out the SealedMetrics of 1"):
        checker.saved(party, checkpoint(last, predictions))


def test_every_gradient_must_be_in_the_checkpoint_or_at_the_server(private_labels, messages):
    checker, party = PartyChecker(private_labels, messages), private_labels.settings.label_party
    if private_labels.schedule.blocks == 1:
        messages.store(party, [HeldOutPredictions(1, RELEASE), SealedMetrics(1)])
    checker.saved(party, checkpoint(0, Gradient(0, RELEASE)))
    with pytest.raises(InvariantBroken, match="leaves out the Gradient of 0"):
        checker.saved(party, checkpoint(0))
    checker.saved(other_party(private_labels), checkpoint(-1))


@pytest.mark.parametrize("message", [Gradient(3, RELEASE), HeldOutPredictions(3, RELEASE), SealedMetrics(3)])
def test_a_result_may_only_be_noted_when_the_server_has_everything(shared_labels, messages, message):
    checker = PartyChecker(shared_labels, messages)
    messages.post("a", message)
    with pytest.raises(InvariantBroken, match=f"stored its {type(message).__name__} of 3"):
        checker.noted("a")
    checker.noted("b")
    messages.store("a", [message])
    checker.noted("a")


def test_a_push_was_answered_or_is_pushed_again_so_it_may_be_unacknowledged(shared_labels, messages):
    messages.post("a", Push(3, RELEASE))
    PartyChecker(shared_labels, messages).noted("a")


def statement(evaluations):
    spent = (Spent("training rows", 1, None, 1e-5, ""), Spent("held-out rows", evaluations, None, 1e-5, ""))
    return Statement("run", "a", False, spent, ())


def test_an_evaluation_is_counted_once_however_often_it_was_sent(shared_labels, messages):
    checker = PartyChecker(shared_labels, messages)
    for epoch in (1, 2, 2):
        messages.post("a", HeldOutPredictions(epoch, RELEASE))
    checker.stated("a", statement(2))
    for wrong in (1, 3):
        with pytest.raises(InvariantBroken, match=f"counted {wrong} evaluations and made 2"):
            checker.stated("a", statement(wrong))


def test_metrics_may_come_again_after_another_time_but_not_with_other_figures(shared_labels, messages):
    checker = PartyChecker(shared_labels, messages)
    with pytest.raises(InvariantBroken, match="before any party had stored its alignment"):
        checker.scored(SealedMetrics(1, b"s" * 60))
    party, shared = next(iter(alignment_of(shared_labels).items()))
    checker.aligned(party, shared)
    checker.scored(seal_metrics(shared.key, Metrics(1, 1.0, 0.5, 0.6, 0.7)))
    checker.scored(seal_metrics(shared.key, Metrics(1, 9.0, 0.5, 0.6, 0.7)))
    assert checker.metrics[1].seconds == 1.0
    with pytest.raises(InvariantBroken, match="epoch 1 was scored twice, differently"):
        checker.scored(seal_metrics(shared.key, Metrics(1, 1.0, 0.5, 0.6, 0.8)))


def test_all_parties_must_align_to_the_same_rows_in_the_same_order(shared_labels, messages):
    found = alignment_of(shared_labels)
    checker = PartyChecker(shared_labels, messages)
    for party, shared in found.items():
        checker.aligned(party, shared)
    party, shared = next(iter(found.items()))
    with pytest.raises(InvariantBroken, match="have aligned to different rows"):
        checker.aligned(party, replace(shared, digest=bytes(32)))


def test_rows_in_another_order_are_not_the_same_rows(shared_labels, messages):
    found = alignment_of(shared_labels)
    checker = PartyChecker(shared_labels, messages)
    (first, shared), (second, others) = list(found.items())[:2]
    checker.aligned(first, shared)
    with pytest.raises(InvariantBroken, match=r"in different orders \(train\)"):
        checker.aligned(second, replace(others, train=np.roll(others.train, 1)))


def test_a_bundle_must_tell_of_the_epoch_whose_model_stays(shared_labels, messages):
    checker, label_party = PartyChecker(shared_labels, messages), shared_labels.settings.label_party
    evaluated = Evaluated(label_party, 1, 0.0, 0.5, 0.5, 0.7)
    checker.bundled(other_party(shared_labels), None)
    checker.bundled(label_party, None)
    with pytest.raises(InvariantBroken, match="tells of epoch 1, and its model is of epoch 0"):
        checker.bundled(label_party, evaluated)
    checker.chose(label_party, 1)
    checker.bundled(label_party, evaluated)
    with pytest.raises(InvariantBroken, match="tells of epoch 2, and its model is of epoch 1"):
        checker.bundled(label_party, replace(evaluated, epoch=2))
