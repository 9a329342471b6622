"""Parties that learn from gradients of private labels."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.party.loop import Worker
from fdml.privacy.guard import Guard
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Gradient, Push, Total
from fdml.protocol.schedule import schedule_for
from tests.party.workers import CLASSES, DELTA, PRECISE, ROWS, Group, Recorder, masked, task_of


@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("kind", PRECISE)
@pytest.mark.parametrize(("gradient_party", "blind"), [("store", False), ("browser", True)])
@pytest.mark.parametrize(("lookahead", "passes"), [(0, 1), (1, 2)])
def test_a_party_given_gradients_learns_what_it_would_from_shared_labels(
    loss, kind, gradient_party, blind, lookahead, passes
):
    chosen = {"blind": blind, "lookahead": lookahead, "passes": passes}
    shared = Group(loss, PRECISE[kind], **chosen)
    private = Group(loss, PRECISE[kind], gradient_party=gradient_party, **chosen)
    begin = {name: worker.parameters() for name, worker in private.workers.items()}
    expected, found = shared.train(), private.train()
    for name in shared.names:
        for part, array in expected[name].items():
            np.testing.assert_allclose(found[name][part], array, rtol=0, atol=1e-6, err_msg=f"{name} {part}")
        moved = [np.abs(found[name][part] - begin[name][part]).max() for part in found[name] if found[name][part].size]
        assert max(moved) > 0.01, "it learned something at all"
    assert {kind for to, kind in private.seen if to == gradient_party} == {Total}
    assert {kind for to, kind in private.seen if to != gradient_party} == {Gradient}


def test_only_the_label_party_sends_gradients_one_for_each_step_before_it_learns():
    group = Group("logistic", PRECISE["linear"], gradient_party="store", lookahead=0)
    for worker in group.workers.values():
        for push in worker.first_messages():
            replies = group.coordinator.handle(worker.party, push)
    (reply,) = replies
    gradient_party = group.workers["store"]
    before = gradient_party.parameters()
    messages = gradient_party.learn(reply.message)
    first = next(messages)
    assert isinstance(first, Gradient)
    np.testing.assert_equal(gradient_party.parameters(), before)
    assert [type(message) for message in messages] == [Push]


def test_a_party_given_gradients_puts_its_own_part_back_as_it_is():
    """Under noise the label party saw another value of it."""
    recorder = Recorder()
    schedule = schedule_for(ROWS, 2, 2, 1, 1, 7)
    task = replace(task_of(schedule, 0), objective=objective_for("logistic", 2), gradient_party="browser")
    parties = ("store", "browser")
    masks = Masks(bytes(range(32)), parties, "store", 3)
    blur = Mechanism("gaussian", 100.0, 0.5)
    guard = Guard(Perturbation(blur, NoiseKey(b"k" * 32)), Ledger(blur, None, DELTA, None), masks=masks)
    worker = Worker(recorder, task, guard)
    (push,) = worker.first_messages()
    labels = np.array([1.0, 0.0, 1.0, 0.0])[: schedule.visit(0).size]
    others = np.linspace(-1, 1, len(labels)).reshape(-1, 1)
    seen = others + decode(push.release.values)
    gradient = masked(parties, "browser", 8, blind=False).gradient(0, LOSSES["logistic"].gradient(seen, labels))
    list(worker.learn(gradient))
    ((_, signal),) = recorder.updates
    assert np.abs(seen - others - 0.1).max() > 0.1
    np.testing.assert_allclose(signal.scores.total, others + 0.1, atol=1e-7)
    np.testing.assert_array_equal(signal.scores.labels, labels)
