"""What must hold at a party whenever it stores something: nothing is left out, counted twice or aligned otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import InvariantBroken
from fdml.events import Evaluated
from fdml.party.alignment import SharedRows
from fdml.party.checkpoint import Checkpoint
from fdml.privacy.statement import Statement
from fdml.protocol.messages import (
    BestEpoch,
    FromParty,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Labels,
    Metrics,
    SealedMetrics,
)
from fdml.protocol.row_pieces import held_out_pieces, number_of
from simulator.scenarios import Scenario

Key = tuple[str, type[FromParty], int]
"""A message by its party, its type and its step or epoch; of held-out predictions also its piece."""
_PIECES = 2**20
"""More than a set has."""
_BEFORE_RESULT = (Gradient, HeldOutPredictions, SealedMetrics, BestEpoch)
"""Messages that the server must have before a party notes its result."""


class SentMessages:
    """What left each party, and what of it the server said it had stored."""

    def __init__(self) -> None:
        self._posted: set[Key] = set()
        self._stored: dict[Key, FromParty] = {}

    def post(self, party: str, message: FromParty) -> None:
        """A party lets a message go."""
        self._posted.add(key_of(party, message))

    def store(self, party: str, messages: Iterable[FromParty]) -> None:
        """The server has acknowledged these messages of a party."""
        self._stored |= {key_of(party, message): message for message in messages}

    def is_stored(self, key: Key) -> bool:
        """Whether the server has said that it has this message."""
        return key in self._stored

    def stored(self) -> list[tuple[str, FromParty]]:
        """All that the server said it had stored."""
        return [(key[0], message) for key, message in self._stored.items()]

    def posted(self, party: str, kind: type[FromParty]) -> set[int]:
        """Steps or epochs of a party's messages of one type."""
        return {number for sender, found, number in self._posted if sender == party and found is kind}


def key_of(party: str, message: FromParty) -> Key:
    """How a message is known."""
    if isinstance(message, HeldOutPredictions | Labels):
        return party, type(message), place_of(message)
    number = next((getattr(message, name) for name in ("step", "epoch", "incarnation") if hasattr(message, name)), 0)
    return party, type(message), number


def place_of(message: HeldOutPredictions | HeldOutTotal | Labels) -> int:
    """Epoch and piece as one number."""
    return (0 if isinstance(message, Labels) else message.epoch) * _PIECES + number_of(message)


class PartyChecker:
    """Looks at what a party is about to store, or has stored."""

    def __init__(self, scenario: Scenario, messages: SentMessages) -> None:
        self._scenario = scenario
        self._messages = messages
        self._aligned: dict[str, SharedRows] = {}
        self._metrics: dict[int, Metrics] = {}
        """As the label party first sent them."""
        self._chosen: dict[str, int] = {}
        """By party, the epoch whose model it keeps."""

    @property
    def key(self) -> GroupKey:
        """The group key that the parties have stored with their alignments."""
        if not self._aligned:
            raise InvariantBroken("something was sealed or masked before any party had stored its alignment")
        return next(iter(self._aligned.values())).key

    @property
    def metrics(self) -> Mapping[int, Metrics]:
        """By epoch, what the label party reported."""
        return self._metrics

    def aligned(self, party: str, shared: SharedRows) -> None:
        """A party stores its alignment: row i must be the same person at every party, in every start."""
        self._aligned[party] = shared
        for other, theirs in self._aligned.items():
            require(theirs.digest == shared.digest, f"{party} and {other} have aligned to different rows")
            require(theirs.key == shared.key, f"{party} and {other} have different group keys")
            for part in ("train", "held_out"):
                ours = [self._scenario.ids[party][row] for row in getattr(shared, part)]
                same = ours == [self._scenario.ids[other][row] for row in getattr(theirs, part)]
                require(same, f"{party} and {other} have their shared rows in different orders ({part})")

    def scored(self, message: SealedMetrics) -> None:
        """The label party reports an epoch: again after a crash, but never otherwise."""
        metrics = open_metrics(self.key, message) if message.sealed else Metrics(message.epoch)
        before = self._metrics.setdefault(metrics.epoch, metrics)
        require(figures(before) == figures(metrics), f"epoch {metrics.epoch} was scored twice, differently")

    def chose(self, party: str, epoch: int) -> None:
        """A party keeps the model of an epoch: all keep the same, in every start."""
        self._chosen[party] = epoch
        require(
            len(set(self._chosen.values())) == 1, f"the parties keep the models of different epochs: {self._chosen}"
        )

    def bundled(self, party: str, evaluated: Evaluated | None) -> None:
        """A party writes its bundle: the label party's tells of the model that stays, in every start."""
        if party == self._scenario.settings.label_party:
            stays = self._chosen.get(party) or max(self._metrics, default=0)
            told = 0 if evaluated is None else evaluated.epoch
            require(told == stays, f"the bundle of {party} tells of epoch {told}, and its model is of epoch {stays}")

    def saved(self, party: str, checkpoint: Checkpoint) -> None:
        """A party stores a checkpoint: what a start from it would not make again must be in it, or at the server."""
        held = {key_of(party, message) for message in checkpoint.unacknowledged}
        for kind, number in self._made_by(party, checkpoint):
            key = party, kind, number
            require(
                key in held or self._messages.is_stored(key),
                f"the checkpoint of {party} at step {checkpoint.step} leaves out the {kind.__name__} of "
                f"{number // _PIECES if kind is HeldOutPredictions else number}",
            )

    def _made_by(self, party: str, checkpoint: Checkpoint) -> Iterable[tuple[type[FromParty], int]]:
        """What a party has made once it has learned from the checkpoint's step."""
        scenario, done = self._scenario, checkpoint.step + 1
        if party == scenario.gradient_party:
            yield from ((Gradient, step) for step in range(done))
        if scenario.settings.evaluation.every == "end":
            return
        for epoch in range(1, done // scenario.schedule.blocks + 1):
            yield from ((HeldOutPredictions, epoch * _PIECES + piece) for piece in range(self._pieces))
            if party == scenario.settings.label_party and epoch not in checkpoint.progress.pending:
                yield SealedMetrics, epoch

    @property
    def _pieces(self) -> int:
        """In how many pieces held-out predictions travel."""
        rows = max((len(shared.held_out) for shared in self._aligned.values()), default=1)
        return held_out_pieces(rows, 1, self._scenario.sent_rows).count

    def noted(self, party: str) -> None:
        """A party stores its result, after which it sends nothing again: the server must have everything."""
        for kind in _BEFORE_RESULT:
            for number in sorted(self._messages.posted(party, kind)):
                require(
                    self._messages.is_stored((party, kind, number)),
                    f"{party} noted its result before the server had stored its {kind.__name__} of {number}",
                )

    def stated(self, party: str, statement: Statement) -> None:
        """A party states what it released: every evaluation once, however often it was started."""
        made = len({place // _PIECES for place in self._messages.posted(party, HeldOutPredictions)})
        counted = statement.spent[1].releases
        require(counted == made, f"{party} counted {counted} evaluations and made {made}")


def figures(metrics: Metrics) -> tuple[float | None, ...]:
    """The metrics without the time they took."""
    return metrics.train_loss, metrics.test_loss, metrics.test_metric


def require(holds: bool | np.bool_, otherwise: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise InvariantBroken(otherwise)
