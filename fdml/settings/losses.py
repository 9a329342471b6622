"""The loss of a run: which fit its task, and the level of a quantile."""

from __future__ import annotations

import re

from fdml.errors import SettingsError
from fdml.settings.choices import LOSSES_OF, PAIRWISE, PRIVATE_LOSSES, LossName, Task

QUANTILE = "quantile"
MEDIAN = 0.5
_LEVELS = 1000
"""A level has three decimals at most: kernels know quantiles by their thousandths."""
_NAMED = re.compile(rf"{QUANTILE}\((0\.\d{{1,3}})\)")


def loss_for(task: Task, loss: LossName | None, quantile: float | None = None) -> LossName:
    """The name of the loss to train with: the one asked for if it fits the task, else the task's own.

    That of a quantile has its level in it, but for the median. A name that was found so stays as it is.
    """
    fitting = LOSSES_OF[task]
    if loss is None:
        loss = fitting[0]
    plain, level = split_loss(loss)
    if plain not in fitting:
        raise SettingsError(f"loss {loss!r} does not fit task {task!r}; it takes {' or '.join(fitting)}")
    if quantile is None:
        return loss
    if plain != QUANTILE:
        raise SettingsError(
            f'quantile is {quantile:g}, and loss {loss!r} has none; set loss = "quantile", or leave it out'
        )
    _check_level(quantile)
    return loss if quantile == level else f"{QUANTILE}({quantile:g})"


def loss_without_groups(task: Task, loss: LossName | None, quantile: float | None = None) -> LossName:
    """The same where rows have no groups, as in estimators and comparisons: a loss that ranks in groups is refused."""
    found = loss_for(task, loss, quantile)
    if found == PAIRWISE:
        raise SettingsError(
            'loss "pairwise" compares rows of groups, which only runs have; start one with `fdml simulate`: it says '
            "what joint training brings over the label party alone"
        )
    return found


def split_loss(name: LossName) -> tuple[LossName, float | None]:
    """A loss and its level, as settings have them; the level is None where the loss has none."""
    if name == QUANTILE:
        return name, MEDIAN
    found = _NAMED.fullmatch(name)
    return (name, None) if found is None else (QUANTILE, float(found[1]))


def task_of(loss: LossName) -> Task:
    """The task that a loss is of."""
    for task, fitting in LOSSES_OF.items():
        if split_loss(loss)[0] in fitting:
            return task
    known = [each for fitting in LOSSES_OF.values() for each in fitting]
    raise SettingsError(f"there is no loss {loss!r}; there are {', '.join(known)}")


def thousandths_of(name: LossName) -> int | None:
    """The level of a quantile that is named with it, in thousandths; None for other losses."""
    level = split_loss(name)[1]
    return None if level is None else round(level * _LEVELS)


def check_private_loss(loss: LossName) -> None:
    """Raise unless labels can stay private with this loss."""
    if loss in PRIVATE_LOSSES:
        return
    raise SettingsError(f'labels = "private" cannot train with loss {loss!r}; it takes {" or ".join(PRIVATE_LOSSES)}')


def check_pairwise(loss: LossName, *, labels: str, absence: float) -> None:
    """Raise where rows cannot be compared within their groups."""
    if loss != PAIRWISE:
        return
    if labels != "private":
        raise SettingsError(
            f'loss = "pairwise" compares rows of one group, and the label party alone knows the groups; it returns '
            f'gradients where labels are private: set labels = "private" in [privacy], not {labels!r}'
        )
    if absence:
        raise SettingsError(
            f'loss = "pairwise" compares scores of different blocks, and with training.absence = {absence:g} some of '
            f"them lack a party; leave absence out"
        )


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0 or round(level, 3) != level:
        raise SettingsError(
            f"quantile is {level:g}; it is a number between 0 and 1 with at most three decimals, 0.9 for what nine "
            f"rows in ten stay below"
        )
