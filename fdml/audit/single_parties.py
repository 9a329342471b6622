"""A17: totals in which a party saw another one's predictions alone, as that happens where parties run ahead."""

from __future__ import annotations

from fdml.audit.canaries import messages_of
from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.protocol.messages import Push

_TITLE = "totals with one other party's part only"
_VIEW = "party"


def find_single_parts(recording: Recording) -> list[AttackResult]:
    """A17: how many totals had one other party's part only: less the own part they are that party's predictions.

    A party pushes a step only after it has had the total of an earlier one. So a part that comes after that push was
    not in the total, whatever the server did. The count is a lower bound.
    """
    run = recording.run
    if len(run.parties) < 3:
        return [not_applicable("A17", _TITLE, _VIEW, "of two parties each sees the other's part in any case")]
    if run.training.staleness == 0:
        return [not_applicable("A17", _TITLE, _VIEW, "at staleness 0 every total has a part of every party")]
    others = parts_seen(recording)
    single = [total for total, names in others.items() if len(names) == 1]
    incomplete = [total for total, names in others.items() if len(names) < len(run.parties) - 1]
    first = f"; first: step {single[0][1]} of party {single[0][0]!r}" if single else ""
    return [
        passed_if(
            not single,
            "A17",
            _TITLE,
            _VIEW,
            score=float(len(single)),
            baseline=0.0,
            bar="0 totals",
            reason=f"{len(others)} totals, {len(incomplete)} without a part of every other party{first}",
            details={"totals": len(others), "incomplete": len(incomplete)},
        )
    ]


def parts_seen(recording: Recording) -> dict[tuple[str, int], frozenset[str]]:
    """By party and step: the other parties that can have a part in the total that this party had of this step."""
    schedule, ahead = recording.schedule, 1 + recording.training.lookahead
    first = {schedule.visit(step).block: step for step in range(schedule.blocks)}
    pushed = dict.fromkeys(recording.run.parties, -1)
    seen: dict[tuple[str, int], frozenset[str]] = {}
    for sender, message in messages_of(recording):
        if not isinstance(message, Push) or message.step <= pushed[sender]:
            continue
        total = message.step - ahead
        if total >= 0:
            needed = first[schedule.visit(total).block]
            seen[sender, total] = frozenset(name for name in pushed if name != sender and pushed[name] >= needed)
        pushed[sender] = message.step
    return seen


attacks: dict[str, Attack] = {"A17": find_single_parts}
