"""Checks of what a server answers to a push."""

from __future__ import annotations

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import Gradient, Total
from fdml.protocol.schedule import Schedule


def check_answer(answer: Total | Gradient, schedule: Schedule, staleness: int, *, wants_gradient: bool) -> None:
    """Raise unless the answer is of the kind that this party learns from, and no older than the run allows."""
    if isinstance(answer, Gradient) != wants_gradient:
        wanted = "a gradient" if wants_gradient else "a total"
        raise MessageRefused(
            f"step {answer.step} was answered with a {type(answer).__name__} where {wanted} belongs; both sides "
            f"need the same run.toml",
            Refusal.INVALID,
        )
    if isinstance(answer, Total):
        _check_fresh(answer, schedule, staleness)


def _check_fresh(total: Total, schedule: Schedule, staleness: int) -> None:
    """A server may be late; it may not pass off as new what is older than the run allows."""
    if total.pushed_at and all(made == total.step for made in total.pushed_at):
        return
    block = schedule.visit(total.step).block
    oldest = schedule.last_visit(block, total.step - staleness)
    for made in total.pushed_at or (total.step + 1,):
        if not oldest <= made <= total.step or (made >= 0 and schedule.visit(made).block != block):
            raise MessageRefused(
                f"the total of step {total.step} has a part of step {made}; the run allows none before {oldest}",
                Refusal.INVALID,
            )
