"""fdml demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import aside, check_writable, comparison_json, comparison_table, say, shown, write_json
from fdml.run.compare import compare, workload
from fdml.run.paper import PAPER, a9a_problem, contenders
from fdml.watch.plots import draw_comparison
from fdml.watch.terminal import epochs_shown


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to take the mean of.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the paper's four plots to this PNG file.")] = None,
) -> None:
    """Train the paper's a9a experiment: LR and NN, alone, late fusion, pooled and joint.

    The data (UCI Adult) comes with fdml. Party 0 holds the labels and features 1..67, party 1 features 68..123.
    """
    check_writable(json, plot)
    problem, chosen = a9a_problem(), contenders()
    with epochs_shown(aside, workload(problem, chosen, range(seeds)), "training") as listener:
        curves = compare(problem, chosen, range(seeds), listener)
    say(f"a9a, {len(problem.train):,} training and {len(problem.test):,} test rows; last epoch, mean of {seeds} seeds")
    shown.print(comparison_table(curves, "auc", PAPER))
    say("alone: party 0's features only; late fusion: each trains alone, predictions summed and recalibrated;")
    say("pooled: all features in one place; joint: fdml, only predictions exchanged. Seconds are training alone.")
    write_json(json, comparison_json(curves, "auc", {"data": "a9a", "task": "binary", "seeds": seeds}))
    if plot is not None:
        draw_comparison(curves, "auc", plot)
        aside.print(f"plots drawn to {plot}", highlight=False)
