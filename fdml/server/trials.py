"""Predictions of the held-out rows, summed when all parties have sent theirs for an epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.exchange.fixed_point import Codes
from fdml.exchange.messages import Trial, Verdict
from fdml.server.coordinator import check_range

_DIGEST_BYTES = 16


class Trials:
    """The parts of epochs that not all parties have sent yet, and the sums that were not judged yet."""

    def __init__(self, parties: Sequence[str], size: int, epochs: int) -> None:
        self._parties = tuple(parties)
        self._size = size
        self._epochs = epochs
        self._parts: dict[int, dict[int, Codes]] = {}
        self._digests: dict[tuple[int, int], bytes] = {}
        """By epoch and party: of every part that has come."""
        self._verdicts: dict[int, Verdict] = {}

    def take(self, sender: str, trial: Trial) -> Verdict | None:
        """Keep a party's part; the verdict once it is the last. A part that came before must be the same."""
        values = self._checked(sender, trial)
        place = trial.epoch, self._parties.index(sender)
        digest = hashlib.blake2b(values.tobytes(), digest_size=_DIGEST_BYTES).digest()
        known = self._digests.get(place)
        if known is not None:
            if known != digest:
                raise MessageRefused(
                    f"party {sender!r} sent its held-out predictions of epoch {trial.epoch} again with other values",
                    Refusal.CONFLICT,
                )
            return None
        self._digests[place] = digest
        parts = self._parts.setdefault(trial.epoch, {})
        parts[place[1]] = values
        if len(parts) < len(self._parties):
            return None
        self._verdicts[trial.epoch] = Verdict(trial.epoch, np.sum(list(parts.values()), axis=0))
        del self._parts[trial.epoch]
        return self._verdicts[trial.epoch]

    def verdicts(self) -> list[Verdict]:
        """All sums that the label party has not judged yet, by epoch."""
        return [self._verdicts[epoch] for epoch in sorted(self._verdicts)]

    def judge(self, sender: str, epoch: int) -> None:
        """The label party has judged this epoch: its sum is not needed again."""
        self._check_epoch(sender, epoch)
        self._verdicts.pop(epoch, None)

    def _check_epoch(self, sender: str, epoch: int) -> None:
        if not 1 <= epoch <= self._epochs:
            raise MessageRefused(f"party {sender!r} sent epoch {epoch} of {self._epochs}", Refusal.GAP)

    def _checked(self, sender: str, trial: Trial) -> Codes:
        values = trial.release.values
        self._check_epoch(sender, trial.epoch)
        if values.dtype != np.int64 or values.size != self._size:
            raise MessageRefused(
                f"party {sender!r} sent {values.size} held-out predictions as {values.dtype}; "
                f"the run has {self._size} as int64",
                Refusal.INVALID,
            )
        check_range(f"party {sender!r} sent for held-out rows", values)
        return values.reshape(-1)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        parts = {f"trial/{epoch}/{party}": part for epoch in self._parts for party, part in self._parts[epoch].items()}
        digests = {
            f"trial_digest/{epoch}/{party}": np.frombuffer(digest, np.uint8)
            for (epoch, party), digest in self._digests.items()
        }
        verdicts = {f"verdict/{epoch}": verdict.values for epoch, verdict in self._verdicts.items()}
        return {**parts, **digests, **verdicts}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the trials that gave this state."""
        for key, array in arrays.items():
            match key.split("/"):
                case "trial", epoch, party:
                    self._parts.setdefault(int(epoch), {})[int(party)] = array
                case "trial_digest", epoch, party:
                    self._digests[int(epoch), int(party)] = array.tobytes()
                case "verdict", epoch:
                    self._verdicts[int(epoch)] = Verdict(int(epoch), array)
