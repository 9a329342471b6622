"""What a server knows of the messages it has stored, for checks after it was started again."""

from __future__ import annotations

from fdml.protocol.messages import (
    BestEpoch,
    Checkpointed,
    Finished,
    FromParty,
    Gradient,
    HeldOutPredictions,
    Hello,
    Labels,
    Push,
    SealedMetrics,
    Stop,
    Total,
)
from fdml.server.coordinator import Coordinator
from fdml.server.run_state import RunState


def digest_of(coordinator: Coordinator | None) -> bytes:
    """Everything that the training part of the server knows, as bytes."""
    arrays = {} if coordinator is None else coordinator.state()
    return b"".join(key.encode() + array.tobytes() for key, array in arrays.items())


def totals_of(coordinator: Coordinator, party: str) -> dict[int, Total | Gradient]:
    """By step, all that the party would be served again."""
    replies = coordinator.resend(party, -1)
    return {reply.message.step: reply.message for reply in replies if isinstance(reply.message, Total | Gradient)}


def remembers(state: RunState, party: str, message: FromParty) -> bool:
    """Whether a message that was stored still has its effect."""
    coordinator = state.coordinator
    match message:
        case Hello():
            return state.incarnation(party) >= message.incarnation
        case Push(step):
            return coordinator is not None and coordinator.pushed(party) >= step
        case Gradient(step):
            return coordinator is not None and coordinator.last_gradient >= step
        case Stop():
            return coordinator is not None and coordinator.stopped is not None
        case Labels():
            return coordinator is not None or message in state.labels.pieces
        case HeldOutPredictions():
            return coordinator is not None
        case SealedMetrics(epoch):
            return epoch in state.history
        case BestEpoch():
            return state.best_epoch == message
        case Finished():
            return state.has_finished(party)
        case Checkpointed():
            return True
