"""What can travel between a party and the server; nothing else has a type to travel in.

No message names its sender: who sent it is known from the line it came by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fdml.protocol.alignment_messages import Piece
from fdml.protocol.fixed_point import Codes
from fdml.protocol.waited_for import WaitedFor
from fdml.settings.choices import Task
from fdml.settings.joint import SUM, JointSettings, prediction_floats

PROTOCOL = 9
"""Changes whenever the meaning of a message does."""
WEIGHT_TYPE = np.dtype("<f8")
"""Of a row's weight on its way."""
_SEAL_BYTES = 28
"""What sealing adds: a nonce of 12 bytes and a tag of 16."""
SEALED_METRICS_BYTES = 4 * 8 + _SEAL_BYTES
"""Of sealed metrics: four doubles."""
SEALED_EPOCH_BYTES = 8 + _SEAL_BYTES
"""Of the sealed number of an epoch."""


@dataclass(frozen=True)
class Release:
    """Predictions or gradients that have passed the guard; only a guard makes them. `(rows, width)`, or flat off
    the wire."""

    values: Codes
    mask_id: int = 0
    """Which masks were put on: a number drawn at random at each start of the party. 0 where there are none."""
    variance: float = 0.0
    """Of the noise on each value, so that who uses the values knows how far to trust them."""
    bits: int = 0
    """Where the values are differences to what was sent before: how many bits each has. 0 where they are whole."""
    scale: int = 0
    """A difference is so many steps of 2**scale; 0 under a mask, where only the parties know it."""


@dataclass(frozen=True)
class Hello:
    """The first message on every line."""

    run_hash: bytes
    alignment_hash: bytes
    rows: int
    held_out: int
    incarnation: int
    """Counts the starts of this party; a process of an older start is shut out."""
    done: int = -1
    """The last step this party will never need the total of again."""
    line: int = 0
    """The class of the slowest line, as the parties have agreed with their consent to the shared rows."""
    protocol: int = PROTOCOL


def label_type(task: Task, classes: int) -> np.dtype[Any]:
    """Of a label on its way: a target, or the number of a class, of which there are at most 2**16."""
    if task == "regression":
        return np.dtype("<f8")
    return np.dtype("u1" if classes <= 2**8 else "<u2")


def prediction_width(task: Task, classes: int, joint: JointSettings = SUM) -> int:
    """How many floats of each row a local prediction has.

    Of a sum one for each class of a multi-class task, else one; other joint functions have a vector besides.
    """
    return prediction_floats(joint, classes if task == "multiclass" else 1)


@dataclass(frozen=True)
class Labels:
    """The label party's labels and weights, where the run shares them: for the other parties, by way of the server.

    They are sealed under the key that only the parties have; the server knows how many they are, and from their size
    whether there are weights: those of all rows follow the labels of all rows, and are left out where all are 1.
    Where labels are private there is nothing sealed: only how many classes there are.
    """

    classes: int
    """2 or more; 0 for regression."""
    sealed: bytes = b""
    piece: Piece | None = None
    """None where the message holds all labels."""

    @staticmethod
    def sealed_size(task: Task, classes: int, rows: int, *, weighted: bool = False) -> int:
        """Bytes of the sealed labels of this many rows, with their weights if they are `weighted`."""
        row = label_type(task, classes).itemsize + (WEIGHT_TYPE.itemsize if weighted else 0)
        return row * rows + _SEAL_BYTES


PART_DIGEST = 8
"""Bytes of the digest of a part, by which parties that have no server find one that tells them different things."""


@dataclass(frozen=True)
class Push:
    """A party's local predictions of the block of one step."""

    step: int
    release: Release
    seen: bytes = b""
    """Where there is no server: the digests of what all parties have sent this one for the step before those that it
    pushes ahead, `PART_DIGEST` bytes of each, in the run's order."""


@dataclass(frozen=True)
class Gradient:
    """dLoss/dscore of the block of one step: where labels are private, from the label party to the others."""

    step: int
    release: Release


@dataclass(frozen=True)
class Stop:
    """The party will push neither this step nor any later one, as its privacy budget is spent."""

    step: int
    no_gain: bool = False
    """From the label party: not for a budget, but as held-out rows have gained nothing for `stop_after` epochs."""


