"""A14: retrain a party for every guess of a cell, and compare with what the server was sent of its final model.

Training is exact to the bit, so a guess is right if it leads to the same
parameters. Noise on predictions is no obstacle: what was released is known, and
a party trains with its own exact predictions.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.data.row_set import RowSet
from fdml.data.rows import Rows, width
from fdml.party.plan import Plan, build_worker
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger
from fdml.privacy.perturb import Perturbation, Predictions
from fdml.protocol.fixed_point import Codes, encode
from fdml.protocol.messages import Gradient, Push, Total
from fdml.storage.arrays import hash_arrays

_TITLE = "retrain and compare"
_CELLS = 3
"""Cells that are guessed, of each party."""
_GUESSES = 4
"""Values that are tried for a cell, the true one among them."""
_DELTA = 1e-5


def retrain_and_compare(recording: Recording) -> list[AttackResult]:
    """A14: every party with features, by the server together with all others, who know all of it but one cell."""
    results = []
    for target in recording.run.parties:
        view = f"server and all parties but {target!r}"
        why_not = _why_not(recording, target)
        if why_not:
            results.append(not_applicable("A14", _TITLE, view, why_not))
        else:
            results.append(_compared(recording, target, view))
    return results


def _why_not(recording: Recording, target: str) -> str:
    if not width(recording.truth.features[target]):
        return "the party has no features"
    if target not in recording.finished:
        return "nothing was sent of its final model"
    if recording.run.training.staleness:
        return "totals may be stale here, so what the party was sent is not known"
    return ""


def _compared(recording: Recording, target: str, view: str) -> AttackResult:
    seen = recording.finished[target].model_mac
    random = np.random.default_rng(0)
    values = recording.truth.features[target].values.reshape(-1)
    cells = random.choice(len(values), min(_CELLS, len(values)), replace=False)
    confirmed = 0
    if _names(retrained_hash(recording, target, values), seen):  # else no guess can be confirmed
        confirmed = sum(_is_confirmed(recording, target, int(cell), seen) for cell in cells)
    return passed_if(
        confirmed == 0,
        "A14",
        _TITLE,
        view,
        score=confirmed / len(cells),
        baseline=0.0,
        bar="no cell is confirmed",
        reason=f"{len(cells)} cells with {_GUESSES} guesses each; "
        + ("the true one alone fits what was sent" if confirmed else "what was sent fits none, not even the true one"),
        details={"cells": len(cells), "confirmed": confirmed},
    )


def _is_confirmed(recording: Recording, target: str, cell: int, seen: bytes) -> bool:
    """Whether of several values of one cell the true one alone leads to what was sent."""
    values = recording.truth.features[target].values.reshape(-1)
    fitting = []
    for guess in guesses_of(values, cell):
        guessed = values.copy()
        guessed[cell] = guess
        if _names(retrained_hash(recording, target, guessed), seen):
            fitting.append(guess)
    return fitting == [values[cell]]


def guesses_of(values: NDArray[np.float32], cell: int) -> list[np.float32]:
    """The true value and others that occur, or near ones where none do."""
    others = np.setdiff1d(np.unique(values), values[cell])
    picked = others[np.linspace(0, len(others) - 1, min(len(others), _GUESSES - 1)).astype(int)] if len(others) else []
    return [values[cell], *(picked if len(picked) else [np.float32(values[cell] + 1)])]


def _names(model_hash: bytes, seen: bytes) -> bool:
    """Whether what was sent is the hash of this model, or a hash of that."""
    return seen in (model_hash, *(hashlib.new(kind, model_hash).digest() for kind in ("sha256", "blake2s")))


def retrained_hash(recording: Recording, target: str, values: NDArray[np.float32]) -> bytes:
    """The hash of a party's final parameters had it had these features."""
    run, truth = recording.run, recording.truth
    features = truth.features[target]
    rows: Rows = features._replace(values=values.reshape(features.values.shape))
    plan = Plan(
        run.training,
        recording.model_settings,
        run.label_party,
        run.chosen_loss,
        recording.objective.classes,
    )
    weights = truth.weights if len(truth.weights) else np.ones(len(truth.labels))
    worker = build_worker(
        plan,
        RowSet({target: rows}, truth.shown_labels, weights),
        target,
        RecordedGuard(recording, target),
        gradient_party=run.label_party if recording.gradients else None,
    )
    for _ in worker.first_messages():
        pass
    steps = min(len(pushes) for pushes in recording.pushes.values())
    worker.stop_at(steps)
    for step in range(steps):
        for _ in worker.learn(_answer(recording, target, step)):
            pass
    return hash_arrays(worker.parameters())


def _answer(recording: Recording, target: str, step: int) -> Total | Gradient:
    """What the party was sent for a step."""
    if recording.gradients and target != recording.run.label_party:
        return _gradients(recording)[step]
    total = np.sum([_codes(recording, party, step) for party in recording.run.parties], axis=0)
    variance = sum(pushes[step].release.variance for pushes in recording.pushes.values())
    return Total(step, total, (step,) * len(recording.run.parties), variance=variance)


def _codes(recording: Recording, party: str, step: int) -> Codes:
    return encode(recording.plain[party][step], recording.grid)


def _gradients(recording: Recording) -> dict[int, Gradient]:
    return {message.step: message for _, message in recording.repeated if isinstance(message, Gradient)}


class RecordedGuard(Guard):
    """Lets out what the party let out, whatever is predicted now."""

    def __init__(self, recording: Recording, party: str) -> None:
        super().__init__(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, _DELTA, None))
        self._recording = recording
        self._party = party

    def push(self, step: int, block: int, predictions: Predictions) -> tuple[Push, Codes]:  # noqa: ARG002
        """The push of the recording."""
        codes = _codes(self._recording, self._party, step).reshape(predictions.shape)
        return self._recording.pushes[self._party][step], codes

    def gradient(self, step: int, values: NDArray[np.floating]) -> Gradient:  # noqa: ARG002
        """The gradient of the recording."""
        return _gradients(self._recording)[step]

    def open_gradient(self, gradient: Gradient, label_party: str) -> NDArray[np.float64]:  # noqa: ARG002
        """As it was under its mask."""
        return self._recording.gradients[gradient.step]


attacks: dict[str, Attack] = {"A14": retrain_and_compare}
