"""fdml demo."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fdml.cli.options import JsonOption, PlotOption, SeedsOption
from fdml.cli.output import (
    check_plot,
    check_writable,
    comparison_json,
    comparison_table,
    convergence_lines,
    echo,
    joint_over_pooled,
    stderr,
    stdout,
    write_json,
)
from fdml.experiments.compare import Contender, compare, workload
from fdml.experiments.dataset import JointDataset
from fdml.experiments.paper import PAPER, a9a_dataset, contenders, joint_by_processes
from fdml.monitor.history import EpochRecord, LearningCurve, mean_records
from fdml.monitor.plots import draw_comparison
from fdml.monitor.run_displays import epoch_progress
from fdml.monitor.terminal import print_line


def demo(
    seeds: SeedsOption = 3,
    json: JsonOption = None,
    plot: PlotOption = None,
) -> None:
    """Train the paper's a9a experiment: LR and NN, alone, late fusion, pooled and joint.

    The data (UCI Adult) comes with fdml. party-0 holds the labels and features 1..67, party-1 features 68..123.
    The joint models are trained by a server and two parties, three processes over mutual TLS on loopback.
    """
    check_writable(json)
    check_plot(plot)
    problem, chosen = a9a_dataset(), contenders()
    with epoch_progress(stderr, workload(problem, chosen, range(seeds)), "training in one process") as listener:
        curves = compare(problem, chosen, range(seeds), listener)
    curves = _joint_by_processes(problem, chosen, curves, range(seeds))
    echo(f"a9a, {len(problem.train):,} training and {len(problem.test):,} test rows; last epoch, mean of {seeds} seeds")
    stdout.print(comparison_table(curves, "auc", PAPER))
    ratios = joint_over_pooled(curves)
    echo("joint / pooled seconds: " + ", ".join(f"{model} {times:.2f}" for model, times in ratios.items()))
    for line in convergence_lines(curves):
        echo(line)
    echo("alone: party-0's features only; late fusion: each trains alone, predictions summed and recalibrated;")
    echo("pooled: all features in one place; joint: fdml, a server and two parties as processes over mutual TLS,")
    echo("shared rows found by keyed hashes of ids, only predictions exchanged. The joint models are bit-identical")
    echo("to those trained in one process.")
    echo("Seconds are training alone.")
    facts = {"data": "a9a", "task": "binary", "seeds": seeds, "joint_over_pooled_seconds": ratios}
    write_json(json, comparison_json(curves, "auc", facts))
    if plot is not None:
        draw_comparison(curves, "auc", plot)
        print_line(stderr, f"plots drawn to {plot}")


def _joint_by_processes(
    problem: JointDataset, chosen: Sequence[Contender], curves: Sequence[LearningCurve], seeds: Sequence[int]
) -> list[LearningCurve]:
    """The curves with those of joint training replaced: their figures and times are of processes."""
    joint: dict[str, tuple[EpochRecord, ...]] = {}
    for contender in chosen:
        runs = []
        for seed in seeds:
            print_line(stderr, f"joint {contender.name}, seed {seed}: server and two parties as processes")
            with tempfile.TemporaryDirectory(prefix="fdml-demo-") as folder:
                runs.append(joint_by_processes(problem, contender, seed, Path(folder) / "run"))
        joint[contender.name] = mean_records(runs)
    return [replace(each, records=joint[each.model]) if each.scheme == "joint" else each for each in curves]
