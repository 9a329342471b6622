"""How commands show and write their figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from fdml.errors import SettingsError
from fdml.events import Event, Listener, Refused, Remark, Waiting
from fdml.monitor.history import EpochRecord, LearningCurve, Scheme
from fdml.storage.atomic import PUBLIC, write_file

NAMES = {"auc": "AUC", "accuracy": "accuracy", "r2": "R2"}

_WIDE = 120
"""Columns where there is no terminal to fit into."""


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDE)


stdout = _console(stderr=False)
stderr = _console(stderr=True)
"""For progress and remarks, so that figures alone go to standard output."""


def echo(line: str) -> None:
    """A line of plain text, however long."""
    stdout.print(line, highlight=False, soft_wrap=True, markup=False)


def figures(loss: float | None, metric: float | None) -> str:
    """What was found of the held-out rows, as far as it is told here."""
    if loss is None or metric is None:
        return "what was found of private labels is told to the label party alone"
    return f"test loss {loss:.4f}, test metric {metric:.4f}"


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Let Ctrl-C end a command that can go on later: one line says how."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print(f"fdml: stopped; `{command}` goes on from here", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None


def comparison_table(
    curves: Sequence[LearningCurve], metric: str, paper: Mapping[tuple[str, Scheme], EpochRecord] | None = None
) -> Table:
    """Figures of the last epoch, the paper's beside them where given."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column("scheme")
    for heading in ("train objective", "test loss", f"test {NAMES[metric]}", "seconds"):
        table.add_column(heading, justify="right")
    if paper is not None:
        for heading in ("paper: loss", NAMES[metric], "seconds"):
            table.add_column(heading, justify="right", style="dim")
    for curve in curves:
        last = curve.last
        cells = [
            f"{last.train_objective:.4f}",
            f"{last.test_loss:.4f}",
            f"{last.test_metric:.4f}",
            f"{last.seconds:.2f}",
        ]
        if paper is not None:
            theirs = paper.get((curve.model, curve.scheme))
            cells += (
                ["-"] * 3
                if theirs is None
                else [f"{theirs.test_loss:.4f}", f"{theirs.test_metric:.4f}", f"{theirs.seconds:.0f}"]
            )
        table.add_row(curve.model, curve.scheme, *cells, style="bold" if curve.scheme == "joint" else None)
    return table


def comparison_json(curves: Sequence[LearningCurve], metric: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The table as `rows`, and every epoch of each as `history`."""
    return {
        **facts,
        "rows": [{"model": each.model, "scheme": each.scheme, **_figures(each.last, metric)} for each in curves],
        "history": [
            {"model": each.model, "scheme": each.scheme, "epoch": record.epoch, **_figures(record, metric)}
            for each in curves
            for record in each.records
        ],
    }


def _figures(record: EpochRecord, metric: str) -> dict[str, float]:
    return {
        "train_objective": record.train_objective,
        "test_loss": record.test_loss,
        f"test_{metric}": record.test_metric,
        "seconds": record.seconds,
    }


def check_writable(*paths: Path | None) -> None:
    """Raise now, not after the work, if a file or folder could not be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise SettingsError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")


def write_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write the figures, if a file was asked for."""
    if path is not None:
        write_file(path, (json.dumps(content, indent=1) + "\n").encode(), mode=PUBLIC)
        stderr.print(f"figures written to {path}", highlight=False)


def remarks_to(console: Console) -> Listener:
    """A listener that prints remarks, refusals and whom a party waits for, one line each."""

    def listen(event: Event) -> None:
        match event:
            case Remark(_, text):
                console.print(text, highlight=False)
            case Refused(_, _, reason):
                console.print(f"refused: {reason}", highlight=False)
            case Waiting(_, names):
                console.print(f"waiting for {', '.join(names)}", highlight=False)

    return listen
