"""Bugs put into the rules of server, delivery and storage. Each must be found, by the check that is meant for it."""

import itertools
from dataclasses import replace
from random import Random

import pytest

from fdml.party.delivery import Delivery
from fdml.party.epoch_snapshots import EpochSnapshots
from fdml.party.loop import Worker
from fdml.party.outbox import Outbox
from fdml.privacy.differences import Differences
from fdml.protocol.messages import BestEpoch
from fdml.server import run_state
from fdml.server.clocks import Clocks
from fdml.server.coordinator import Coordinator
from fdml.server.evaluation import HeldOutSums
from fdml.server.run_state import RunState
from fdml.server.session import ServerSession
from fdml.storage.journal import Journal
from simulator.disk import VirtualDisk
from simulator.run import run_seed
from simulator.scenarios import Scenario
from tests.simulator.planted import found


def seeds_of(count, wanted):
    """So many seeds whose runs have settings as they are wanted: only such can meet a bug."""
    drawn = ((seed, Scenario.draw(Random(seed)).settings) for seed in itertools.count())
    return itertools.islice((seed for seed, run in drawn if wanted(run)), count)


def ends_early(run):
    return run.evaluation.stop_after is not None


def test_a_gate_that_is_off_by_one_is_found(monkeypatch):
    def may_serve(self, party):
        step = self.served[party] + 1
        return step <= self.pushed[party] and step - min(self.pushed) <= self._staleness + 1

    monkeypatch.setattr(Clocks, "may_serve", may_serve)
    assert "the gate let" in found(range(100))


def test_an_acknowledgement_without_a_log_is_found(monkeypatch):
    monkeypatch.setattr(Journal, "append", lambda self, records: None)
    assert "the server forgot" in found(range(100))


def test_a_log_that_goes_on_behind_a_failed_write_is_found(monkeypatch):
    """Chaos 1: what is acknowledged behind a torn group cannot be read again."""
    monkeypatch.setattr(Journal, "_cut_back", lambda self: None)
    monkeypatch.setattr(run_state, "check_log", lambda *, is_open: is_open)
    assert "full" in found([55, *range(300)])


def test_answers_that_a_failed_write_has_taken_along_are_found(monkeypatch):
    """A server that goes on behind it leaves a gap: a party waits for a total that nobody sends again."""
    monkeypatch.setattr(run_state, "check_log", lambda *, is_open: is_open)
    assert "nothing moves any more" in found([94, *range(600)])


@pytest.mark.slow
def test_releases_drawn_again_after_a_restart_are_found(monkeypatch):
    restore = Worker.restore

    def forgetful(self, arrays):
        restore(self, arrays)
        self._outbox = Outbox()
        self.pushed = self.step - 1

    monkeypatch.setattr(Worker, "restore", forgetful)
    assert "let go of two different values" in found([27, *range(200)])


def test_one_total_too_many_dropped_by_the_server_is_found(monkeypatch):
    forget = Coordinator._forget

    def greedy(self, sender, party, step):
        forget(self, sender, party, step)
        self._answers[party].pop(step + 1, None)

    monkeypatch.setattr(Coordinator, "_forget", greedy)
    assert "the server forgot the totals" in found(range(200))


def test_an_outbox_left_out_of_the_checkpoint_is_found(monkeypatch):
    monkeypatch.setattr(Outbox, "pending", property(lambda self: {}))
    text = found(range(200))
    assert "KeyError" in text or "nothing moves any more" in text


def test_an_outbox_not_sent_again_is_found(monkeypatch):
    monkeypatch.setattr(Worker, "first_messages", Worker._push_ahead)
    found([61, *range(300)])


def test_messages_not_sent_again_on_a_new_line_are_found(monkeypatch):
    connect = Delivery.connect
    monkeypatch.setattr(Delivery, "connect", lambda self: connect(self)[:1])
    found(range(100))


@pytest.mark.slow
def test_pushes_sent_again_after_their_total_change_nothing(monkeypatch):
    """The server drops those that the party's checkpoint is past; seed 296 broke while it compared them."""
    monkeypatch.setattr(Delivery, "_was_answered", lambda self, message: False)
    for seed in (296, *range(20)):
        run_seed(seed)


