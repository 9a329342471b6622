"""Attacks on private labels: by gradients, and by the model that an attacker trained itself.

Every party but the label party sees the same gradients, row by row. A row's
label is the same in every epoch, so whatever hides it is averaged over epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.data.rows import DenseRows, PlainRows, row_count, take, to_scipy, width
from fdml.models.metrics import auc
from fdml.privacy.randomised_response import chance_of_truth

Values = NDArray[np.float64]

_INFERENCE = "direct label inference"
_SCORING = "gradients averaged over epochs"
_COMPLETION = "own model as label predictor"
_SLACK = 0.01
"""Over the accuracy that randomised labels allow."""
_LEAD = 0.02
"""By how much of an AUC an attack may exceed what it is compared with."""
_WAYS = ("direction", "norm", "votes")
_SIGMAS = 4.0
_KNOWN = 40
"""Labels that the attacker of A3 knows."""
_DRAWS = 5
"""Choices of the known rows, of which the mean counts."""
_MOST_ROWS = 50_000
"""Rows that yardsticks are fitted on."""
_CLOSE = 0.01
"""A score is recovered if it is this near."""


@dataclass(frozen=True)
class Evidence:
    """What the gradients say of each row that was visited, over all its visits."""

    rows: NDArray[np.int64]
    mean: Values
    """Of the gradients, `(rows, width)`."""
    size: Values
    """The mean of the gradients' lengths, `(rows,)`."""
    votes: Values
    """How often each class was told, `(rows, classes)`, as a share of the visits."""
    last: Values
    """The gradients of the last visit."""


def gather(recording: Recording) -> Evidence:
    """The gradients row by row."""
    rows, width = recording.schedule.rows, recording.objective.width
    total, last, size, visits = np.zeros((rows, width)), np.zeros((rows, width)), np.zeros(rows), np.zeros(rows)
    votes = np.zeros((rows, recording.objective.classes))
    for step, values in sorted(recording.gradients.items()):
        visit = recording.schedule.visit(step)
        here = slice(visit.start, visit.stop)
        total[here] += values
        last[here] = values
        size[here] += np.linalg.norm(values, axis=1)
        visits[here] += 1
        votes[np.arange(visit.start, visit.stop), _guessed(recording, values).astype(np.int64)] += 1
    seen = np.flatnonzero(visits)
    often = visits[seen, None]
    return Evidence(seen, total[seen] / often, size[seen] / often[:, 0], votes[seen] / often, last[seen])


def infer_labels(recording: Recording) -> list[AttackResult]:
    """A1: the label by the gradient's sign, or its least entry; the score by its size.

    Over all visits the attacker takes the mean of the gradients or lets each of them vote, whichever does better.
    """
    absent = _absent(recording)
    if absent:
        return [not_applicable("A1", _INFERENCE, _everyone(recording), absent)]
    evidence = gather(recording)
    labels = recording.truth.labels[evidence.rows]
    guesses = {
        "mean": _guessed(recording, evidence.mean),
        "votes": evidence.votes.argmax(axis=1),
        "last_epoch": _guessed(recording, evidence.last),
    }
    details = {name: float(np.mean(guess == labels)) for name, guess in guesses.items()}
    accuracy = max(details.values())
    allowed, bar, reason = _allowed(recording, len(labels))
    return [
        passed_if(
            accuracy <= allowed,
            "A1",
            _INFERENCE,
            _everyone(recording),
            score=accuracy,
            baseline=_commonest(labels),
            bar=bar,
            reason=reason,
            details={**details, **_totals(recording)},
        )
    ]


def score_gradients(recording: Recording) -> list[AttackResult]:
    """A2: minus the mean gradient, its mean length, and how often each label was told, as scores of the label."""
    absent = _absent(recording)
    if absent:
        return [not_applicable("A2", _SCORING, _everyone(recording), absent)]
    evidence = gather(recording)
    labels, shown = (each[evidence.rows] for each in (recording.truth.labels, recording.truth.shown_labels))
    norm = class_auc(labels, np.repeat(evidence.size[:, None], recording.objective.scores, axis=1), either_way=True)
    leaks = {
        "direction": class_auc(labels, -evidence.mean),
        "norm": norm,
        "votes": class_auc(labels, evidence.votes[:, -recording.objective.scores :]),
        "one_epoch": class_auc(labels, -evidence.last),
        "shown_labels": class_auc(labels, _indicators(shown, recording.objective.scores)),
        "with_total": _with_total(recording, evidence, labels),
    }
    return [_scored(recording, party, evidence, labels, leaks) for party in _attackers(recording)]


