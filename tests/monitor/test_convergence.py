import math

import pytest

from fdml.monitor.convergence import convergence_of


@pytest.mark.parametrize(
    ("losses", "trend"),
    [
        ([0.6, 0.4, 0.35, 0.34, 0.339, 0.3389], "converged"),
        ([0.6, 0.5, 0.45, 0.41, 0.38], "falling"),
        ([0.6, 0.5, 0.4], "falling"),
        ([0.6, 0.3, 0.31, 0.30, 0.31], "converged"),
        ([0.6, 0.3, 0.35, 0.5, 0.9], "diverged"),
        ([0.6, 0.7, 0.9], "diverged"),
        ([0.6, 0.5, math.nan], "diverged"),
        ([0.6, 0.5, math.inf, 0.5], "diverged"),
        ([0.6, 1e-3, 5e-4, 2e-4, 1e-4], "converged"),
        ([0.0, 0.0, 0.0], "converged"),
    ],
)
def test_the_trend_of_losses(losses, trend):
    assert convergence_of(losses).trend == trend


@pytest.mark.parametrize("losses", [[], [0.6], [0.6, 0.3], [None, 0.6, None, 0.3]])
def test_fewer_than_three_epochs_say_nothing(losses):
    assert convergence_of(losses) is None


def test_what_a_person_reads_names_the_figures_and_the_way_out():
    falling = convergence_of([0.8, 0.64, 0.62, 0.60, 0.58])
    assert falling.text == "not converged: the loss still falls 3 % an epoch; raise epochs"
    diverged = convergence_of([0.6, 0.5, 0.9])
    assert diverged.text == "diverged: the loss rose from 0.5 to 0.9; lower learning_rate"
    assert convergence_of([0.6, 0.5, math.inf]).text == "diverged: the loss rose beyond all bounds; lower learning_rate"
    assert convergence_of([0.5, 0.5, 0.5]).text == ""


def test_a_single_bad_epoch_in_the_middle_is_no_divergence():
    assert convergence_of([0.6, 0.4, 0.9, 0.4, 0.39, 0.389, 0.3889]).trend == "converged"
