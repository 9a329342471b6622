"""Labels on both sides: what the label party sends and trains on, and what the others make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fdml.align.sealed_labels import LabelSet, open_pieces, seal_labels
from fdml.data.label_encoding import LabelEncoding
from fdml.errors import LabelError
from fdml.party.alignment import SharedRows
from fdml.party.effects import Emit, Flush, Send, Work, remark
from fdml.party.label_flips import LabelFlips, shown_labels, training_ids
from fdml.party.member import Member
from fdml.party.training_messages import TrainingMessages
from fdml.protocol.alignment_messages import Piece
from fdml.protocol.messages import Labels
from fdml.protocol.row_pieces import all_pieces, label_pieces, labels_digest
from fdml.settings.choices import PAIRWISE

_AHEAD = 16
"""Pieces that are made before the server has stored the first of them: so many are in memory at most."""
_LABELS_OFF = (
    "warning: label_epsilon is off: every gradient this party returns discloses its row's label to the other parties"
)


def send_labels(
    member: Member,
    shared: SharedRows,
    labels: LabelSet,
    messages: TrainingMessages,
    take_in: Callable[[str], Work[None]],
) -> Work[None]:
    """Send the label party's labels, in pieces where they are many: after those that the server has stored."""
    pieces = all_pieces(_whole(member, shared))
    if len(pieces) == 1 or member.has_private_labels:
        yield Send(labels_to_send(member, shared, labels))
        return
    while messages.stored_labels is None:
        yield from take_in("for {} to say which labels are stored")
    done, digest = messages.stored_labels if member.run.server != "none" else (0, b"")
    if done:
        sealed = (labels_to_send(member, shared, labels, piece) for piece in pieces[:done])
        if labels_digest(sealed) != digest:
            raise LabelError(
                f"the labels of party {member.name!r} are not those that it sent before; put its label column back, "
                f"or give the run a new name at every side"
            )
    for number, piece in enumerate(pieces[done:], 1):
        yield Send(labels_to_send(member, shared, labels, piece))
        if number % _AHEAD == 0:
            yield Flush()


def labels_to_send(member: Member, shared: SharedRows, labels: LabelSet, piece: Piece | None = None) -> Labels:
    """The label party's message: sealed labels, or where they are private only how many classes there are."""
    if not member.has_private_labels:
        return seal_labels(shared.key, labels, member.run.task, piece)
    if member.data.weighted:
        raise LabelError("weights could disclose private labels; leave data.weight out")
    if member.run.chosen_loss == PAIRWISE and (labels.train_groups is None or labels.held_out_groups is None):
        raise LabelError(
            'loss = "pairwise" ranks rows within groups, and the label party\'s rows have none; set data.group to the '
            "column that says which rows are ranked together"
        )
    return Labels(labels.classes)


def count_labels(member: Member, labels: LabelSet, encoding: LabelEncoding | None) -> None:
    """Count, before they leave, what the label party shows of its labels, where that outlives the run."""
    if member.ledger is not None:
        flips = member.flips if member.has_private_labels else None
        member.ledger.show_labels(member.run, flips, labels.classes, encoding)


def label_remarks(member: Member, labels: LabelSet) -> Iterator[Emit]:
    """What the label party should know of its labels before training begins."""
    if member.has_private_labels and member.run.privacy.label_epsilon == "off":
        yield remark(member.name, _LABELS_OFF)
    held_out = labels.held_out
    if member.run.task == "binary" and len(held_out) and np.ptp(held_out) == 0.0:
        yield remark(
            member.name,
            f"all {len(held_out)} held-out rows have one class: there will be no AUC and no gain, only their loss; "
            f"raise evaluation.holdout, or bring test files with both classes",
        )


def training_labels(member: Member, shared: SharedRows, labels: LabelSet, encoding: LabelEncoding | None) -> LabelSet:
    """The label party's own labels; private ones are randomised, unless that is switched off."""
    shown = shown_labels(
        labels.train,
        member.run.privacy,
        member.flips or LabelFlips(member.noise),
        classes=labels.classes,
        encoding=encoding,
        ids=lambda: training_ids(member.data.row_ids(), shared.train),
    )
    return labels if shown is labels.train else replace(labels, train=shown)


def labels_received(member: Member, shared: SharedRows, pieces: Sequence[Labels]) -> LabelSet:
    """What another party than the label party trains with; of private labels it has none."""
    rows, held_out = len(shared.train), len(shared.held_out)
    if member.has_private_labels:
        return LabelSet(pieces[0].classes, np.zeros(rows), np.zeros(held_out), np.ones(rows), np.ones(held_out))
    return open_pieces(shared.key, pieces, _whole(member, shared), member.run.task, member.run.label_party)


def _whole(member: Member, shared: SharedRows) -> Piece:
    return label_pieces(len(shared.train), len(shared.held_out), member.piece_rows)
