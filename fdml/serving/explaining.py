"""Who brings what to a published model, found by its label party from answers to questions.

With two parties the other's part is known from any answer. With more of them, each part is asked for by itself: that
is what `absent = "calibrated"` allows, and under `"fail"` no party answers it. The asker then knows every other party's
part of these rows. Each answered row is a release that its party counts, as any prediction; the same row of the same
version again is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.errors import DataError, SettingsError
from fdml.models.losses import Floats
from fdml.models.shapley import Coalition, PartyShares, party_shares
from fdml.protocol.fixed_point import Codes
from fdml.serving.absence import LabelledRows
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.reading import score_of

MOST_ROWS = 20_000
"""Of the rows, so many are asked for unless more are wanted."""


@dataclass(frozen=True)
class Explained:
    """What was found."""

    rows: int
    """Labelled rows that all parties hold; the figures are of these."""
    asked: int
    found: PartyShares
    singly: bool
    """Whether each other party's part was asked for by itself."""


def explain(asker: Asker, labelled: LabelledRows, most: int = MOST_ROWS) -> Explained:
    """Ask for parts of labelled rows, and share out what the parties are worth together."""
    own, run, reading = asker.own, asker.own.run, asker.reading
    if own.party != run.label_party or reading is None:
        raise SettingsError(f"the labels are those of {run.label_party!r}; explain there, not at {own.party!r}")
    if len(own.others) > 1 and run.serving.absent == "fail":
        raise SettingsError(
            "to share out what each of three or more parties brings takes sums without some of them, and "
            'serving.absent = "fail" lets no party answer these; agree on absent = "calibrated" in run.toml'
        )
    chosen = _some(labelled, most, run.training.seed)
    parts, known = _parts(asker, chosen.rows)
    if not known.any():
        raise DataError(f"none of {len(known)} rows is held by all parties; check the ids")
    sample = chosen.labels.take(np.flatnonzero(known))

    def score(parties: Coalition) -> Floats:
        total = sum((parts[name][known] for name in sorted(parties)), np.zeros_like(parts[own.party][known]))
        return score_of(run, total, own.facts.bits, reading).astype(np.float64)

    loss = run.chosen_loss
    found = party_shares(run.task, loss, run.parties, score, sample, seed=run.training.seed)
    return Explained(int(known.sum()), len(known), found, singly=len(own.others) > 1)


def _parts(asker: Asker, rows: AskedRows) -> tuple[dict[str, Codes], NDArray[np.bool_]]:
    """By party its parts of all rows, and which rows all parties hold."""
    own, size = asker.own, asker.rows_at_once
    found: dict[str, list[Codes]] = {name: [] for name in own.run.parties}
    known = []
    for start in range(0, len(rows), size):
        leads = {other: keys.slice(start, size) for other, keys in rows.leads.items()}
        some = AskedRows(rows.ids.slice(start, size), leads)
        total, all_hold = asker.with_own(np.zeros((len(some), own.column.width), np.int64), some)
        found[own.party].append(total)
        for name in own.others:
            parts = asker.parts(some, [name], again=False)
            if name in parts.absent:
                raise DataError(f"{name} has not answered: {parts.absent[name]}")
            found[name].append(parts.total)
            all_hold &= parts.known[name]
        known.append(all_hold)
    return {name: np.concatenate(each) for name, each in found.items()}, np.concatenate(known)


def _some(labelled: LabelledRows, most: int, seed: int) -> LabelledRows:
    """At most so many of the rows, drawn by the seed."""
    count = len(labelled.rows)
    if count <= most:
        return labelled
    chosen = np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
    leads = {other: keys.take(chosen) for other, keys in labelled.rows.leads.items()}
    sample: RowSet = labelled.labels.take(chosen)
    return LabelledRows(AskedRows(labelled.rows.ids.take(chosen), leads), sample)