def complete_model(recording: Recording) -> list[AttackResult]:
    """A3: the attacker's own model, beside one of 40 known labels and one of all labels on the same features."""
    absent = _absent(recording)
    if not absent and not recording.truth.models:
        absent = "the recording has no final models"
    if absent:
        return [not_applicable("A3", _COMPLETION, _everyone(recording), absent)]
    return [_completed(recording, party) for party in _attackers(recording)]


def class_auc(labels: Values, scores: Values, *, either_way: bool = False) -> float:
    """The AUC of scores `(rows, scores)`; of several classes the mean of each against the rest.

    `either_way` is for a score whose direction the attacker has to guess, and guesses right.
    """
    ones = np.ones(len(labels))
    columns = [labels] if scores.shape[1] == 1 else [(labels == at).astype(np.float64) for at in range(scores.shape[1])]
    found = [auc(each, scores[:, at], ones) for at, each in enumerate(columns) if 0 < each.sum() < len(each)]
    if either_way:
        found = [max(each, 1.0 - each) for each in found]
    return float(np.mean(found)) if found else 0.5


def _allowed(recording: Recording, rows: int) -> tuple[float, str, str]:
    """The accuracy that passes, and why."""
    epsilon, classes = recording.run.privacy.label_epsilon, recording.objective.classes
    if epsilon == "off":
        return (
            -math.inf,
            "none passes without protection",
            "label_epsilon is off: nothing protects the labels, and every gradient tells its row's (1.000 is expected)",
        )
    limit = chance_of_truth(epsilon, classes)
    chance = _SIGMAS * math.sqrt(limit * (1 - limit) / rows)
    slack = max(_SLACK, chance)
    why = f"{_SIGMAS:g} standard deviations of {rows} rows" if chance > _SLACK else "the usual slack"
    return (
        limit + slack,
        f"accuracy <= {limit:.3f} + {slack:.3f}",
        f"labels were randomised once with epsilon {epsilon:g}, so {limit:.3f} of what gradients tell is true; "
        f"{slack:.3f} is {why}",
    )


def _guessed(recording: Recording, gradients: Values) -> Values:
    return recording.objective.invert_gradient(gradients)[1]


def _totals(recording: Recording) -> dict[str, float]:
    """The share of the parties' summed scores that the gradients give away; nothing where totals may be stale."""
    if recording.run.training.staleness:
        return {}
    off = [
        np.abs(scores_behind(recording, recording.gradients[step]) - true) / (1 + np.abs(true))
        for step, true in pushed_sums(recording).items()
    ]
    return {"totals_recovered": float(np.mean(np.concatenate(off).max(axis=1) < _CLOSE))} if off else {}


def pushed_sums(recording: Recording) -> dict[int, Values]:
    """By step the sum of what all parties pushed, where all did; of several scores without their mean."""
    parts = [recording.plain[party] for party in recording.run.parties]
    steps = [step for step in sorted(recording.gradients) if all(step in part for part in parts)]
    return {step: _centred(np.sum([part[step] for part in parts], axis=0)) for step in steps}


def scores_behind(recording: Recording, gradients: Values) -> Values:
    """The scores that have these gradients; of several scores without their mean, which nobody can tell."""
    found, _ = recording.objective.invert_gradient(gradients)
    return _centred(found.astype(np.float64))


def _centred(scores: Values) -> Values:
    return scores - scores.mean(axis=1, keepdims=True) if scores.shape[1] > 1 else scores


def _with_total(recording: Recording, evidence: Evidence, labels: Values) -> float:
    """The AUC of the shown label and the joint score together: what is left after epsilon, for information."""
    epsilon = recording.run.privacy.label_epsilon
    weight = 50.0 if epsilon == "off" else epsilon
    shown = _indicators(evidence.votes.argmax(axis=1).astype(np.float64), recording.objective.scores)
    return class_auc(labels, _comparable(scores_behind(recording, evidence.last) + weight * shown))


