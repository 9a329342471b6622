"""Bugs put into the sessions' own order of work. Each must be found, by the check that is meant for it."""

import pytest

from fdml.party.checkpoint import Progress
from fdml.party.effects import Emit, Flush, SaveCheckpoint, SaveResult, Send
from fdml.party.evaluation import Evaluation
from fdml.party.session import PartySession
from fdml.protocol.messages import Checkpointed
from fdml.server.session import Commit, ServerSession
from simulator.party_invariants import PartyChecker
from tests.simulator.planted import found


def result_before_flush(work):
    """Note the result first, then wait until the server has everything."""

    def finish(self, *arguments):
        flushes = []
        effects = work(self, *arguments)
        while True:
            try:
                effect = next(effects)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Flush) and not flushes:
                flushes.append(effect)
                continue
            yield effect
            if isinstance(effect, SaveResult) and len(flushes) == 1:
                yield flushes[0]
                flushes.append(effect)

    return finish


def checkpoint_before_messages(work):
    """Hold back what a step sends, its pushes too, until its checkpoint is saved."""

    def train(self, *arguments):
        held = []
        for effect in work(self, *arguments):
            if isinstance(effect, Emit) or (isinstance(effect, Send) and not isinstance(effect.message, Checkpointed)):
                held.append(effect)
                continue
            if not isinstance(effect, SaveCheckpoint):
                yield from held
                held.clear()
            yield effect
        yield from held

    return train


def answers_before_commit(answers):
    """Answer first, then make the log durable."""

    def reordered(self, replies):
        effects = answers(self, replies)
        return sorted(effects, key=lambda effect: isinstance(effect, Commit))

    return reordered


def evaluation_again_at_start(work):
    """A restarted party predicts the held-out rows of the epoch it had just ended again."""

    def train(self, worker, guard, held_out, facts):
        if worker.step and worker.ended_epoch and held_out.evaluation.each_epoch:
            yield from held_out.predict(worker.epoch, 0.0)
        yield from work(self, worker, guard, held_out, facts)

    return train


def test_a_result_noted_before_the_flush_is_found(monkeypatch):
    monkeypatch.setattr(PartySession, "_finish", result_before_flush(PartySession._finish))
    assert "noted its result before the server had stored its" in found(range(300))


def test_a_checkpoint_saved_before_the_messages_of_its_step_is_found(monkeypatch):
    monkeypatch.setattr(PartySession, "_train", checkpoint_before_messages(PartySession._train))
    assert "leaves out the" in found(range(300))


def test_an_acknowledgement_before_the_log_is_found(monkeypatch):
    monkeypatch.setattr(ServerSession, "_answers", answers_before_commit(ServerSession._answers))
    assert "the server forgot" in found(range(300))


def test_an_evaluation_sent_twice_after_a_restart_is_found(monkeypatch):
    monkeypatch.setattr(PartySession, "_train", evaluation_again_at_start(PartySession._train))
    message = found(range(300))
    assert "counted" in message
    assert "evaluations and made" in message


def test_an_evaluation_of_another_model_after_a_restart_is_found(monkeypatch):
    work = PartySession._train

    def train(self, worker, guard, held_out, facts):
        if worker.epoch > 0 and held_out.evaluation.each_epoch:
            yield Send(guard.held_out(worker.epoch, worker.predict_held_out()))
        yield from work(self, worker, guard, held_out, facts)

    monkeypatch.setattr(PartySession, "_train", train)
    assert "let go of two different values: held-out predictions" in found([62, *range(300)])


def test_metrics_made_again_from_other_figures_after_a_restart_are_found(monkeypatch):
    restored = Evaluation.__init__

    def forgetful(self, member, shared, labels, progress, *others):
        pending = {epoch: (seconds, 2.0 * loss) for epoch, (seconds, loss) in progress.pending.items()}
        wrong = Progress(progress.seconds, pending, progress.evaluations, progress.history)
        restored(self, member, shared, labels, wrong, *others)

    monkeypatch.setattr(Evaluation, "__init__", forgetful)
    message = found([582, *range(1200)])
    assert "was scored twice, differently" in message or "metrics are not those of a run without faults" in message


def test_figures_told_before_they_are_stored_are_found(monkeypatch):
    work = PartySession._save_now

    def hasty(self, worker, evaluation, facts, told=()):
        if not told:
            yield from work(self, worker, evaluation, facts)

    monkeypatch.setattr(PartySession, "_save_now", hasty)
    assert "tells of epoch" in found([196, *range(600)])


@pytest.mark.slow
def test_totals_given_up_before_the_state_was_saved_are_found(monkeypatch):
    work = PartySession._save

    def hasty(self, worker, guard, evaluation, facts):
        yield from work(self, worker, guard, evaluation, facts)
        if worker.step - 1 > self._safe:
            self._safe = worker.step - 1
            yield Send(Checkpointed(self._safe))

    monkeypatch.setattr(PartySession, "_save", hasty)
    found(range(200))


LOST = {
    "result before the flush": ("_finish", result_before_flush, [18, *range(3000)]),
    "checkpoint before the messages": ("_train", checkpoint_before_messages, [594, *range(600)]),
}


@pytest.mark.parametrize("bug", LOST)
def test_what_a_wrong_order_loses_is_missed_also_by_how_the_run_ends(monkeypatch, bug):
    """Without the checks at each save: a party waits for ever, or figures are missing."""
    method, planted, seeds = LOST[bug]
    monkeypatch.setattr(PartySession, method, planted(getattr(PartySession, method)))
    monkeypatch.setattr(PartyChecker, "saved", lambda self, party, checkpoint: None)
    monkeypatch.setattr(PartyChecker, "noted", lambda self, party: None)
    found(seeds)
