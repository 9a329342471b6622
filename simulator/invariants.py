"""What must hold whatever happens, checked from outside: what left each party, what the server sent, how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fdml.align.sealed_metrics import open_metrics
from fdml.errors import InvariantBroken
from fdml.models.model import State
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import (
    Ack,
    BestEpoch,
    Checkpointed,
    FromParty,
    FromServer,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Labels,
    Push,
    Reply,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Welcome,
)
from fdml.protocol.row_pieces import number_of
from fdml.protocol.schedule import Visit
from fdml.protocol.wire import encode_from_server
from fdml.server.coordinator import Coordinator
from fdml.server.run_state import RunState
from fdml.storage.arrays import hash_arrays
from simulator.parts import PushedParts
from simulator.party_invariants import PartyChecker, SentMessages, figures, place_of, require
from simulator.reference import alignment_of, fault_free_run, replay
from simulator.scenarios import Scenario
from simulator.server_memory import digest_of, remembers, totals_of
from simulator.unmasking import Unmasking


class CheckedRunState(RunState):
    """The server's state that ships, with a checker beside it."""

    checker: InvariantChecker

    def take(self, sender: str, message: FromParty, raw: bytes | None = None) -> list[Reply]:
        """Act on one message, as `RunState` does."""
        coordinator = self.coordinator
        repeated = isinstance(message, Push) and coordinator is not None and message.step <= coordinator.pushed(sender)
        before = digest_of(coordinator) if repeated else b""
        replies = super().take(sender, message, raw)
        if repeated:
            require(digest_of(coordinator) == before and not replies, f"a push of {sender} had an effect twice")
        self.checker.took(sender, message, replies)
        return replies