def _scored(
    recording: Recording, party: str, evidence: Evidence, labels: Values, leaks: dict[str, float]
) -> AttackResult:
    leak, own = max(leaks[way] for way in _WAYS), _own_auc(recording, party, evidence.rows, labels)
    off = recording.run.privacy.label_epsilon == "off"
    limit = own if off else max(own, leaks["shown_labels"])
    if off:
        reason = f"label_epsilon is off; the attacker's own model alone reaches {own:.3f}"
    elif limit == own:
        reason = f"the attacker's own model reaches {own:.3f}, more than the randomised labels that were shown"
    else:
        reason = f"the randomised labels that were shown reach {limit:.3f} themselves, the attacker's model {own:.3f}"
    return passed_if(
        leak <= limit + _LEAD,
        "A2",
        _SCORING,
        f"party {party!r}",
        score=leak,
        baseline=own,
        bar=f"leak AUC <= {limit:.3f} + {_LEAD}",
        reason=reason,
        details=leaks,
    )


def _own_auc(recording: Recording, party: str, rows: NDArray[np.int64], labels: Values) -> float:
    """How well a party's final model alone tells the labels; .5 if there is none."""
    model = recording.truth.models.get(party)
    if model is None:
        return 0.5
    scores = model.predict(recording.truth.features[party])[rows]
    return class_auc(labels, _comparable(scores.astype(np.float64)))


def _comparable(scores: Values) -> Values:
    """Scores that rank rows: of several classes, the chance of each."""
    return softmax(scores, axis=1) if scores.shape[1] > 1 else scores


def _completed(recording: Recording, party: str) -> AttackResult:
    truth = recording.truth
    chance = np.random.default_rng(0)
    chosen = np.sort(chance.permutation(len(truth.labels))[:_MOST_ROWS])
    labels, features = truth.labels[chosen], take(truth.features[party], chosen)
    own = _own_auc(recording, party, chosen, labels)
    classes = recording.objective.classes
    solo = _fitted_auc(features, labels, np.arange(len(labels)), classes)
    few = float(np.mean([_fitted_auc(features, labels, _known(labels, chance), classes) for _ in range(_DRAWS)]))
    return passed_if(
        own <= solo + _LEAD,
        "A3",
        _COMPLETION,
        f"party {party!r}",
        score=own,
        baseline=few,
        bar=f"own model's AUC <= {solo:.3f} + {_LEAD}",
        reason=f"a linear model of the party's features and all labels reaches {solo:.3f}, with {_KNOWN} known labels "
        f"{few:.3f}: what a party's features tell of labels, no gradient needs to",
        details={"solo": solo, "few_labels": few},
    )


def _known(labels: Values, chance: np.random.Generator) -> NDArray[np.int64]:
    """Rows whose labels the attacker knows: any, but for one of each class."""
    order = chance.permutation(len(labels))
    firsts = np.unique(labels[order], return_index=True)[1]
    rest = np.setdiff1d(np.arange(min(_KNOWN, len(order))), firsts)
    known: NDArray[np.int64] = order[np.concatenate([firsts, rest])[:_KNOWN]]
    return known


def _fitted_auc(features: PlainRows, labels: Values, known: NDArray[np.int64], classes: int) -> float:
    """The AUC over all rows of a linear model of the known ones."""
    if width(features) == 0 or len(np.unique(labels[known])) < 2:
        return 0.5
    everything = features.values if isinstance(features, DenseRows) else to_scipy(features)
    fitted = make_pipeline(StandardScaler(with_mean=False), LogisticRegression(max_iter=5000, tol=1e-3))
    fitted.fit(everything[known], labels[known])
    chances = fitted.predict_proba(everything)
    if classes == 2:
        return class_auc(labels, chances[:, 1:])
    scores = np.zeros((row_count(features), classes))
    scores[:, fitted.classes_.astype(np.int64)] = chances
    return class_auc(labels, scores)


def _indicators(labels: Values, scores: int) -> Values:
    """Labels as scores: themselves for one score, else 1 at the class."""
    return labels[:, None] if scores == 1 else (labels[:, None] == np.arange(scores)).astype(np.float64)


def _commonest(labels: Values) -> float:
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _attackers(recording: Recording) -> list[str]:
    return [party for party in recording.run.parties if party != recording.run.label_party]


def _everyone(recording: Recording) -> str:
    return f"every party but {recording.run.label_party!r}"


def _absent(recording: Recording) -> str:
    """Why there is nothing to attack; empty if there is."""
    if recording.run.privacy.labels == "shared":
        return "labels are shared: the parties know them by agreement"
    if len(recording.run.parties) < 2:
        return "there is no party but the label party"
    return "" if recording.gradients else "no gradients were recorded"


attacks: dict[str, Attack] = {"A1": infer_labels, "A2": score_gradients, "A3": complete_model}
