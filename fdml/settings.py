"""Settings as frozen, checked values: run.toml, and the parts of a party.toml.

`run.toml` is agreed by all parties. A `party.toml` as a whole is read by
`fdml.party.settings`, as its `[model]` depends on the kinds of models.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from fdml.errors import SettingsError
from fdml.settings_file import Settings, read_settings

Task = Literal["binary", "multiclass", "regression"]
LossName = Literal["logistic", "hinge", "softmax", "squared"]
LrDecay = Literal["linear", "sqrt", "constant"]
OptimizerName = Literal["sgd", "momentum", "adagrad", "adam"]
Align = Literal["tokens", "ecdh"]
Noise = Literal["none", "gaussian", "laplace"]

LOSSES_OF: dict[Task, tuple[LossName, ...]] = {
    "binary": ("logistic", "hinge"),
    "multiclass": ("softmax",),
    "regression": ("squared",),
}
"""The losses that fit each task; the first is the default."""
PRIVATE_LOSSES: tuple[LossName, ...] = ("logistic", "softmax")
"""The losses of classes: their labels can be randomised, and a party can learn from their gradients alone."""

LONGEST_NAME = 64
"""Letters of the name of a run or party."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*( [A-Za-z0-9_.-]+)*")
_TAKEN = ("server", "authority")
"""Folders and roles that are no party's."""


Fingerprint = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""The SHA-256 of a member's public key, as `fdml keys show` prints it."""


class TrainingSettings(Settings):
    """How all parties train. The defaults are the measured ones."""

    epochs: PositiveInt = 20
    batch_size: PositiveInt = 100
    batches_per_block: PositiveInt | Literal["all"] = 16
    """How many batches one exchange covers; "all" makes every epoch one exchange."""
    passes: PositiveInt = 1
    """How often a party goes over a block before it exchanges the next one."""
    exchanges: PositiveInt | None = None
    """The number of exchanges in the whole training, each of all rows, with `epochs` passes over them; the parties
    train alone up to the first. None exchanges block by block."""
    value_bits: Literal[64, 32, 16] = 64
    """Of a prediction on its way: 64 and 32 bits are exact for all purposes, 16 bits round to .002 and cut at 64
    divided by the number of parties."""
    max_prediction: PositiveFloat | None = None
    """The largest local prediction that may travel; larger ones are cut to it. None is what `value_bits` hold."""
    lookahead: NonNegativeInt = 1
    staleness: NonNegativeInt = 0
    echo: NonNegativeFloat | None = None
    """How much the others are assumed to move as the party itself moves; None is the number of parties."""
    learning_rate: PositiveFloat | Literal["auto"] = 0.5
    lr_decay: LrDecay = "linear"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    peer_timeout_seconds: PositiveFloat = 60.0
    """Seconds to wait for another party before giving up and naming it."""
    checkpoint_seconds: NonNegativeFloat = 5.0
    """How often a party saves its state; what it did since is computed again after a crash."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.exchanges is None:
            return self
        for name in ("batches_per_block", "passes", "lookahead"):
            if name in self.model_fields_set:
                raise SettingsError(f"training.exchanges takes the place of training.{name}; leave one of them out")
        if self.epochs <= self.exchanges:
            raise SettingsError(
                f"{self.exchanges} exchanges need at least {self.exchanges + 1} epochs, there are {self.epochs}; "
                f"raise epochs, or lower exchanges"
            )
        return self


class EvaluationSettings(Settings):
    """Which rows are held out where the parties bring no test files."""

    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2
    every: Literal["epoch", "end"] | None = None
    """When the held-out rows are predicted, which is a release of them: after every epoch or only at the end. None is
    every epoch, but the end where `exchanges` is set."""


class PrivacySettings(Settings):
    """What the parties show each other and the server."""

    labels: Literal["shared", "private"] = "shared"
    """Shared labels reach the other parties, sealed so that the server cannot read them. Private ones stay at the
    label party, which returns gradients."""
    label_epsilon: PositiveFloat | Literal["off"] = 2.0
    """Of private labels: each is randomised once before it is used. Off returns gradients that disclose every label."""
    server: Literal["plain", "blind"] = "plain"
    """A blind server sees predictions under masks only; at staleness 0 not even a party can take off another's."""


