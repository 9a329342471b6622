"""fdml compare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from fdml.cli.options import JsonOption, PlotOption, QuietOption, SeedsOption, VerboseOption
from fdml.cli.output import (
    check_plot,
    check_writable,
    comparison_json,
    comparison_table,
    convergence_lines,
    echo,
    gain_lines,
    stderr,
    stdout,
    write_json,
)
from fdml.cli.run_output import Said, comparison_output
from fdml.errors import SettingsError
from fdml.experiments import compare as schemes
from fdml.experiments.compare import Contender, workload
from fdml.experiments.compare_report import ComparisonFacts, comparison_report
from fdml.experiments.comparison_input import contenders, from_data_file, from_run_file
from fdml.experiments.dataset import JointDataset
from fdml.federation.findings import OtherSchemes, found_schemes, keep_comparison
from fdml.federation.run_folder import MODEL, RUNS
from fdml.federation.run_report import write_report
from fdml.models.bundle import Bundle
from fdml.models.registry import ready_kinds
from fdml.monitor.history import LearningCurve, metric_of
from fdml.monitor.plots import draw_comparison
from fdml.monitor.report import Report, render
from fdml.monitor.terminal import print_line
from fdml.privacy.ledger import Ledger
from fdml.settings import TrainingSettings
from fdml.settings.choices import Task
from fdml.settings.data import DataSettings
from fdml.settings.federation import read_run
from fdml.storage.atomic import write_file

_DATA_FILE = "For a data file"
_NO_CONTEXT = cast(typer.Context, None)
"""Where the command is called as a function."""
_LabelOption = Annotated[str | None, typer.Option(help="Label column.", rich_help_panel=_DATA_FILE)]
_GroupsOption = Annotated[
    str | None,
    typer.Option(
        help="Columns of each party: 'age,sex; city' or '1-67; 68-123'. The first holds the labels; "
        "without it the columns are cut in two.",
        rich_help_panel=_DATA_FILE,
    ),
]
_TestOption = Annotated[
    Path | None, typer.Option(help="Test rows; else some are held out.", rich_help_panel=_DATA_FILE)
]
_HoldoutOption = Annotated[float, typer.Option(help="Share of rows to hold out.", rich_help_panel=_DATA_FILE)]
_TaskOption = Annotated[
    str | None,
    typer.Option(help="binary, multiclass or regression; else by the labels.", rich_help_panel=_DATA_FILE),
]
_LossOption = Annotated[
    str | None,
    typer.Option(
        help="hinge for two classes; poisson (counts and rates) or quantile, 'quantile(0.9)' of a level, for numbers.",
        rich_help_panel=_DATA_FILE,
    ),
]
_ModelsOption = Annotated[str, typer.Option(help=f"Any of {', '.join(ready_kinds())}.", rich_help_panel=_DATA_FILE)]
_EpochsOption = Annotated[str, typer.Option(help="Passes over all rows, or auto.", rich_help_panel=_DATA_FILE)]
_BatchSizeOption = Annotated[str, typer.Option(help="Rows per update, or auto.", rich_help_panel=_DATA_FILE)]
_RateOption = Annotated[str, typer.Option(help="A number, or auto.", rich_help_panel=_DATA_FILE)]
_L2Option = Annotated[str, typer.Option(help="Weight of the L2 penalty, or auto.", rich_help_panel=_DATA_FILE)]
_MissingOption = Annotated[
    str, typer.Option(help="Missing numbers: indicator, mean, zero or error.", rich_help_panel=_DATA_FILE)
]
_IgnoreOption = Annotated[
    str | None, typer.Option(help="Columns to leave out, such as ids: 'id,name'.", rich_help_panel=_DATA_FILE)
]
_SeedOption = Annotated[int, typer.Option(min=0, help="First seed.", rich_help_panel=_DATA_FILE)]
_ReportOption = Annotated[
    Path | None, typer.Option(help="Write the whole comparison on a page here; else to report.html beside the source.")
]


def compare(
    source: Annotated[Path, typer.Argument(help="A run.toml, or data: CSV, Parquet, LIBSVM, .npy or .npz.")],
    label: _LabelOption = None,
    groups: _GroupsOption = None,
    test: _TestOption = None,
    holdout: _HoldoutOption = 0.2,
    task: _TaskOption = None,
    loss: _LossOption = None,
    models: _ModelsOption = "linear,mlp",
    epochs: _EpochsOption = "auto",
    batch_size: _BatchSizeOption = "auto",
    learning_rate: _RateOption = "auto",
    l2: _L2Option = "auto",
    missing: _MissingOption = "indicator",
    ignore: _IgnoreOption = None,
    seed: _SeedOption = 7,
    seeds: SeedsOption = 1,
    json: JsonOption = None,
    plot: PlotOption = None,
    report: _ReportOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    context: typer.Context = _NO_CONTEXT,
) -> None:
    """Compare alone, late fusion, pooled and joint training on the same split.

    Everything is read into this process, so it needs all parties' data in one place. Of a run file, joint training
    passes each party's guard, and the epsilon that such a run would spend is printed. A run that has finished in these
    folders is compared on its own rows, and its page and report have the other schemes as lines from then on.
    """
    check_writable(json, report)
    check_plot(plot)
    said = Said(quiet=quiet, verbose=verbose)
    if source.suffix == ".toml":
        _refuse_file_options(context)
        problem, chosen, first = from_run_file(source)
        if read_run(source).evaluation.stop_after is not None:
            print_line(stderr, "evaluation.stop_after is left out: every scheme trains to its last epoch")
        if read_run(source).compared_version is not None:
            print_line(stderr, "`from` and evaluation.against are left out: every scheme trains anew")
    else:
        data = DataSettings(path=source, test_path=test, label=label, missing=missing, ignore=_split_list(ignore))
        problem = from_data_file(data, groups, _checked_task(task), holdout, seed, _remark, loss)
        training = TrainingSettings(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)
        chosen = contenders(_model_kinds(models), list(problem.train.parts), training, l2)
        first = seed
    all_seeds = range(first, first + seeds)
    ledgers: list[Mapping[str, Ledger]] = []
    with comparison_output(said, workload(problem, chosen, all_seeds)) as listener:
        curves = schemes.compare(
            problem, chosen, all_seeds, listener, lambda outcome: ledgers.append(outcome.ledgers), gains=True
        )
    facts = {"data": str(source), "task": problem.encoding.task, "seeds": seeds}
    spent = list(_epsilon_lines(ledgers if any(each.guards for each in chosen) else ()))
    _print_figures(problem, curves, facts, spent)
    metric = metric_of(problem.encoding.task, problem.loss)
    write_json(json, comparison_json(curves, metric, facts))
    if source.suffix == ".toml":
        _keep(source, found_schemes(metric, len(problem.test), seeds, curves), is_of_run=problem.run_seed is not None)
    if plot is not None:
        draw_comparison(curves, metric, plot)
        print_line(stderr, f"plots drawn to {plot}")
    about = ComparisonFacts(
        source=source.name,
        task=problem.encoding.task,
        metric=metric,
        parties=len(problem.train.parts),
        train_rows=len(problem.train),
        test_rows=len(problem.test),
        seeds=seeds,
        command=f"fdml compare {source.name}",
        settings=_report_settings(chosen, first),
        epsilon=tuple(spent),
    )
    _write_report(source.parent / "report.html" if report is None else report, comparison_report(curves, about))


def _keep(source: Path, found: OtherSchemes, *, is_of_run: bool) -> None:
    """Keep the figures for the label party's page and report of the run; of its own rows they are lines there."""
    run = read_run(source)
    home = source.parent / run.label_party
    if is_of_run:
        found = replace(found, version=Bundle.check(home / RUNS / run.name / MODEL).version)
    keep_comparison(home, run, found)
    if is_of_run:
        path = write_report(home, run.label_party, run.name)
        print_line(stderr, f"of the rows that run {run.name!r} held out; its report has all schemes now: {path}")


