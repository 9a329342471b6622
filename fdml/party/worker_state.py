"""What a worker needs to go on after a crash, as typed values and as the arrays of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fdml.models.model import State
from fdml.party.few_exchanges import LastExchange
from fdml.party.outbox import PendingPush
from fdml.protocol.messages import Release

Arrays = Mapping[str, NDArray[Any]]
_DIFFERENCES = "differences/"


@dataclass(frozen=True)
class WorkerState:
    """A worker between two steps."""

    step: int
    """The next step to learn from."""
    pushed: int
    """The last step pushed."""
    end: int
    """The step before which training ends."""
    loss_sum: float
    spent: str
    """Why this party may release nothing more; empty while it may."""
    guard: str
    """What the guard has counted."""
    pending: Mapping[int, PendingPush]
    """Pushes that were not answered yet, by step."""
    model: State
    last_exchange: LastExchange | None = None
    snapshots: Mapping[int, State] = field(default_factory=dict)
    """Models at the ends of epochs, any of which may be the best."""
    differences: Arrays = field(default_factory=dict)
    """Where few bits travel: what the server has already, as arrays."""

    group_scores: NDArray[Any] | None = None
    """Where rows are ranked within groups: the last totals of all rows, at the label party."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As arrays of plain types, by name."""
        arrays: dict[str, NDArray[Any]] = {
            "position": np.array([self.step, self.pushed, self.end]),
            "loss_sum": np.array(self.loss_sum),
            "spent": np.array(self.spent),
            "guard": np.array(self.guard),
        }
        if self.last_exchange is not None:
            arrays |= {f"last/{name}": np.asarray(value) for name, value in self.last_exchange._asdict().items()}
        if self.group_scores is not None:
            arrays["group_scores"] = self.group_scores
        for step, push in self.pending.items():
            arrays |= _push_arrays(step, push)
        for epoch, state in self.snapshots.items():
            arrays |= {f"epoch/{epoch}/{name}": array for name, array in state.items()}
        arrays |= {f"{_DIFFERENCES}{name}": array for name, array in self.differences.items()}
        return {**arrays, **{f"model/{name}": array for name, array in self.model.items()}}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """The state that these arrays were made from."""
        step, pushed, end = (int(number) for number in arrays["position"])
        last = None
        if "last/others" in arrays:
            last = LastExchange(arrays["last/others"], arrays["last/own"], float(arrays["last/variance"]))
        steps = [int(key.removeprefix("own/")) for key in arrays if key.startswith("own/")]
        return cls(
            step=step,
            pushed=pushed,
            end=end,
            loss_sum=float(arrays["loss_sum"]),
            spent=str(arrays["spent"]),
            guard=str(arrays["guard"]),
            pending={step: _push_of(arrays, step) for step in steps},
            model=_under("model/", arrays),
            last_exchange=last,
            snapshots=_snapshots_of(arrays),
            differences=_under(_DIFFERENCES, arrays),
            group_scores=arrays.get("group_scores"),
        )


def _snapshots_of(arrays: Arrays) -> dict[int, State]:
    found: dict[int, dict[str, NDArray[Any]]] = {}
    for key, array in arrays.items():
        if key.startswith("epoch/"):
            _, epoch, name = key.split("/", 2)
            found.setdefault(int(epoch), {})[name] = array
    return {epoch: found[epoch] for epoch in sorted(found)}


def _under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin so, by the rest of the name."""
    return {key.removeprefix(prefix): each for key, each in arrays.items() if key.startswith(prefix)}


def _push_arrays(step: int, push: PendingPush) -> dict[str, NDArray[Any]]:
    """Whole and without a mask the codes are the release itself, and are kept once."""
    arrays: dict[str, NDArray[Any]] = {
        f"own/{step}": push.own,
        f"pushed/{step}": push.codes,
        f"variance/{step}": np.array(push.release.variance),
    }
    if push.release.mask_id or push.release.bits:
        arrays[f"mask_id/{step}"] = np.array(push.release.mask_id, np.uint64)
        arrays[f"masked/{step}"] = push.release.values
    if push.release.bits:
        arrays[f"bits/{step}"] = np.array([push.release.bits, push.release.scale])
    return arrays


def _push_of(arrays: Arrays, step: int) -> PendingPush:
    own, codes, variance = arrays[f"own/{step}"], arrays[f"pushed/{step}"], float(arrays[f"variance/{step}"])
    if f"mask_id/{step}" not in arrays:
        return PendingPush(own, codes, Release(codes, 0, variance))
    bits, scale = arrays[f"bits/{step}"].tolist() if f"bits/{step}" in arrays else (0, 0)
    values, mask_id = arrays[f"masked/{step}"], int(arrays[f"mask_id/{step}"])
    return PendingPush(own, codes, Release(values, mask_id, variance, bits, scale))
