"""What the server makes once the labels have come: the coordinator of the training and the sums of held-out rows."""

from __future__ import annotations

from functools import partial

from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.limits import AgreedCounts, agreed_with
from fdml.protocol.messages import Labels, prediction_width
from fdml.protocol.row_pieces import held_out_pieces
from fdml.protocol.schedule import schedule_of
from fdml.server.coordinator import Coordinator
from fdml.server.evaluation import HeldOutSums
from fdml.settings import RunSettings


def width_of(settings: RunSettings, labels: Labels) -> int:
    """How many floats of each row a local prediction has."""
    return prediction_width(settings.task, labels.classes, settings.training)


def new_training(
    settings: RunSettings, agreed: AgreedCounts, labels: Labels, piece_rows: int | None = None
) -> tuple[Coordinator, HeldOutSums]:
    """Both as they are before the first push."""
    chosen = agreed_with(settings, agreed)
    schedule = schedule_of(agreed.rows, chosen)
    width = width_of(settings, labels)
    blind, grid = settings.privacy.server == "blind", grid_of(chosen.value_bits, chosen.max_prediction)
    coordinator = Coordinator(
        settings.parties,
        schedule,
        width,
        chosen.staleness,
        blind=blind,
        gradient_party=settings.label_party if settings.privacy.labels == "private" else None,
        grid=grid,
        few_bits=few_bits_of(settings),
    )
    decides = settings.evaluation.stop_after is not None
    held_out = HeldOutSums(
        settings.parties,
        agreed.held_out * width,
        schedule.epochs,
        blind=blind,
        grid=grid,
        scored=partial(schedule.epochs_scored, lookahead=chosen.lookahead) if decides else None,
        first=1 if settings.compared_version is None else 0,
        pieces=held_out_pieces(agreed.held_out, width, piece_rows),
    )
    return coordinator, held_out