class RunSettings(Settings):
    """What all parties of a run agree on."""

    name: str = "run"
    server: str = "127.0.0.1:7443"
    parties: Annotated[tuple[str, ...], Field(min_length=1)]
    label_party: str
    task: Task = "binary"
    loss: LossName | None = None
    align: Align = "tokens"
    """How the shared rows are found: keyed hashes of ids, or private set intersection (slower, holds against more)."""
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    privacy: PrivacySettings = PrivacySettings()
    members: dict[str, Fingerprint] = Field(default_factory=dict)
    """The key of the server and of every party, so that all agree on who is who; only plain lines do without."""

    @field_validator("members")
    @classmethod
    def _sorted(cls, members: dict[str, str]) -> dict[str, str]:
        return dict(sorted(members.items()))

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_name("run name", self.name)
        check_parties(self.parties, self.label_party)
        check_members(self.members, self.parties)
        loss = loss_for(self.task, self.loss)
        if self.privacy.labels == "private" and loss not in PRIVATE_LOSSES:
            raise SettingsError(
                f'labels = "private" cannot train with loss {loss!r}; it takes {" or ".join(PRIVATE_LOSSES)}'
            )
        if self.privacy.labels == "private" and self.training.exchanges is not None:
            raise SettingsError(
                'labels = "private" leaves nothing to learn from between exchanges; leave training.exchanges out'
            )
        return self

    @property
    def has_pairwise_masks(self) -> bool:
        """Whether predictions are under masks of pairs of parties, which cancel in sums of one step's parts."""
        return self.privacy.server == "blind" and self.training.staleness == 0 and len(self.parties) > 1


class ModelSettings(Settings):
    """One party's local model and how it is updated: what all kinds have. `fdml.models.registry` knows the kinds."""

    kind: str
    l2: NonNegativeFloat = 1e-4
    optimizer: OptimizerName = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of the rules `momentum` and `adam`."""
    learning_rate: PositiveFloat | Literal["auto"] | None = None
    """This party's own step size; None takes the run's."""
    precision: Literal["single", "double"] = "single"

    @classmethod
    def subject(cls) -> str:
        """The kind of model, where it is known."""
        kind = cls.model_fields["kind"].default
        return f" of model kind {kind!r}" if isinstance(kind, str) else ""


class GradientGuardSettings(Settings):
    """Noise in a party's own training, so that its parameters disclose little of any one row."""

    clip: PositiveFloat
    """The longest that one row's gradient may be."""
    sigma: PositiveFloat
    """Standard deviation of the noise on the sum of a batch's gradients."""


