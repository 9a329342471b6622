"""A4 to A7: what predictions through the epochs tell of a party's features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fdml.audit.attribute_inference import binary_columns, gains
from fdml.audit.known_rows import combined, components, explained, standardised
from fdml.audit.recording import Recording
from fdml.audit.replay import replay_of
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.audit.trajectory import gram_score, recovered
from fdml.audit.views import AttackerView, coalitions, dense, trajectories, views
from fdml.models.linear.kind import LINEAR

Values = NDArray[np.float64]
_SEED = 0
_KNOWN_ROWS = 500
_MOST_R2_GAIN = 0.05
_MOST_GRAM = 0.10
_MOST_MEAN_GAIN, _MOST_WORST_GAIN = 0.02, 0.12
_INSIDER, _GRAM, _ATTRIBUTES = "insider equation solving", "Gram matrix from trajectories", "attribute inference"


def insider(recording: Recording, view: AttackerView) -> AttackResult:
    """A4: features of the other rows, by one who knows as many rows as there are features, and five more."""
    features = dense(recording.truth.features[view.target])
    count = features.shape[1] + 5
    if count > len(features) // 2 or not features.std():
        reason = f"{len(features)} rows are too few to know {count} and guess the others"
        return not_applicable("A4", _INSIDER, view.against, reason)
    known = np.random.default_rng(_SEED).permutation(len(features))[:count]
    seen = trajectories(recording, view.pushed)
    own = np.hstack([view.own, _labels(recording)])
    aided = list(combined(own, seen, _recovered(recording, view)))
    baseline = explained(known, aided[:1], features)
    score = explained(known, aided, features)
    return passed_if(
        score - baseline <= _MOST_R2_GAIN,
        "A4",
        _INSIDER,
        view.against,
        score=score,
        baseline=baseline,
        bar=f"R2 gain <= {_MOST_R2_GAIN:g}",
        reason=_with_remark(f"knows {count} rows; R2 over all features of the others", view),
        details={"known_rows": count},
    )


def gram(recording: Recording, view: AttackerView) -> AttackResult:
    """A5: the rows' inner products, by one who knows no row."""
    why_not = _why_no_replay(recording, view)
    if why_not:
        return not_applicable("A5", _GRAM, view.against, why_not)
    guess = _recovered(recording, view)
    features = dense(recording.truth.features[view.target])
    score = 0.0 if guess is None else gram_score(guess, features, _SEED)
    return passed_if(
        score <= _MOST_GRAM,
        "A5",
        _GRAM,
        view.against,
        score=score,
        baseline=0.0,
        bar=f"Gram R2 <= {_MOST_GRAM:.2f}",
        reason=_with_remark("knows no row; R2 of the inner products of all pairs of rows, up to scale", view),
        details={} if guess is None else {"rank": guess.shape[1]},
    )


def attributes(recording: Recording, view: AttackerView) -> AttackResult:
    """A6: binary attributes of the other rows, by one who knows them of 500."""
    features = dense(recording.truth.features[view.target])
    chosen = binary_columns(features)
    if not chosen:
        reason = f"{view.target!r} has no feature of two values that 5 % to 95 % of the rows have"
        return not_applicable("A6", _ATTRIBUTES, view.against, reason)
    known = min(_KNOWN_ROWS, len(features) // 2)
    own = np.hstack([standardised(view.own), _labels(recording)])
    found = gains(features, chosen, own, _aids(recording, view, own), known, _SEED)
    if not len(found.having):
        return not_applicable("A6", _ATTRIBUTES, view.against, f"{known} known rows have every attribute or none")
    return passed_if(
        found.mean <= _MOST_MEAN_GAIN and found.worst <= _MOST_WORST_GAIN,
        "A6",
        _ATTRIBUTES,
        view.against,
        score=float(found.having.mean()),
        baseline=float(found.without.mean()),
        bar=f"AUC gain <= {_MOST_MEAN_GAIN:g} in the mean, <= {_MOST_WORST_GAIN:g} for the worst",
        reason=_with_remark(
            f"knows {known} rows; {len(found.having)} binary features, worst gain {found.worst:+.3f}", view
        ),
        details={"worst_gain": found.worst, "known_rows": known, "attributes": len(found.having)},
    )


def _aids(recording: Recording, view: AttackerView, own: Values) -> list[Values]:
    """Inputs with what the run gives: the mean of the predictions, their components, features found without help."""
    seen = trajectories(recording, view.pushed)
    mean = standardised(seen.mean(axis=1))
    aids = [np.hstack([own, mean]), np.hstack([own, mean, components(seen)])]
    guess = _recovered(recording, view)
    return aids if guess is None else [*aids, np.hstack([own, standardised(guess)])]


def _labels(recording: Recording) -> Values:
    """The labels training used, which all who learned from them know; one column for each class."""
    labels = recording.truth.shown_labels
    if recording.objective.scores == 1:
        return standardised(labels[:, None])
    return standardised((labels[:, None] == np.arange(recording.objective.classes)).astype(np.float64))


def _recovered(recording: Recording, view: AttackerView) -> Values | None:
    """The target's features up to a rotation, where they can be had at all."""
    if _why_no_replay(recording, view):
        return None
    variance = recording.mechanisms[view.target].variance if view.noisy else 0.0
    return recovered(replay_of(recording, view.target, view.pushed, variance))


def _why_no_replay(recording: Recording, view: AttackerView) -> str:
    """Why the target's training cannot be followed; empty if it can."""
    settings = recording.model_settings.get(view.target)
    if view.kind == "sums":
        return "sees only sums over several parties, not the target's predictions"
    if view.kind == "masked":
        return "sees only masked values; A8 tests those"
    if settings is None or settings.kind != LINEAR.name:
        kind = "unknown" if settings is None else settings.kind
        return f"the attack is for linear models, that of {view.target!r} is {kind}; A4 and A6 need no linear model"
    if recording.run.training.joint != "sum":
        return f'the attack is for sums, the run has joint = "{recording.run.training.joint}"; A4 and A6 need no sum'
    if settings.optimizer in ("adam", "adagrad"):
        return (
            f"the attack is for SGD and momentum; {settings.optimizer} steps depend on more than inner products of rows"
        )
    if len(view.pushed) < recording.schedule.blocks:
        return "not every row was pushed"
    return ""


def _with_remark(what: str, view: AttackerView) -> str:
    return f"{what}; {view.remark}" if view.remark else what


def collusion(recording: Recording) -> list[AttackResult]:
    """A7: A4 to A6 by all parties but one together, who see the last one's predictions."""
    if len(recording.run.parties) < 3:
        reason = f"with {len(recording.run.parties)} parties there is no coalition beyond a single party; see A4 to A6"
        return [not_applicable("A7", "collusion of all but one", "all parties but one", reason)]
    return [
        replace(found, test="A7", title=f"collusion: {found.title} ({found.test})")
        for view in coalitions(recording)
        for found in (insider(recording, view), gram(recording, view), attributes(recording, view))
    ]


def _by_each(attack: Callable[[Recording, AttackerView], AttackResult]) -> Attack:
    def run(recording: Recording) -> list[AttackResult]:
        return [attack(recording, view) for view in views(recording)]

    return run


attacks: dict[str, Attack] = {
    "A4": _by_each(insider),
    "A5": _by_each(gram),
    "A6": _by_each(attributes),
    "A7": collusion,
}
