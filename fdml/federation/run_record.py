"""All that a party's folder has of one of its runs: what the live page and the report are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdml.errors import DataError, SettingsError, StateCorrupt
from fdml.events import Evaluated
from fdml.federation.findings import Brought, OtherSchemes, read_comparison, read_shares
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_folder import MODEL, RUNS, SETTINGS, begun_run, run_names
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.monitor.history import Scheme, read_history
from fdml.monitor.measures import MEASURES, Measures, read_measures
from fdml.privacy.statement import Statement
from fdml.settings import RunSettings

_LINES: tuple[Scheme, ...] = ("late fusion", "pooled")
"""What a run cannot know of itself; the label party alone it trains."""


@dataclass(frozen=True)
class RunRecord:
    """All that a party's folder has of a run."""

    party: str
    settings: RunSettings
    epochs: tuple[Evaluated, ...]
    measures: Measures
    statement: Statement | None
    card: BundleCard | None
    """None while the run goes on."""
    brought: Brought | None = None
    """Who brings what to this version, where that was computed."""
    schemes: OtherSchemes | None = None
    """What other schemes came to with the same settings, where they were compared."""

    @property
    def kept(self) -> Evaluated | None:
        """The epoch whose model stays, at the label party; the last one while the run goes on."""
        chosen = [each for each in self.epochs if each.chosen]
        return next(reversed(chosen or self.epochs), None)

    @property
    def is_label_party(self) -> bool:
        """Whether this party owns the labels."""
        return self.party == self.settings.label_party

    @property
    def same_rows(self) -> OtherSchemes | None:
        """What other schemes came to on the held-out rows of this very version; None where nobody has compared them."""
        known = self.schemes is not None and self.card is not None and self.schemes.version == self.card.version
        return self.schemes if known else None

    @property
    def levels(self) -> dict[str, dict[str, float]]:
        """By curve, the figures of other schemes on the same held-out rows: flat lines beside the joint model's."""
        losses: dict[str, float | None] = {}
        metrics: dict[str, float | None] = {}
        kept, found = self.kept, self.same_rows
        if kept is not None and kept.compared is not None:
            name = f"{kept.compared.party} alone"
            metrics[name] = kept.compared.alone
            if kept.figures.get("log_loss") == kept.test_loss:  # else the run's loss is another
                losses[name] = kept.compared.figures.get("log_loss")
        for scheme in _LINES:
            if found is not None and scheme in found.figures:
                losses[scheme], metrics[scheme] = found.figures[scheme]
        return {"test_loss": _known(losses), "test_metric": _known(metrics)}

    @property
    def levels_note(self) -> str:
        """For the label party: which flat lines there are, of which rows, and how to have more. Others have none."""
        if not self.is_label_party:
            return ""
        if (found := self.same_rows) is not None:
            return (
                "Late fusion and pooled training by `fdml compare`, on the same held-out rows: the last epoch, mean "
                f"of {found.seeds} seed{'s' * (found.seeds != 1)}."
            )
        needed = "Late fusion and pooled training are not known in a run, as they need all data in one place."
        if self.card is None:
            later = f"{self.party} alone is added when the run ends. " * (self.settings.evaluation.baseline == "alone")
            return f"{later}{needed}"
        return f"{needed} There, `fdml compare run.toml` adds them here, on the same held-out rows."


def read_record(home: Path, party: str, name: str) -> RunRecord:
    """What a party has of one of its runs. Files that are not there yet are left out."""
    settings, folder = begun_run(home, name), home / RUNS / name
    history = read_history(folder / HISTORY)
    card = None
    if (folder / MODEL).is_dir():
        try:
            card = Bundle.check(folder / MODEL)
        except (DataError, StateCorrupt):  # a page must not fail for it; predicting will say what is wrong
            card = None
    brought = read_shares(folder)
    return RunRecord(
        party,
        settings,
        tuple(history[epoch] for epoch in sorted(history)),
        read_measures(folder / MEASURES) or Measures(),
        Statement.read(folder),
        card,
        brought if card is not None and brought is not None and brought.version == card.version else None,
        read_comparison(home, settings),
    )


def _known(figures: Mapping[str, float | None]) -> dict[str, float]:
    """A comparison has no number where a figure is not defined."""
    return {name: figure for name, figure in figures.items() if figure is not None and math.isfinite(figure)}


def newest_run(home: Path) -> str:
    """The run that was begun last in a party's folder."""
    names = run_names(home)
    if not names:
        raise SettingsError(f"no run has begun in {str(home / RUNS)!r}; `fdml join` or `fdml run` begins one")
    return max(names, key=lambda name: (home / RUNS / name / SETTINGS).stat().st_mtime)
