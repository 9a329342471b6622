"""The last lines of a run at its label party: how good the model is, and which class is 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fdml.models.bundle import Bundle
from fdml.monitor.figures import CHOSEN, figures_line


def bundle_lines(bundle: Bundle) -> Iterator[str]:
    """What a person should read of a label party's model; nothing at the other parties."""
    card = bundle.card
    if card.metrics is None or not card.figures:
        return
    yield f"held-out rows, model of epoch {card.metrics.epoch}: {figures_line(card.figures)}"
    if card.chosen_by_held_out_rows:
        yield CHOSEN
    if card.compared is not None:
        yield card.compared.text
    labels = bundle.labels
    if labels is not None and labels.task == "binary" and labels.classes is not None:
        yield f"{str(labels.classes[1])!r} is 1, {str(labels.classes[0])!r} is 0"


def bundle_figures(folder: Path | None) -> tuple[list[str], dict[str, Any]]:
    """The lines of the bundle in this folder, and its figures for a program."""
    if folder is None:
        return [], {}
    bundle = Bundle.load(folder)
    metrics = bundle.card.metrics
    if metrics is None:
        return [], {}
    facts = {
        "epoch": metrics.epoch,
        "train_loss": metrics.train_loss,
        "test_loss": metrics.test_loss,
        "test_metric": metrics.test_metric,
        "chosen_by_held_out_rows": bundle.card.chosen_by_held_out_rows,
        "figures": bundle.card.figures or {},
        "compared": None if bundle.card.compared is None else asdict(bundle.card.compared),
    }
    return list(bundle_lines(bundle)), facts
