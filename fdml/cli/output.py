"""What the commands share: the two outputs, tables, JSON files, and how a command is stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from fdml.cli.lossy_output import LossyOutput, Output
from fdml.errors import SettingsError
from fdml.extras import need
from fdml.monitor.figures import TITLES, gain_text
from fdml.monitor.history import EpochRecord, LearningCurve, Scheme
from fdml.monitor.terminal import print_line
from fdml.settings.file import read_table

PLOT_ENDINGS = (".png", ".pdf", ".svg")
_WIDE = 120
"""Columns where there is no terminal to fit into."""


def _console(name: Output) -> Console:
    """No markup: a word in square brackets is a word, also in what another party has written."""
    file = cast(IO[str], LossyOutput(name))
    console = Console(file=file, markup=False, emoji=False)
    return console if console.is_terminal else Console(file=file, width=_WIDE, markup=False, emoji=False)


stdout = _console("stdout")
"""For figures."""
stderr = _console("stderr")
"""For progress and remarks, so that only figures go to standard output."""


def echo(line: str) -> None:
    """Print a line of plain text to standard output, however long."""
    print_line(stdout, line)


def person() -> Callable[[str], bool] | None:
    """Puts a question to whoever sits at the terminal; None where nobody does."""
    if not (sys.stdin.isatty() and stderr.is_terminal):
        return None
    return _ask


def _ask(question: str) -> bool:
    """A whole line: a progress bar may be below it, above which no half line can stand."""
    print_line(stderr, f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def command(name: str, path: Path, run: Path | None) -> str:
    """A command as it was typed, for whoever wants to type it again."""
    return f"fdml {name} {path}" + ("" if run is None else f" --run {run}")


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Let Ctrl-C end a command that can go on later: one line says how."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(stderr, f"fdml: stopped; `{command}` goes on from here")
        raise typer.Exit(130) from None


def run_name(run: Path | None, federation: Path) -> str:
    """The name in a run.toml or run.json, or in the run.toml beside federation.toml."""
    path = federation.with_name("run.toml") if run is None else run
    try:
        found = json.loads(path.read_bytes()) if path.suffix == ".json" else read_table(path)
    except (OSError, ValueError):  # whoever reads all of it says what is wrong
        return ""
    return str(found.get("name", ""))


def comparison_table(
    curves: Sequence[LearningCurve], metric: str, paper: Mapping[tuple[str, Scheme], EpochRecord] | None = None
) -> Table:
    """Figures of the last epoch, the paper's beside them where given."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column("scheme")
    for heading in ("train objective", "test loss", f"test {TITLES[metric]}", "seconds"):
        table.add_column(heading, justify="right")
    if paper is not None:
        for heading in ("paper: loss", TITLES[metric], "seconds"):
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
            published = paper.get((curve.model, curve.scheme))
            cells += (
                ["-"] * 3
                if published is None
                else [f"{published.test_loss:.4f}", f"{published.test_metric:.4f}", f"{published.seconds:.0f}"]
            )
        table.add_row(curve.model, curve.scheme, *cells, style="bold" if curve.scheme == "joint" else None)
    return table


def comparison_json(curves: Sequence[LearningCurve], metric: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The table as `rows`, and every epoch of each as `history`."""
    return {
        **facts,
        "rows": [
            {
                "model": each.model,
                "scheme": each.scheme,
                **_figures(each.last, metric),
                "convergence": _trend(each),
                **({"gains": {scheme: gain._asdict() for scheme, gain in each.gains.items()}} if each.gains else {}),
            }
            for each in curves
        ],
        "history": [
            {"model": each.model, "scheme": each.scheme, "epoch": record.epoch, **_figures(record, metric)}
            for each in curves
            for record in each.records
        ],
    }


def joint_over_pooled(curves: Sequence[LearningCurve]) -> dict[str, float]:
    """By model, how many times the seconds of pooled training joint training took."""
    seconds = {(each.model, each.scheme): each.last.seconds for each in curves}
    return {
        model: joint / seconds[model, "pooled"]
        for (model, scheme), joint in seconds.items()
        if scheme == "joint" and seconds.get((model, "pooled"))
    }


def convergence_lines(curves: Sequence[LearningCurve]) -> Iterator[str]:
    """A line for every training that has not converged."""
    for each in curves:
        found = each.convergence
        if found is not None and found.text:
            yield f"{each.model} {each.scheme}: {found.text}"


def gain_lines(curves: Sequence[LearningCurve], metric: str) -> Iterator[str]:
    """What joint training brings over what takes none, in words."""
    for each in curves:
        for scheme, gain in each.gains.items():
            yield f"{each.model}: {gain_text(scheme, metric, *gain)}"


def _trend(curve: LearningCurve) -> str | None:
    return None if curve.convergence is None else curve.convergence.trend


def _figures(record: EpochRecord, metric: str) -> dict[str, float]:
    return {
        "train_objective": record.train_objective,
        "test_loss": record.test_loss,
        f"test_{metric}": record.test_metric,
        "seconds": record.seconds,
    }


def check_writable(*paths: Path | None) -> None:
    """Raise now, not after the work, if a file could not be written."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise SettingsError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; make it first")
        if path is not None and path.is_dir():
            raise SettingsError(f"cannot write {str(path)!r}: it is a folder; name a file")


def check_plot(path: Path | None) -> None:
    """Raise now, not after the work, if a plot could not be drawn or written."""
    check_writable(path)
    if path is not None:
        need("matplotlib", "--plot")
        if path.suffix.lower() not in PLOT_ENDINGS:
            raise SettingsError(f"--plot is {str(path)!r}; let its name end in {', '.join(PLOT_ENDINGS)}")


def write_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write the figures, if a file was asked for."""
    if path is not None:
        try:
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write {str(path)!r} ({error.strerror}); make room, or name another file"
            ) from None
        print_line(stderr, f"figures written to {path}")
