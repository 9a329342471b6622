"""What settings can be chosen from: tasks, losses, update rules, noise."""

from __future__ import annotations

from typing import Literal

Task = Literal["binary", "multiclass", "regression"]
LossName = str
"""A key of `fdml.models.losses.LOSSES`: a loss can be registered from outside the package."""
Link = Literal["identity", "log"]
"""How the score of a regression becomes its prediction: as it is, or by exp."""
LARGEST_LOG = 20.0
"""The largest score that exp is taken of."""
LrDecay = Literal["linear", "sqrt", "constant"]
OptimizerName = Literal["sgd", "momentum", "adagrad", "adam", "factored"]
Align = Literal["tokens", "ecdh"]
Noise = Literal["none", "gaussian", "laplace"]

LOSSES_OF: dict[Task, tuple[LossName, ...]] = {
    "binary": ("logistic", "hinge", "pairwise"),
    "multiclass": ("softmax",),
    "regression": ("squared", "poisson", "quantile"),
}
"""The losses that fit each task; the first is the default."""
PAIRWISE: LossName = "pairwise"
"""The loss of pairs of rows in groups, which the label party alone can compute."""
PRIVATE_LOSSES: tuple[LossName, ...] = ("logistic", "softmax", PAIRWISE)
"""The losses of classes: their labels can be randomised, and a party can learn from their gradients alone."""
Auto = Literal["auto"]
"""What follows from rows, parties and lines, by the rules of `fdml.protocol.agreed_training`."""
Bits = Literal[64, 32, 16, 8, 4, 2]
