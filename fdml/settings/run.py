"""Settings as frozen, checked values: those of a run, and the parts of a party.toml.

All parties agree on a run's settings. `fdml.party.settings` reads a party.toml: its `[model]` depends on the kinds.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from fdml.errors import SettingsError
from fdml.settings.choices import (
    Align,
    Auto,
    Bits,
    LossName,
    LrDecay,
    Noise,
    Task,
)
from fdml.settings.data import Names
from fdml.settings.evaluation import EvaluationSettings, PromotionSettings, check_stop_after
from fdml.settings.file import Settings
from fdml.settings.joint import JointSettings, check_joint
from fdml.settings.losses import check_pairwise, check_private_loss, loss_for
from fdml.settings.names import Fingerprint, check_keys, check_members, check_name, check_parties, check_version
from fdml.settings.privacy import PrivacySettings, check_few_bits
from fdml.settings.serving import Chance, ServingSettings, check_absence, check_askers, check_unsure
from fdml.settings.topology import NO_SERVER, Shown, check_addresses, check_host, check_mesh
from fdml.settings.versions import check_frozen, check_new_parties


class TrainingSettings(JointSettings):
    """How all parties train. Where it says "auto" a rule decides, once the shared rows are known."""

    epochs: PositiveInt | Auto = "auto"
    batch_size: PositiveInt | Auto = "auto"
    batches_per_block: PositiveInt | Literal["all"] | Auto = "auto"
    """How many batches one exchange covers; "all" makes every epoch one exchange."""
    passes: PositiveInt = 1
    """How often a party goes over a block before it exchanges the next one."""
    exchanges: PositiveInt | None = None
    """The number of exchanges in the whole training, each of all rows, with `epochs` passes over them; the parties
    train alone up to the first. None exchanges block by block."""
    value_bits: Bits | Auto = "auto"
    """Of a prediction on its way: 64 and 32 bits are exact for all purposes, 16 bits round to .002 and cut at 64
    divided by the number of parties. 8, 4 and 2 are the bits of its difference to what was sent before, on that
    grid."""
    max_prediction: PositiveFloat | None = None
    """The largest local prediction that may travel; larger ones are cut to it. None is what `value_bits` hold."""
    lookahead: NonNegativeInt | Auto = "auto"
    """How many steps ahead a party pushes its predictions."""
    staleness: NonNegativeInt = 0
    echo: NonNegativeFloat | None = None
    """How much the others are assumed to move as the party itself moves; None is the number of parties."""
    absence: Chance = 0.0
    """The chance that a block is trained without one drawn party, so that the others learn to do without it."""
    frozen_epochs: NonNegativeInt = 0
    """In so many epochs of the beginning only `new_parties` learn; the parts of the others stay those of `from`."""
    learning_rate: PositiveFloat | Auto = "auto"
    """The largest step size; "auto" is the rule of each party's kind of model."""
    lr_decay: LrDecay = "linear"
    class_weight: Literal["balanced"] | dict[str, PositiveFloat] | None = None
    """How much a training row counts by its class: "balanced" gives every class the same weight in all, a table gives
    classes their own (those it does not name have 1). None counts all rows alike, but for `data.weight`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    peer_timeout_seconds: PositiveFloat = 60.0
    """Seconds to wait for another party, once the run is under way, before giving up and naming it."""
    checkpoint_seconds: NonNegativeFloat = 5.0
    """How often a party saves its state; what it did since is computed again after a crash."""

    @field_validator("class_weight")
    @classmethod
    def _sorted(cls, weights: Literal["balanced"] | dict[str, float] | None) -> object:
        return dict(sorted(weights.items())) if isinstance(weights, dict) else weights

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.exchanges is None:
            return self
        check_absence(self.absence)
        for name in ("batches_per_block", "passes", "lookahead"):
            if name in self.model_fields_set:
                raise SettingsError(f"training.exchanges takes the place of training.{name}; leave one of them out")
        if self.epochs != "auto" and self.epochs <= self.exchanges:
            raise SettingsError(
                f"{self.exchanges} exchanges need at least {self.exchanges + 1} epochs, there are {self.epochs}; "
                f"raise epochs, or lower exchanges"
            )
        return self


class AgreedTraining(TrainingSettings):
    """The settings of one run over its rows: nothing is left to a rule. `fdml.protocol.agreed_training` makes them."""

    epochs: PositiveInt
    batch_size: PositiveInt
    batches_per_block: PositiveInt | Literal["all"]
    value_bits: Bits
    lookahead: NonNegativeInt


class RunSettings(Settings):
    """What all parties of a run agree on: federation.toml and run.toml, read by `fdml.settings.federation`."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = "run"
    federation: str = "federation"
    """The name of the federation, which certificates carry."""
    server: str = "127.0.0.1:7443"
    """Where the server listens; "none" where there is none, and every party sums for itself."""
    host: str | None = None
    """The party that runs the server inside its own process; None where the server is a process of its own."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Where there is no server: where each party listens, and all others reach it."""
    parties: Annotated[tuple[str, ...], Field(min_length=1)]
    label_party: str
    task: Task = "binary"
    loss: LossName | None = None
    """What training lowers; None is the first that `LOSSES_OF` has for the task."""
    quantile: float | None = None
    """The level of loss "quantile": the share of rows whose label is to be below the prediction. None is 0.5."""
    align: Align = "tokens"
    """How the shared rows are found: keyed hashes of ids, or private set intersection (slower, holds against more)."""
    comparing_party: str | None = None
    """Where there is no server: the party that compares the blinded ids of all; None is the first."""
    unmatched: Literal["drop", "keep"] = "drop"
    """What becomes of a row of the label party that another party does not hold: it is left out, or that party's part
    of it is zero."""
    keys: dict[str, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """By party whose rows are coarser than the label party's: the columns of the label party's table that lead to
    them. The parties that are not listed hold the label party's own rows."""
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    privacy: PrivacySettings = PrivacySettings()
    serving: ServingSettings = ServingSettings()
    members: dict[str, Fingerprint] = Field(default_factory=dict)
    """The key of the server and of every party, so that all agree on who is who; only plain lines do without."""
    from_version: str | None = Field(default=None, alias="from")
    """The version whose parameters and encoders training begins with; None begins anew."""
    new_parties: Names = ()
    """The parties that the earlier version was trained without: each begins with a new model of its own rows."""
    promotion: PromotionSettings | None = None
    """The rule by which this run's version takes the place of the one it is compared with; None leaves it to people."""
    search: str | None = None
    """The search for settings that this run is one of: `fdml tune` sets it, and policies count by it."""

    @field_validator("members", "keys", "addresses")
    @classmethod
    def _sorted(cls, table: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(table.items()))

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_name("run name", self.name)
        check_name("federation name", self.federation)
        check_name("search name", self.search or self.name)
        check_parties(self.parties, self.label_party)
        check_members(self.members, self.parties, mesh=self.is_mesh)
        check_addresses(self.server, self.addresses, self.host, self.parties)
        check_keys(self.keys, self.parties, self.label_party)
        check_askers(self.serving, self.parties)
        check_unsure(self.serving, self.chosen_loss)
        check_pairwise(self.chosen_loss, labels=self.privacy.labels, absence=self.training.absence)
        if self.privacy.labels == "private":
            check_private_loss(self.chosen_loss)
        if self.training.class_weight is not None:
            self._check_class_weight()
        if self.privacy.labels == "private" and self.training.exchanges is not None:
            raise SettingsError(
                'labels = "private" leaves nothing to learn from between exchanges; leave training.exchanges out'
            )
        check_stop_after(self.evaluation, self.training.exchanges)
        self._check_versions()
        check_few_bits(self.training.value_bits, self.training.staleness, self.privacy)
        shown = Shown(self.align, self.privacy, self.training.staleness)
        check_host(self.host, self.parties, self.label_party, shown)
        check_mesh(self.server, self.comparing_party, self.parties, shown)
        check_joint(self.training, staleness=self.training.staleness, labels=self.privacy.labels)
        return self

    def _check_class_weight(self) -> None:
        if self.task == "regression":
            raise SettingsError('training.class_weight is for classes, and task = "regression" has none; leave it out')
        if self.privacy.labels == "private":
            raise SettingsError(
                "training.class_weight could disclose private labels; leave it out, or share the labels"
            )

    def _check_versions(self) -> None:
        check_version("from", self.from_version)
        check_version("evaluation.against", self.evaluation.against)
        begun, training = self.from_version is not None, self.training
        if begun and training.exchanges is not None:
            raise SettingsError(
                "training.exchanges begins with every party alone, which spoils a jointly trained model; leave it or "
                "`from` out"
            )
        if (self.promotion is not None or self.new_parties) and self.compared_version is None:
            what = "new_parties are new to" if self.promotion is None else "[promotion] compares with"
            raise SettingsError(f"{what} an earlier version; set evaluation.against, or `from`")
        check_new_parties(self.new_parties, self.parties, self.label_party)
        check_frozen(training.frozen_epochs, of=training.epochs, new=begun and bool(self.new_parties))
        if begun and self.new_parties and training.joint == "head":
            raise SettingsError(
                'training.joint = "head" is a network of which every party of the version has a copy, and new_parties '
                "have none; leave `from` out to train anew"
            )

    @property
    def chosen_loss(self) -> LossName:
        """The loss that is trained with, by the name under which `fdml.models.losses` knows it."""
        return loss_for(self.task, self.loss, self.quantile)

    @property
    def compared_version(self) -> str | None:
        """The version that the run is compared with on its held-out rows."""
        return self.evaluation.against or self.from_version

    @property
    def has_outcome(self) -> bool:
        """Whether the label party tells all others at the end which epoch they keep, or whether it is promoted."""
        return self.evaluation.stop_after is not None or self.promotion is not None

    @property
    def pointing_party(self) -> str | None:
        """The label party where its rows point to those of each other party; None where all hold the same ids."""
        points = len(self.parties) > 1 and (bool(self.keys) or self.unmatched == "keep")
        return self.label_party if points else None

    @property
    def is_mesh(self) -> bool:
        """Whether there is no server: every party sends its predictions to all others, and each sums for itself."""
        return self.server == NO_SERVER

    @property
    def comparer(self) -> str:
        """Where there is no server: the party that compares blinded ids, and takes the calls of others besides."""
        return self.comparing_party or self.parties[0]

    @property
    def has_pairwise_masks(self) -> bool:
        """Whether predictions are under masks of pairs of parties, which cancel in sums of one step's parts."""
        return self.privacy.server == "blind" and self.training.staleness == 0 and len(self.parties) > 1


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


def evaluation_schedule(run: RunSettings) -> Literal["epoch", "end"]:
    """After every epoch, or at the end: where exchanges are few, so are the releases of held-out rows."""
    return run.evaluation.every or ("epoch" if run.training.exchanges is None else "end")


def run_hash(settings: RunSettings) -> bytes:
    """What all sides must agree on: the settings themselves, not how the file is written."""
    return hashlib.blake2b(settings.model_dump_json().encode(), digest_size=32).digest()
