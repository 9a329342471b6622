"""Scores without some parties: the label party fits scale and offset of the others' sum to rows whose labels it has.

What it needs it asks for as any other rows, so every party has agreed to it by `absent = "calibrated"` and counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdml.data.row_set import RowSet
from fdml.models.calibration import Calibration, calibrate
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.reading import score_of
from fdml.storage.atomic import write_file

SAMPLE = 4096
"""Labelled rows that a calibration is fitted to, at most."""
_FEWEST = 50
_LAYOUT = "fdml absence 1"


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of the label party and their labels, encoded as in training."""

    rows: AskedRows
    labels: RowSet


class AbsenceCalibrations:
    """Calibrations by the set of missing parties, fitted when they are first needed and kept in a file."""

    def __init__(self, asker: Asker, labelled: Callable[[int], LabelledRows], path: Path | None = None) -> None:
        """`labelled` gives at most so many rows, the same ones every time."""
        self._asker = asker
        self._labelled = labelled
        self._path = path
        self._known = self._read()

    def __call__(self, missing: frozenset[str]) -> Calibration | None:
        """How a score without these parties is read; None where too few rows could be asked for."""
        key = ",".join(sorted(missing))
        if key not in self._known:
            found = self._fit(missing)
            if found is None:
                return None
            self._known[key] = found
            self._write()
        return self._known[key]

    def fit_single(self) -> list[str]:
        """Fit the calibration of every single absence; gives the parties without whom there is none yet."""
        return [name for name in self._asker.own.run.parties if self(frozenset([name])) is None]

    def _fit(self, missing: frozenset[str]) -> Calibration | None:
        asker, own = self._asker, self._asker.own
        reading = asker.reading
        present = [name for name in own.others if name not in missing]
        if reading is None or (not present and own.party in missing):
            return None
        labelled = self._labelled(min(SAMPLE, asker.rows_at_once))
        parts = asker.parts(labelled.rows, present, again=False)
        if parts.absent:
            return None
        known = np.logical_and.reduce([np.ones(len(labelled.rows), bool), *parts.known.values()])
        total = parts.total
        if own.party not in missing:
            total, mine = asker.with_own(total, labelled.rows)
            known &= mine
        if known.sum() < _FEWEST:
            return None
        score = score_of(own.run, total[known], own.facts.bits, reading).astype(np.float64)
        sample = labelled.labels.take(np.flatnonzero(known))
        return calibrate(own.run.chosen_loss, score, sample)

    def _read(self) -> dict[str, Calibration]:
        if self._path is None or not self._path.is_file():
            return {}
        try:
            found: dict[str, Any] = json.loads(self._path.read_bytes())
            if found["layout"] != _LAYOUT or found["version"] != self._asker.own.facts.version:
                return {}
            return {
                key: Calibration(float(scale), np.asarray(offset, np.float64))
                for key, (scale, offset) in found["without"].items()
            }
        except (ValueError, TypeError, KeyError):
            return {}  # it is fitted again

    def _write(self) -> None:
        if self._path is None:
            return
        without = {key: [each.scale, each.offset.tolist()] for key, each in self._known.items()}
        facts = {"layout": _LAYOUT, "version": self._asker.own.facts.version, "without": without}
        write_file(self._path, (json.dumps(facts, indent=1) + "\n").encode())
