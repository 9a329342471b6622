"""What was found out about a run beside it: who brings what (`fdml explain`), and other schemes (`fdml compare`).

They are kept in files of the label party's folder, for its report. They are only for people: a file that is damaged or
gone is left out.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fdml.models.shapley import PartyShares
from fdml.monitor.history import Gain, LearningCurve, Scheme
from fdml.settings import RunSettings, run_hash
from fdml.storage.atomic import write_file

EXPLAINED = "explained.json"
"""In the folder of a run at its label party."""
COMPARED = "comparison.json"
"""In the label party's folder."""


@dataclass(frozen=True)
class Brought:
    """Who brings what to a version."""

    version: str
    metric: str
    rows: int
    shares: Mapping[str, Gain]
    without: Mapping[str, Gain]


@dataclass(frozen=True)
class OtherSchemes:
    """What `fdml compare` found with the settings of a run."""

    metric: str
    rows: int
    seeds: int
    figures: Mapping[Scheme, tuple[float, float]]
    """By scheme, the test loss and the metric of its last epoch."""
    version: str = ""
    """The version whose held-out rows these are; empty where `fdml compare` held out rows of its own."""


def keep_shares(folder: Path, version: str, metric: str, rows: int, found: PartyShares) -> None:
    """Keep who brings what, in the folder of the run."""
    brought = Brought(version, metric, rows, dict(found.shares), dict(found.without))
    _write(folder / EXPLAINED, asdict(brought))


def read_shares(folder: Path) -> Brought | None:
    """Who brings what, where that was computed."""
    try:
        found = json.loads((folder / EXPLAINED).read_text(encoding="utf-8"))
        return Brought(
            str(found["version"]),
            str(found["metric"]),
            int(found["rows"]),
            *({str(name): Gain(*gain) for name, gain in found[part].items()} for part in ("shares", "without")),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def found_schemes(
    metric: str, rows: int, seeds: int, curves: Sequence[LearningCurve], version: str = ""
) -> OtherSchemes:
    """What the curves of a comparison came to."""
    figures = {each.scheme: (each.last.test_loss, each.last.test_metric) for each in curves}
    return OtherSchemes(metric, rows, seeds, figures, version)


def keep_comparison(folder: Path, run: RunSettings, found: OtherSchemes) -> None:
    """Keep what all schemes came to, in the label party's folder, under the run's settings."""
    _write(folder / COMPARED, {"run": run_hash(run).hex(), **asdict(found)})


def read_comparison(folder: Path, run: RunSettings) -> OtherSchemes | None:
    """What all schemes came to, where they were compared with exactly these settings."""
    try:
        found: dict[str, Any] = json.loads((folder / COMPARED).read_text(encoding="utf-8"))
        if found["run"] != run_hash(run).hex():
            return None
        figures = {name: (float(loss), float(metric)) for name, (loss, metric) in found["figures"].items()}
        version = str(found.get("version", ""))
        return OtherSchemes(str(found["metric"]), int(found["rows"]), int(found["seeds"]), figures, version)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        write_file(path, (json.dumps(content, indent=1) + "\n").encode())