def test_a_total_on_a_new_line_before_its_welcome_is_found(monkeypatch):
    def late(self, replies):
        return list(replies)

    answers = ServerSession._answers

    def addressed_at_the_end(self, replies):
        return answers(self, [each for reply in replies for each in addressed(self, [reply])])

    addressed = ServerSession._addressed
    monkeypatch.setattr(ServerSession, "_addressed", late)
    monkeypatch.setattr(ServerSession, "_answers", addressed_at_the_end)
    text = found([76, *range(3000)])  # few seeds come to it
    assert "nothing moves any more" in text or "this party has asked for none" in text


def test_a_torn_end_of_the_log_left_in_place_is_found(monkeypatch):
    monkeypatch.setattr(VirtualDisk, "truncate", lambda self, name, size: None)
    assert "the server forgot a" in found([286, *range(900)])


def test_held_out_predictions_left_out_of_the_checkpoint_are_found(monkeypatch):
    monkeypatch.setattr(Delivery, "unacknowledged", property(lambda self: []))
    assert "leaves out the" in found(range(300))


def test_a_wrong_sum_is_found(monkeypatch):
    make = Coordinator._total

    def wrong(self, step):
        total = make(self, step)
        total.values[0] += step == 3
        return total

    monkeypatch.setattr(Coordinator, "_total", wrong)
    assert "is not its parts' sum" in found(range(100))


def test_alignment_secrets_drawn_again_after_a_restart_are_found(monkeypatch):
    secret, starts = Scenario._secret, iter(range(10**9))
    monkeypatch.setattr(Scenario, "_secret", lambda self, party, purpose: secret(self, party, f"{next(starts)}"))
    found(range(100))


def test_shared_rows_in_another_order_at_one_party_are_found(monkeypatch):
    aligned = Scenario.member

    def other_order(self, party, start, **options):
        member = aligned(self, party, start, **options)
        if party == "b" and self.has_ids:
            object.__setattr__(member.data, "ids", member.data.ids[::-1])
        return member

    monkeypatch.setattr(Scenario, "member", other_order)
    assert "have their shared rows in different orders" in found(range(100))


def test_held_out_totals_given_up_before_their_figures_are_saved_are_found(monkeypatch):
    """A label party that starts again would decide by fewer figures than before, or wait for ever."""
    monkeypatch.setattr(HeldOutSums, "discard", lambda self, _, epoch: self._drop(epoch))
    assert "nothing moves any more" in found([371, *seeds_of(200, ends_early)])


def test_models_of_epochs_left_out_of_the_checkpoint_are_found(monkeypatch):
    monkeypatch.setattr(EpochSnapshots, "restore", lambda self, states: None)
    assert "named epoch" in found([54, *seeds_of(200, ends_early)])


def test_a_best_epoch_that_a_new_start_of_the_server_forgets_is_found(monkeypatch):
    is_repeat = RunState._is_repeat

    def forgetful(self, sender, message):
        return isinstance(message, BestEpoch) or is_repeat(self, sender, message)

    monkeypatch.setattr(RunState, "_is_repeat", forgetful)
    assert "the server forgot a BestEpoch" in found([125, *seeds_of(200, ends_early)])


def has_few_bits(run, server):
    return run.training.value_bits < 16 and run.training.epochs > 1 and run.privacy.server == server


@pytest.mark.parametrize(("server", "seed"), [("plain", 233), ("blind", 80)])
def test_what_the_server_has_left_out_of_the_checkpoint_is_found(monkeypatch, server, seed):
    """A party that goes on without it would send its next block whole, or take differences to nothing."""
    monkeypatch.setattr(Differences, "restore", lambda self, arrays: None)
    text = found([seed, *seeds_of(60, lambda run: has_few_bits(run, server))])
    signs = ("was refused", "let go of two different values", "KeyError", "instead of whole")
    assert any(sign in text for sign in signs)


def test_differences_that_a_server_does_not_add_up_are_found(monkeypatch):
    monkeypatch.setattr("fdml.server.coordinator.whole_of", lambda before, release: replace(release, bits=0))
    text = found(seeds_of(60, lambda run: has_few_bits(run, "plain")))
    assert "the matrix holds" in text or "is not its parts' sum" in text
