"""Pushes that were not answered yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fdml.models.losses import Floats
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Push, Release


@dataclass(frozen=True)
class PendingPush:
    """A push that was not answered yet."""

    own: Floats
    """The exact predictions."""
    codes: Codes
    """The same as they left, but for the mask."""
    release: Release


class Outbox:
    """What was pushed and not yet answered."""

    def __init__(self, pending: Mapping[int, PendingPush] | None = None) -> None:
        self._pending = dict(pending or {})

    @property
    def pending(self) -> Mapping[int, PendingPush]:
        """All that is in it, by step."""
        return dict(self._pending)

    def put(self, step: int, push: PendingPush) -> None:
        """Keep a push until its answer comes."""
        self._pending[step] = push

    def take(self, step: int) -> PendingPush:
        """The push that an answer has come to."""
        return self._pending.pop(step)

    def pushes(self) -> list[Push]:
        """Everything unanswered, as it was pushed."""
        return [Push(step, pending.release) for step, pending in sorted(self._pending.items())]
