"""How an estimator trains its parties: rows held out for early stopping, the losses of all epochs, progress."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from sklearn.exceptions import ConvergenceWarning

from fdml.align.split import split_rows
from fdml.data.row_set import RowSet
from fdml.errors import SettingsError
from fdml.experiments.dataset import shuffled_rows
from fdml.experiments.in_process import OnLoss, train_in_process
from fdml.models.model import Model, State
from fdml.monitor.convergence import convergence_of
from fdml.monitor.terminal import progress_display
from fdml.party.plan import Plan


@dataclass(frozen=True)
class EarlyStopping:
    """Hold rows out, and keep the epoch with the lowest loss on them."""

    fraction: float
    """Of the rows."""
    epochs: int
    """Epochs without a lower loss that end the training."""

    def __post_init__(self) -> None:
        """Raise unless rows are left on both sides."""
        if not 0.0 < self.fraction < 1.0:
            raise SettingsError(f"validation_fraction is {self.fraction:g}; give a share between 0 and 1, 0.1 for one")
        if self.epochs < 1:
            raise SettingsError(f"n_iter_no_change is {self.epochs}; give at least 1")


@dataclass(frozen=True)
class Fitted:
    """Trained parties."""

    models: dict[str, Model]
    losses: list[float]
    """Training losses, epoch by epoch up to the one that was kept."""
    validation: list[float]
    """Losses of the held-out rows, of the same epochs; empty without early stopping."""


def fit_parties(
    plan: Plan,
    rows: RowSet,
    *,
    epochs: int,
    start: Mapping[str, State] | None = None,
    stopping: EarlyStopping | None = None,
    verbose: bool = False,
) -> Fitted:
    """Train all parties of a plan on these rows, in an order drawn from its seed."""
    seed = plan.training.seed
    held_out = None
    if stopping is not None:
        if len(rows) < 2:
            raise SettingsError(f"early stopping needs rows to train on and rows to hold out; there are {len(rows)}")
        keep, out = split_rows(len(rows), stopping.fraction, seed)
        rows, held_out = rows.take(keep), rows.take(out)
    losses: list[float] = []
    with _progress(epochs, losses, verbose=verbose) as on_loss:
        outcome = train_in_process(
            plan,
            rows.take(shuffled_rows(len(rows), seed)),
            held_out=held_out,
            start=start,
            stop_after=None if stopping is None else stopping.epochs,
            on_loss=on_loss,
        )
    kept = len(losses) if outcome.best_epoch is None else outcome.best_epoch
    validation = [outcome.evaluations[epoch].test_loss or 0.0 for epoch in sorted(outcome.evaluations)]
    return Fitted(dict(outcome.models), losses[:kept], validation[:kept])


def warn_unless_converged(losses: Sequence[float]) -> None:
    """Warn where the loss still falls at the end, or has risen."""
    found = convergence_of(losses)
    if found is not None and found.text:
        warnings.warn(f"training has {found.text}", ConvergenceWarning, stacklevel=4)


@contextmanager
def _progress(epochs: int, losses: list[float], *, verbose: bool) -> Iterator[OnLoss]:
    """Collects the losses, and shows them if asked to."""
    if not verbose:
        yield lambda _, loss: losses.append(loss)
        return
    with progress_display(Console(stderr=True), epochs, "fit") as display:

        def on_loss(epoch: int, loss: float) -> None:
            losses.append(loss)
            display.move_to(epoch, f"training loss {loss:.4f}")

        yield on_loss
