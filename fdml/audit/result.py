"""What one attack on a recorded run came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fdml.audit.recording import Recording

Outcome = Literal["PASS", "FAIL", "NOT APPLICABLE"]


@dataclass(frozen=True)
class AttackResult:
    """One attack from one view: how well it did, how well it would do without the run, and whether that passes."""

    test: str
    """The attack's short name, "A5" for one."""
    title: str
    view: str
    """Who attacks: "server", "party 'b'", "all parties but 'a'"."""
    score: float | None
    baseline: float | None
    """What the same attack reaches without anything of the run."""
    gain: float | None
    bar: str
    """What passes, in words and with the number."""
    outcome: Outcome
    reason: str
    details: Mapping[str, float] = field(default_factory=dict)


Attack = Callable[[Recording], list[AttackResult]]


def passed_if(
    passes: bool,
    test: str,
    title: str,
    view: str,
    *,
    score: float | None,
    bar: str,
    reason: str,
    baseline: float | None = None,
    details: Mapping[str, float] | None = None,
) -> AttackResult:
    """PASS or FAIL; the gain is the score less the baseline, where there is one."""
    gain = None if score is None or baseline is None else score - baseline
    outcome: Outcome = "PASS" if passes else "FAIL"
    return AttackResult(test, title, view, score, baseline, gain, bar, outcome, reason, details or {})


def not_applicable(test: str, title: str, view: str, reason: str) -> AttackResult:
    """The attack has nothing to work on here; the reason says why."""
    return AttackResult(test, title, view, None, None, None, "", "NOT APPLICABLE", reason)
