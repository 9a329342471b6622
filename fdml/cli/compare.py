"""fdml compare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from fdml.cli.options import JsonOption, PlotOption, SeedsOption
from fdml.cli.output import (
    check_plot,
    check_writable,
    comparison_json,
    comparison_table,
    echo,
    stderr,
    stdout,
    write_json,
)
from fdml.errors import SettingsError
from fdml.experiments import compare as schemes
from fdml.experiments.compare import workload
from fdml.experiments.comparison_input import contenders, from_data_file, from_run_file
from fdml.experiments.dataset import JointDataset
from fdml.models.registry import ready_kinds
from fdml.monitor.history import METRIC_OF, LearningCurve
from fdml.monitor.plots import draw_comparison
from fdml.monitor.terminal import epoch_progress, print_line
from fdml.privacy.ledger import Ledger
from fdml.settings import Task, TrainingSettings
from fdml.settings_data import DataSettings

_DATA_FILE = "For a data file"
_KINDS_HELP = f"Any of {', '.join(ready_kinds())}."


def compare(
    source: Annotated[Path, typer.Argument(help="A run.toml, or a data file: CSV, Parquet, LIBSVM, .npy or .npz.")],
    label: Annotated[str | None, typer.Option(help="Label column.", rich_help_panel=_DATA_FILE)] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="Columns of each party: 'age,sex; city' or '1-67; 68-123'. The first holds the labels; "
            "without it the columns are cut in two.",
            rich_help_panel=_DATA_FILE,
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Test rows; else some are held out.", rich_help_panel=_DATA_FILE)
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of rows to hold out.", rich_help_panel=_DATA_FILE)] = 0.2,
    task: Annotated[
        str | None,
        typer.Option(help="binary, multiclass or regression; else by the labels.", rich_help_panel=_DATA_FILE),
    ] = None,
    models: Annotated[str, typer.Option(help=_KINDS_HELP, rich_help_panel=_DATA_FILE)] = "linear,mlp",
    epochs: Annotated[int, typer.Option(help="Passes over all rows.", rich_help_panel=_DATA_FILE)] = 20,
    batch_size: Annotated[int, typer.Option(help="Rows per update.", rich_help_panel=_DATA_FILE)] = 100,
    learning_rate: Annotated[str, typer.Option(help="A number, or auto.", rich_help_panel=_DATA_FILE)] = "auto",
    l2: Annotated[float, typer.Option(help="Weight of the L2 penalty.", rich_help_panel=_DATA_FILE)] = 1e-4,
    missing: Annotated[
        str, typer.Option(help="Missing numbers: error, mean or zero.", rich_help_panel=_DATA_FILE)
    ] = "error",
    ignore: Annotated[
        str | None, typer.Option(help="Columns to leave out, such as ids: 'id,name'.", rich_help_panel=_DATA_FILE)
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed.", rich_help_panel=_DATA_FILE)] = 7,
    seeds: SeedsOption = 1,
    json: JsonOption = None,
    plot: PlotOption = None,
) -> None:
    """Compare alone, late fusion, pooled and joint training on the same split.

    Everything is read into this process, so it needs all parties' data in one place. Of a run file, joint training
    passes each party's guard, and the epsilon that such a run would spend is printed.
    """
    check_writable(json)
    check_plot(plot)
    if source.suffix == ".toml":
        problem, chosen, first = from_run_file(source)
    else:
        data = DataSettings(path=source, test_path=test, label=label, missing=missing, ignore=_split_list(ignore))
        problem = from_data_file(data, groups, _checked_task(task), holdout, seed)
        training = TrainingSettings(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)
        chosen = contenders(_model_kinds(models), list(problem.train.parts), training, l2)
        first = seed
    all_seeds = range(first, first + seeds)
    ledgers: list[Mapping[str, Ledger]] = []
    with epoch_progress(stderr, workload(problem, chosen, all_seeds), "training") as listener:
        curves = schemes.compare(problem, chosen, all_seeds, listener, lambda outcome: ledgers.append(outcome.ledgers))
    facts = {"data": str(source), "task": problem.encoding.task, "seeds": seeds}
    _print_figures(problem, curves, facts, ledgers if any(each.guards for each in chosen) else ())
    metric = METRIC_OF[problem.encoding.task]
    write_json(json, comparison_json(curves, metric, facts))
    if plot is not None:
        draw_comparison(curves, metric, plot)
        print_line(stderr, f"plots drawn to {plot}")


def _print_figures(
    problem: JointDataset,
    curves: Sequence[LearningCurve],
    facts: Mapping[str, Any],
    ledgers: Sequence[Mapping[str, Ledger]],
) -> None:
    seeds = f"{facts['seeds']} seed{'s' * (facts['seeds'] > 1)}"
    echo(
        f"{facts['data']}: {facts['task']}, {len(problem.train.parts)} parties, {len(problem.train):,} training and "
        f"{len(problem.test):,} test rows; last epoch, mean of {seeds}"
    )
    stdout.print(comparison_table(curves, METRIC_OF[problem.encoding.task]))
    for line in _epsilon_lines(ledgers):
        echo(line)


def _epsilon_lines(runs: Sequence[Mapping[str, Ledger]]) -> Iterator[str]:
    """The epsilon that each party spends in one run; the largest where the runs differ."""
    for party in runs[0] if runs else ():
        ledger = max((ledgers[party] for ledgers in runs), key=lambda each: each.worst()[1])
        epsilon = ledger.worst()[1]
        if math.isinf(epsilon):
            yield f"{party} has no noise: no epsilon"
        else:
            yield f"{party} spends epsilon {epsilon:.2f} at delta {ledger.delta:g} in a run; it covers {ledger.scope}"


def _split_list(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _checked_task(text: str | None) -> Task | None:
    if text is not None and text not in get_args(Task):
        raise SettingsError(f"--task is {text!r}; it takes {', '.join(get_args(Task))}")
    return cast(Task | None, text)


def _model_kinds(text: str) -> tuple[str, ...]:
    chosen = _split_list(text)
    for kind in chosen:
        if kind not in ready_kinds():
            raise SettingsError(f"--models has {kind!r}; it takes {', '.join(ready_kinds())}")
    return chosen