@dataclass(frozen=True)
class Checkpointed:
    """The party has saved its state after this step and will not ask for earlier totals again."""

    step: int


@dataclass(frozen=True)
class HeldOutPredictions:
    """A party's predictions of the held-out rows at the end of an epoch."""

    epoch: int
    release: Release
    piece: Piece | None = None
    """Which of the held-out rows; None where the message holds all."""


@dataclass(frozen=True)
class Metrics:
    """What the label party found at the end of an epoch; it leaves that party only sealed. Who cannot read a figure
    has None."""

    epoch: int
    seconds: float | None = None
    """Of training, up to the end of the epoch."""
    train_loss: float | None = None
    """Mean loss of the epoch's totals as they were received."""
    test_loss: float | None = None
    test_metric: float | None = None


@dataclass(frozen=True)
class SealedMetrics:
    """The metrics of one epoch under the key that only the parties have; the server learns which epoch it was.

    Over private labels there is nothing sealed: the figures stay with the label party.
    """

    epoch: int
    sealed: bytes = b""


@dataclass(frozen=True)
class BestEpoch:
    """Which epoch's model every party keeps: the label party tells it at the end of a run with `stop_after`, by way of
    the server, under the key that only the parties have. 0 if no epoch was evaluated: each keeps its last model."""

    sealed: bytes


@dataclass(frozen=True)
class Finished:
    """The party has trained to the end."""

    model_mac: bytes
    """Of its final parameters, under a secret that stays with the party: equal for equal models, and no guess of them
    can be tried out."""


FromParty = (
    Hello | Labels | Push | Gradient | Stop | Checkpointed | HeldOutPredictions | SealedMetrics | BestEpoch | Finished
)


@dataclass(frozen=True)
class Welcome:
    """The party may go on.

    `pushed` is the last step the server has from it, `evaluated` the epochs whose
    metrics it has from the label party.
    """

    pushed: int
    evaluated: tuple[int, ...] = ()
    labels: int = 0
    """To the label party, where labels travel in pieces: how many, from the first on, the server has stored."""
    labels_digest: bytes = b""
    """Of what is sealed in these pieces, by which a label party finds that its labels have changed."""


@dataclass(frozen=True)
class Ack:
    """So many messages of this line are safely stored."""

    count: int


@dataclass(frozen=True)
class Total:
    """The sum of all parties' predictions of the block of one step.

    `pushed_at` gives, in the order of the run's parties, the step for which each
    part was pushed: less than `step` where a part is stale, -1 where none came yet.
    `mask_ids` says which masks are still on the sum, empty where there are none.
    """

    step: int
    values: Codes
    pushed_at: tuple[int, ...]
    mask_ids: tuple[int, ...] = ()
    variance: float = 0.0
    """Of the noise on each value."""
    bits: int = 0
    """Where the values are sums of this step's differences: how many bits each has. 0 where they are whole."""
    parts: bytes = b""
    """Where there is no server: the digests of all parts, which this party tells the others with a later push."""

    @property
    def lag(self) -> int:
        """By how many steps the oldest part is stale; a part that never came counts from before step 0."""
        return self.step - min(self.pushed_at)


@dataclass(frozen=True)
class HeldOutTotal:
    """The sum of all parties' predictions of the held-out rows at the end of an epoch; to the label party."""

    epoch: int
    values: Codes
    mask_ids: tuple[int, ...] = ()
    variance: float = 0.0
    piece: Piece | None = None
    """Which of the held-out rows; None where the message holds all."""


@dataclass(frozen=True)
class Stopped:
    """The run ends before this step: a party's privacy budget is spent, or held-out rows have gained nothing."""

    party: str
    step: int
    no_gain: bool = False


@dataclass(frozen=True)
class Waiting:
    """Whom the party's next total waits for."""

    parties: tuple[WaitedFor, ...]


FromServer = Welcome | Labels | Ack | Total | Gradient | HeldOutTotal | Stopped | BestEpoch | Waiting


@dataclass(frozen=True)
class Reply:
    """A message from the server and the party it goes to."""

    to: str
    message: FromServer
