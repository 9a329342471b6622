"""Labels on both sides: what the label party sends and trains on, and what the others make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fdml.align.sealed_labels import LabelSet, open_labels, seal_labels
from fdml.errors import LabelError
from fdml.party.alignment import SharedRows
from fdml.party.member import Member
from fdml.privacy.randomised_response import randomised
from fdml.protocol.messages import Labels

LABELS_OFF = (
    "warning: label_epsilon is off: every gradient this party returns discloses its row's label to the other parties"
)


def labels_to_send(member: Member, shared: SharedRows, labels: LabelSet) -> Labels:
    """The label party's message: sealed labels, or where they are private only how many classes there are."""
    if not member.has_private_labels:
        return seal_labels(shared.key, labels, member.run.task)
    if member.data.weighted:
        raise LabelError("weights could disclose private labels; leave data.weight out")
    return Labels(labels.classes)


def labels_to_train_on(member: Member, labels: LabelSet) -> LabelSet:
    """The label party's own labels; private ones are randomised once, unless that is switched off."""
    epsilon = member.run.privacy.label_epsilon
    if not member.has_private_labels or epsilon == "off":
        return labels
    return replace(labels, train=randomised(labels.train, max(labels.classes, 2), epsilon, member.noise))


def labels_received(member: Member, shared: SharedRows, message: Labels) -> LabelSet:
    """What another party than the label party trains with; of private labels it has none."""
    rows, held_out = len(shared.train), len(shared.held_out)
    if member.has_private_labels:
        return LabelSet(message.classes, np.zeros(rows), np.zeros(held_out), np.ones(rows), np.ones(held_out))
    return open_labels(shared.key, message, rows, held_out, member.run.task, member.run.label_party)