def _report_settings(chosen: Sequence[Contender], first: int) -> dict[str, str]:
    """How each model was trained: "auto" where the data decided. A class weight names classes, so it is left out."""
    found = {"first seed": str(first)}
    for each in chosen:
        values = each.training.model_dump(mode="json", exclude={"class_weight", "seed"}, exclude_none=True)
        found |= {f"{each.name}: {name}": str(value) for name, value in values.items()}
    return found


def _write_report(path: Path, content: Report) -> None:
    """A folder of data may be one that nobody writes to: that is said, and ends no comparison."""
    try:
        write_file(path, render(content).encode())
        print_line(stderr, f"the whole comparison on a page: {path}")
    except OSError as error:
        print_line(stderr, f"no page was written to {path} ({error.strerror}); name another place with --report")


def _remark(text: str) -> None:
    print_line(stderr, text)


def _refuse_file_options(context: typer.Context | None) -> None:
    """Raise where an option is given that only a data file takes: a run has its own settings."""
    for parameter in () if context is None else context.command.params:
        source = context.get_parameter_source(str(parameter.name)) if context else None
        given = source is not None and source.name == "COMMANDLINE"
        if given and getattr(parameter, "rich_help_panel", None) == _DATA_FILE:
            option = str(parameter.name).replace("_", "-")
            raise SettingsError(f"--{option} is for a data file; a run has its settings in run.toml and party.toml")


def _print_figures(
    problem: JointDataset,
    curves: Sequence[LearningCurve],
    facts: Mapping[str, Any],
    spent: Sequence[str],
) -> None:
    seeds = f"{facts['seeds']} seed{'s' * (facts['seeds'] > 1)}"
    echo(
        f"{facts['data']}: {facts['task']}, {len(problem.train.parts)} parties, {len(problem.train):,} training and "
        f"{len(problem.test):,} test rows; last epoch, mean of {seeds}"
    )
    stdout.print(comparison_table(curves, metric_of(problem.encoding.task, problem.loss)))
    for line in (*gain_lines(curves, metric_of(problem.encoding.task, problem.loss)), *convergence_lines(curves)):
        echo(line)
    for line in spent:
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
    if not chosen:
        raise SettingsError(f"--models is {text!r}; it takes any of {', '.join(ready_kinds())}")
    for kind in chosen:
        if kind not in ready_kinds():
            raise SettingsError(f"--models has {kind!r}; it takes {', '.join(ready_kinds())}")
    return chosen
