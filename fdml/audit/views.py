"""Who sees what of a party's predictions: the server, another party, all other parties together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.data.rows import DenseRows, PlainRows, columns, to_dense, to_scipy, width
from fdml.protocol.fixed_point import decode

Values = NDArray[np.float64]
_MOST_COLUMNS = 256
_CLOSE = 1e-3


@dataclass(frozen=True)
class AttackerView:
    """What one attacker has against one target."""

    view: str
    """Who attacks: "server", "party 'b'", "all parties but 'a'"."""
    target: str
    pushed: Mapping[int, Values]
    """By step: the target's predictions `(rows, width)` as the attacker has them."""
    own: Values
    """The attacker's own features, `(rows, features)`; no columns for the server."""
    kind: str = "plain"
    """"plain" values of the target alone; "sums" with those of others; "masked" ones."""
    noisy: bool = False
    """Whether noise is on the values."""
    remark: str = ""

    @property
    def against(self) -> str:
        """The view and its target, for people."""
        return f"{self.view} on {self.target!r}" if self.view == "server" or self.kind == "sums" else self.view


def views(recording: Recording) -> Iterator[AttackerView]:
    """All views of the run that A4 to A6 try, of every party that has features."""
    parties = recording.run.parties
    for target in _targets(recording):
        yield _of_server(recording, target)
        others = [party for party in parties if party != target]
        if len(parties) == 2:
            yield _of_rest(recording, target, f"party {others[0]!r}")
        elif len(parties) > 2:
            yield _of_one(recording, target, others[0])


def coalitions(recording: Recording) -> Iterator[AttackerView]:
    """Of every party with features: what all the others see together."""
    for target in _targets(recording):
        yield _of_rest(recording, target, f"all parties but {target!r}")


def trajectories(recording: Recording, pushed: Mapping[int, Values]) -> Values:
    """The predictions of every row through the epochs, `(rows, epochs, width)`; whole epochs only."""
    schedule = recording.schedule
    epochs = len(pushed) // schedule.blocks
    found = np.zeros((schedule.rows, epochs, recording.objective.width))
    for step in range(epochs * schedule.blocks):
        visit = schedule.visit(step)
        found[visit.start : visit.stop, visit.epoch] = pushed[step]
    return found


def dense(rows: PlainRows) -> Values:
    """Features as a dense matrix; of very many, those that vary most."""
    if width(rows) > _MOST_COLUMNS:
        matrix: Any = rows.values if isinstance(rows, DenseRows) else to_scipy(rows)
        mean = np.asarray(matrix.mean(axis=0)).ravel()
        square = np.asarray((matrix * matrix).mean(axis=0)).ravel()
        rows = columns(rows, np.sort(np.argsort(mean * mean - square, kind="stable")[:_MOST_COLUMNS]))
    return to_dense(rows).astype(np.float64)


def side_by_side(parts: Sequence[Values], rows: int) -> Values:
    """The columns of all parts; none where there are no parts."""
    return np.hstack([np.zeros((rows, 0)), *parts])


def _targets(recording: Recording) -> list[str]:
    return [party for party in recording.run.parties if width(recording.truth.features[party])]


def _of_server(recording: Recording, target: str) -> AttackerView:
    nothing = np.zeros((recording.schedule.rows, 0))
    noisy = recording.mechanisms[target].noise != "none"
    if recording.run.privacy.server == "plain":
        remark = "the server is taken to know the labels, which fdml seals from it: it may work with a party"
        return AttackerView("server", target, recording.plain[target], nothing, "plain", noisy, remark)
    masked = {
        step: decode(push.release.values.reshape(-1, recording.objective.width)) * 2.0**-30
        for step, push in recording.pushes[target].items()
    }
    return AttackerView("server", target, masked, nothing, "masked", True, "all that it has is under masks")


def _of_rest(recording: Recording, target: str, view: str) -> AttackerView:
    """The total less their own parts is the target's part."""
    others = [party for party in recording.run.parties if party != target]
    own = side_by_side([dense(recording.truth.features[party]) for party in others], recording.schedule.rows)
    noisy = recording.mechanisms[target].noise != "none"
    if noisy and recording.gradients and target == recording.run.label_party:
        told = _from_gradients(recording, others)
        if _differ(told, recording.plain[target]):
            remark = "the label party's gradients tell more of its predictions than it pushed"
            return AttackerView(view, target, told, own, "plain", False, remark)
    return AttackerView(view, target, recording.plain[target], own, "plain", noisy)


def _from_gradients(recording: Recording, others: Sequence[str]) -> dict[int, Values]:
    """Where labels are private: a gradient tells the score it was made of, and the others know their parts of it."""
    return {
        step: recording.objective.invert_gradient(gradient)[0].astype(np.float64) - _sum(recording, others, step)
        for step, gradient in recording.gradients.items()
    }


def _differ(told: Mapping[int, Values], pushed: Mapping[int, Values]) -> bool:
    """Whether gradients were made of other values than were pushed; a few are too large to be told exactly."""
    return any(float(np.median(np.abs(values - pushed[step]))) > _CLOSE for step, values in told.items())


def _sum(recording: Recording, parties: Sequence[str], step: int) -> Values:
    total: Values = np.sum([recording.plain[party][step] for party in parties], axis=0)
    return total


def _of_one(recording: Recording, target: str, party: str) -> AttackerView:
    """One of several others sees the sum of all but itself."""
    sums = [name for name in recording.run.parties if name != party]
    whole = [set(recording.plain[name]) for name in sums]
    pushed = {step: _sum(recording, sums, step) for step in set.intersection(*whole)}
    noisy = any(recording.mechanisms[name].noise != "none" for name in sums)
    own = dense(recording.truth.features[party])
    return AttackerView(f"party {party!r}", target, pushed, own, "sums", noisy)