class GuardSettings(Settings):
    """What a party's predictions must pass before they leave; each party chooses for itself."""

    clip: PositiveFloat | None = None
    """The largest prediction that leaves; of several floats the longest vector (L2; L1 with Laplace noise)."""
    noise: Noise = "none"
    sigma: PositiveFloat | Literal["auto"] | None = None
    """Standard deviation of Gaussian noise, scale of Laplace noise; "auto" is the least that `epsilon` allows."""
    epsilon: PositiveFloat | None = None
    """The budget of each row: the release that would overspend it is refused, and training ends."""
    total_epsilon: PositiveFloat | None = None
    """What all runs of the ledger together may spend of a row: a run that would exceed it is refused."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    evaluation: Literal["guarded", "exact"] = "guarded"
    """How predictions of held-out rows leave: as all others, or as they are (these rows are then not protected)."""
    training: GradientGuardSettings | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.noise == "none":
            for name in ("sigma", "epsilon", "total_epsilon"):
                if getattr(self, name) is not None:
                    raise SettingsError(f'guard.{name} is set but no noise; set guard.noise = "gaussian"')
            return self
        if self.clip is None:
            raise SettingsError("guard.noise protects only predictions of limited size; set guard.clip, 3.0 for one")
        if self.sigma is None:
            raise SettingsError('guard.noise needs guard.sigma: a number, or "auto" with guard.epsilon as the budget')
        if self.sigma == "auto" and self.epsilon is None:
            raise SettingsError('guard.sigma = "auto" needs guard.epsilon, the budget to keep to')
        if self.total_epsilon is not None and self.evaluation == "exact":
            raise SettingsError(
                'guard.evaluation = "exact" releases held-out rows without noise, which no guard.total_epsilon allows; '
                "leave one of them out"
            )
        return self


def is_name(text: str) -> bool:
    """Whether a text can name a run or a party: it also names folders, certificates and lines of a log."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def check_name(what: str, name: str) -> None:
    """Raise unless a run or party may have this name; `what` begins the sentence."""
    if not is_name(name):
        raise SettingsError(
            f"{what} {name[:LONGEST_NAME]!r} cannot name a folder; use at most {LONGEST_NAME} letters, digits, '-', "
            f"'_' and '.', the first a letter or digit"
        )


def check_parties(parties: tuple[str, ...], label_party: str) -> None:
    """Raise unless the names can be names, are distinct, and the label party is among them."""
    for name in parties:
        check_name("party name", name)
        if name in _TAKEN:
            raise SettingsError(f"party name {name!r} is taken; give the party another name")
    twice = sorted({name for name in parties if parties.count(name) > 1})
    if twice:
        raise SettingsError(f"party {twice[0]!r} is listed twice; give every party its own name")
    if label_party not in parties:
        raise SettingsError(f"label_party {label_party!r} is not among the parties {', '.join(parties)}")


def check_members(members: Mapping[str, str], parties: tuple[str, ...]) -> None:
    """Raise unless the members are none, or the server and all parties, each with a key of its own."""
    if not members:
        return
    wanted = {"server", *parties}
    for name in sorted(wanted - set(members)):
        raise SettingsError(f"[members] lacks {name!r}; `fdml keys members` prints the whole table")
    for name in sorted(set(members) - wanted):
        raise SettingsError(f"[members] names {name!r}, which is neither a party nor the server; take the line out")
    if len(set(members.values())) < len(members):
        raise SettingsError("two of the [members] have the same key; each makes its own with `fdml keys request`")


def loss_for(task: Task, loss: LossName | None) -> LossName:
    """The loss to train with: the one asked for if it fits the task, else the task's own."""
    fitting = LOSSES_OF[task]
    if loss is None:
        return fitting[0]
    if loss not in fitting:
        raise SettingsError(f"loss {loss!r} does not fit task {task!r}; it takes {' or '.join(fitting)}")
    return loss


def evaluation_schedule(run: RunSettings) -> Literal["epoch", "end"]:
    """After every epoch, or at the end: where exchanges are few, so are the releases of held-out rows."""
    return run.evaluation.every or ("epoch" if run.training.exchanges is None else "end")


def read_run(path: Path) -> RunSettings:
    """Read and check a run.toml."""
    return read_settings(path, RunSettings)


def training_hash(settings: RunSettings) -> bytes:
    """Of what is trained and how: all settings, but for where the server is and which keys the members have.

    A setting that came later counts only where it is set: runs without it have the noise that they had.
    """
    later = {"max_prediction"} if settings.training.max_prediction is None else set[str]()
    what = settings.model_dump_json(exclude={"server": True, "members": True, "training": later})
    return hashlib.blake2b(what.encode(), digest_size=32).digest()


def run_hash(settings: RunSettings) -> bytes:
    """What all sides must agree on: the settings themselves, not how the file is written."""
    return hashlib.blake2b(settings.model_dump_json().encode(), digest_size=32).digest()