class InvariantChecker:
    """Remembers what left each party and what the server promised, and raises `InvariantBroken` at the first lie."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._parties = scenario.settings.parties
        self._visits = [scenario.schedule.visit(step) for step in range(scenario.schedule.steps)]
        self._must_be_complete = scenario.settings.privacy.server == "blind" and len(self._parties) > 2
        """Whether no total may lack a party's part."""
        self._unmasking = Unmasking(scenario)
        self._pushes: dict[tuple[str, int], Codes] = {}
        """Without masks, as all that follows here."""
        self._parts = PushedParts(self._visits, self._pushes)
        self._held_out: dict[tuple[str, int], Codes] = {}
        """By party, and by epoch and piece as one number."""
        self._gradients: dict[tuple[str, int], Codes] = {}
        self._stops: dict[str, int] = {}
        self._learned: dict[str, int] = {}
        """The last step that a party learned from, where it ended early."""
        self._stopped: dict[str, Stopped] = {}
        """The earliest end that each party was sent."""
        self._best_epoch: BestEpoch | None = None
        """As the label party first sent it."""
        self._taken = dict.fromkeys(self._parties, -1)
        """The last push of each party that the running server has acted on."""
        self._served: dict[tuple[str, int], Total | Gradient] = {}
        """Totals as the running server made them."""
        self._sent: dict[tuple[str, int], Total | Gradient] = {}
        """Totals that a party may have seen."""
        self._kept = dict.fromkeys(self._parties, -1)
        self._labels: dict[int, Labels] = {}
        """By piece."""
        self._totals: dict[int, HeldOutTotal] = {}
        """Totals of held-out predictions that the label party was sent."""
        self._begun = False
        """Whether any party may know that the labels have come."""
        self._welcomed = dict.fromkeys(self._parties, -1)
        """The last push of each party that it may have been told of."""
        self._messages = SentMessages()
        self.party = PartyChecker(scenario, self._messages)
        """Looks at what parties store."""

    def posted(self, party: str, message: FromParty) -> None:
        """A party lets a message go, for the first time or again after a crash."""
        self._messages.post(party, message)
        match message:
            case Push(step, release):
                self._parts.add(party, message)
                _same(self._pushes, (party, step), self._unmasking.bare("push", party, step, release), "push of step")
            case HeldOutPredictions(epoch, release, piece):
                bare = self._unmasking.bare("held-out", party, epoch, release, piece)
                _same(self._held_out, (party, place_of(message)), bare, "held-out predictions of epoch")
            case Gradient(step, release):
                bare = self._unmasking.bare("gradient", party, step, release)
                _same(self._gradients, (party, step), bare, "gradient of step")
            case Stop(step):
                require(self._stops.setdefault(party, step) == step, f"{party} stopped at two different steps")
            case Checkpointed(step):
                self._kept[party] = max(self._kept[party], step)
            case SealedMetrics():
                self.party.scored(message)
            case BestEpoch():
                self._best_epoch = self._best_epoch or message
                require(message == self._best_epoch, f"{party} told of two different best epochs")

    def took(self, sender: str, message: FromParty, replies: Sequence[Reply]) -> None:
        """The server has acted on a message and would reply this."""
        if isinstance(message, Push):
            self._take_push(sender, message)
        for reply in replies:
            match reply.message:
                case Total() | Gradient():
                    self._check_served(reply.to, reply.message)
                case HeldOutTotal(epoch, values, mask_ids):
                    parts = [self._held_out[party, place_of(reply.message)] for party in self._parties]
                    found, piece = values.reshape(-1), reply.message.piece
                    if mask_ids:
                        found = self._unmasking.opened("held-out", [epoch] * len(mask_ids), mask_ids, found, piece)
                    require(
                        np.array_equal(np.sum(parts, axis=0), found),
                        f"the sum of held-out predictions of epoch {epoch} is wrong",
                    )

    def said(self, party: str, heard: Sequence[FromParty], message: FromServer) -> None:
        """The server lets an answer go on a line on which it has heard so much."""
        match message:
            case Total(step) | Gradient(step):
                before = self._sent.setdefault((party, step), message)
                require(_equal(before, message), f"{party} was sent the total of step {step} twice, differently")
            case Labels():
                self._labels[number_of(message)] = message
                self._begun |= message.piece is None or len(self._labels) == message.piece.count
            case HeldOutTotal():
                self._totals[place_of(message)] = message
            case Stopped(step=step):
                if step < self._stopped.get(party, message).step or party not in self._stopped:
                    self._stopped[party] = message
            case Welcome(pushed, evaluated):
                self._welcomed[party] = max(self._welcomed[party], pushed)
                self._messages.store(party, [SealedMetrics(epoch) for epoch in evaluated])
            case Ack(count):
                self._messages.store(party, heard[:count])

    def opened(self, state: RunState) -> None:
        """A server has started from what its disk holds."""
        for party, message in self._messages.stored():
            kind = type(message).__name__
            require(remembers(state, party, message), f"the server forgot a {kind} of {party} that it had stored")
        self._taken = dict.fromkeys(self._parties, -1)
        self._served = dict(self._sent)
        coordinator = state.coordinator
        if coordinator is None:
            require(not self._begun, "the server forgot the labels that it had handed out")
            return
        self._taken = {party: coordinator.pushed(party) for party in self._parties}
        for party, pushed in self._welcomed.items():
            require(self._taken[party] >= pushed, f"the server forgot step {pushed} of {party} that it had told of")
        self._check_matrix(coordinator)
        for party in self._parties:
            totals = totals_of(coordinator, party)
            for step, total in totals.items():
                self._check_content(party, total)
                self._check_repeated(party, total)
                self._served[party, step] = total
            lost = [step for to, step in self._sent if to == party and step > self._kept[party] and step not in totals]
            require(not lost, f"the server forgot the totals of steps {lost} that {party} may ask for again")

    def ended(self, state: RunState, models: Mapping[str, bytes]) -> None:
        """All parties have finished, with models of these hashes."""
        self.opened(state)
        coordinator = state.coordinator
        if coordinator is None:
            raise InvariantBroken("all have finished, but training never began")
        end = coordinator.end
        require(self._evaluated_epochs(end) <= set(state.history), "metrics are missing")
        staleness = self._scenario.settings.training.staleness
        last = {visit.block: step for step, visit in enumerate(self._visits)}
        for column, party in enumerate(self._parties if end == self._scenario.schedule.steps else ()):
            for step in last.values():
                made, _ = coordinator.matrix.read(column, self._visits[step])
                require(made == step, f"the matrix ends with step {made} of {party} where step {step} belongs")
        found = {epoch: figures(open_metrics(self.party.key, sealed)) for epoch, sealed in state.history.items()}
        for epoch, those in found.items():
            known = figures(self.party.metrics[epoch])
            require(those == known, f"the server has other metrics of epoch {epoch} than were sent")
        if staleness == 0:
            expected = fault_free_run(self._scenario)
            require(end == expected.end <= self._scenario.end, f"the run ended before step {end}, not {expected.end}")
            self._check_models(expected.models, models)
            require(expected.metrics == found, "the metrics are not those of a run without faults")
        else:
            self._check_models(self._replayed(), models)

    @staticmethod
    def _check_models(expected: Mapping[str, State], models: Mapping[str, bytes]) -> None:
        for party, arrays in expected.items():
            require(hash_arrays(arrays) == models[party], f"{party} ends with another model than it should")

    def _replayed(self) -> dict[str, State]:
        """Every party's model had it been sent the same messages without any fault."""
        states = {}
        for party, shared in alignment_of(self._scenario).items():
            sent, states[party] = replay(self._scenario, party, shared, self._script(party))
            for message in sent:
                if isinstance(message, Push):
                    values = message.release.values
                    if message.release.mask_id:
                        own = self._scenario.masks(shared.key, party, 1)
                        values = own.remove_one("push", party, message.step, 1, values)
                    _same(self._pushes, (party, message.step), values, "push of step")
        return states

    def _script(self, party: str) -> list[FromServer]:
        """What a party used of what it was sent, in order; where the run ended early that may be less than all."""
        last, settings = self._learned.get(party, self._scenario.schedule.steps), self._scenario.settings
        answers = [self._sent[key] for key in sorted(self._sent) if key[0] == party and key[1] <= last]
        labels = [self._labels[number] for number in sorted(self._labels)]
        stopped = [self._stopped[party]] if party in self._stopped else []
        if party in self._learned and not stopped:
            stopped = [Stopped(party, last + 1)]
        told = [self._best_epoch] if self._best_epoch is not None and party != settings.label_party else []
        totals = [self._totals[place] for place in sorted(self._totals)]
        return [Welcome(-1), *labels, *answers, *stopped, *totals, *told]

    def _evaluated_epochs(self, end: int) -> set[int]:
        """The epochs of which the label party must have reported, where training ended before step `end`."""
        if self._scenario.settings.evaluation.every == "end":
            return {self._scenario.schedule.epochs}
        return set(range(1, end // self._scenario.schedule.blocks + 1))

    def _take_push(self, party: str, push: Push) -> None:
        bare = self._unmasking.bare("push", party, push.step, push.release)
        self._parts.add(party, push)
        _same(self._pushes, (party, push.step), bare, "push of step")
        before = self._taken[party]
        require(push.step <= before + 1, f"the server took step {push.step} of {party} after step {before}")
        self._taken[party] = max(before, push.step)

    def began(self, party: str) -> None:
        """A party begins to train, for the first time or again: it may learn from more than an earlier start did."""
        self._learned.pop(party, None)

    def learned(self, party: str, step: int) -> None:
        """A party ends early, having learned up to this step."""
        self._learned[party] = step

    def _check_served(self, to: str, total: Total | Gradient) -> None:
        slowest, step = min(self._taken.values()), total.step
        require(step <= self._taken[to], f"{to} was served step {step} before it had pushed it")
        require(
            step - slowest <= self._scenario.settings.training.staleness,
            f"the gate let {to} have step {step} while the slowest party was at {slowest}",
        )
        if (to, step) in self._served:
            self._check_repeated(to, total)
            return
        if isinstance(total, Total):
            for party, made in zip(self._parties, total.pushed_at, strict=True):
                newest = self._newest(party, step)
                require(made == newest, f"step {step} for {to} was made of step {made} of {party} instead of {newest}")
                require(made >= 0 or not self._must_be_complete, f"step {step} for {to} lacks the part of {party}")
        self._check_content(to, total)
        self._served[to, step] = total

    def _check_content(self, to: str, answer: Total | Gradient) -> None:
        gradient_party = self._scenario.gradient_party
        require(isinstance(answer, Total) == (gradient_party in (None, to)), f"{to} was sent what is not for it")
        if isinstance(answer, Total):
            self._check_sum(to, answer)
            return
        bare = self._unmasking.bare("gradient", gradient_party or "", answer.step, answer.release)
        require(
            np.array_equal(bare, self._gradients[gradient_party or "", answer.step]),
            f"the gradient of step {answer.step} is wrong",
        )

    def _newest(self, party: str, step: int) -> int:
        """The last step up to this one for which the party has pushed the same block."""
        block = self._visits[step].block
        upto = min(step, self._taken[party])
        return next((at for at in range(upto, -1, -1) if self._visits[at].block == block), -1)

    def _check_sum(self, to: str, total: Total) -> None:
        visit = self._visits[total.step]
        expected = np.zeros(visit.size * self._scenario.width, np.int64)
        for party, made in zip(self._parties, total.pushed_at, strict=True):
            if made >= 0:
                require(self._visits[made].block == visit.block, f"step {total.step} has a part of another block")
                expected += self._pushes[party, made] if total.bits else self._parts.of(party, made)
        found = total.values.reshape(-1)
        if self._scenario.settings.privacy.server == "blind":
            found = self._unmasking.opened("push", total.pushed_at, total.mask_ids, found)
        if total.bits:
            expected, found = in_ring(expected.astype(found.dtype), total.bits), in_ring(found, total.bits)
        require(np.array_equal(expected, found), f"step {total.step} for {to} is not its parts' sum")

    def _check_repeated(self, to: str, total: Total | Gradient) -> None:
        for known in (self._served, self._sent):
            before = known.get((to, total.step), total)
            require(_equal(before, total), f"the total of step {total.step} for {to} has changed")

    def _check_matrix(self, coordinator: Coordinator) -> None:
        blocks: dict[int, Visit] = {visit.block: visit for visit in self._visits}
        for column, party in enumerate(self._parties):
            for visit in blocks.values():
                made, release = coordinator.matrix.read(column, visit)
                bare, pushed = release.values.reshape(-1), np.zeros(release.values.size, np.int64)
                if made >= 0:
                    bare = self._unmasking.bare("push", party, made, self._parts.with_bits(party, made, release))
                    pushed = self._parts.in_matrix(party, made, release)
                require(np.array_equal(bare, pushed), f"the matrix holds what {party} never pushed")


def _same(known: dict[tuple[str, int], Codes], key: tuple[str, int], values: Codes, what: str) -> None:
    before = known.setdefault(key, values.reshape(-1))
    require(np.array_equal(before, values.reshape(-1)), f"{key[0]} let go of two different values: {what} {key[1]}")


def _equal(one: Total | Gradient, other: Total | Gradient) -> bool:
    return encode_from_server(one) == encode_from_server(other)
