"""A16: labels that are shown in two runs over the same rows. The second must tell nothing that the first did not.

Draws of its own in each run make rows on which both runs agree nearly certain. The same draws by position on two
orders of rows are worse: along every cycle of positions they cancel, and each label is known but for one bit of the
whole cycle.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.privacy.randomised_response import chance_of_truth

_TITLE = "labels shown in two runs"
_SIGMAS = 4.0
_SLACK = 0.01

Labels = NDArray[np.float64]


def two_lives(recording: Recording) -> list[AttackResult]:
    """The best of: rows on which both runs agree; flips by position, solved along the cycles of the two orders."""
    view, absent = f"every party but {recording.run.label_party!r}", _absent(recording)
    further, epsilon = recording.truth.further_run, recording.run.privacy.label_epsilon
    if absent or further is None or epsilon == "off":
        return [not_applicable("A16", _TITLE, view, absent or "what a further run would show is not known")]
    truth, first, classes = recording.truth.labels, recording.truth.shown_labels, recording.objective.classes
    second = np.empty_like(first)
    second[further.order] = further.shown_labels
    agreeing = first == second
    details = {
        "one_run": float(np.mean(first == truth)),
        "agreeing_share": float(np.mean(agreeing)),
        "agreeing": float(np.mean(first[agreeing] == truth[agreeing])) if agreeing.any() else 0.0,
        "by_position": float(np.mean(_by_position(first, further.shown_labels, further.order, classes) == truth)),
    }
    score = max(details["agreeing"], details["by_position"])
    limit = chance_of_truth(epsilon, classes)
    slack = max(_SLACK, _SIGMAS * math.sqrt(limit * (1 - limit) / max(1, int(agreeing.sum()))))
    return [
        passed_if(
            score <= limit + slack,
            "A16",
            _TITLE,
            view,
            score=score,
            baseline=details["one_run"],
            bar=f"accuracy <= {limit:.3f} + {slack:.3f}",
            reason=f"label epsilon {epsilon:g} lets {limit:.3f} of the labels be right, however many runs show them; "
            f"both runs agree on {details['agreeing_share']:.3f} of the rows",
            details=details,
        )
    ]


def _by_position(first: Labels, second: Labels, order: NDArray[np.int64], classes: int) -> Labels:
    """Labels if both runs moved them by the same amount at the same position.

    `first[p] = label[p] + F[p]` and `second[q] = label[order[q]] + F[q]`, so `F[order[q]]` follows from `F[q]` along
    each cycle of `order`. The first F of a cycle is the one that leaves most labels unmoved.
    """
    moves = np.zeros(len(first))
    seen = np.zeros(len(first), bool)
    for start in range(len(first)):
        cycle = []
        at = start
        while not seen[at]:
            seen[at] = True
            cycle.append(at)
            at = int(order[at])
        for here, following in pairwise(cycle):
            moves[following] = (moves[here] + first[following] - second[here]) % classes
        if cycle:
            commonest = np.bincount(moves[cycle].astype(np.int64), minlength=classes).argmax()
            moves[cycle] = (moves[cycle] - commonest) % classes
    guessed: Labels = (first - moves) % classes
    return guessed


def _absent(recording: Recording) -> str:
    if recording.run.privacy.labels == "shared":
        return "labels are shared: the parties know them by agreement"
    if recording.run.privacy.label_epsilon == "off":
        return "label_epsilon is off: one run tells every label"
    return ""


attacks: dict[str, Attack] = {"A16": two_lives}
