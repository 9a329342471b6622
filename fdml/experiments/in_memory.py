"""Parties whose rows are arrays in memory, aligned already, and of whom nothing has to last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fdml.align.group_key import GroupKey
from fdml.align.kept import Generation
from fdml.align.party_ids import PartyIds
from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import RowSet
from fdml.data.rows import Rows
from fdml.models.model import State
from fdml.party.alignment import AlignmentReport, RowIds, SharedRows
from fdml.party.checkpoint import Checkpoint, FinishedModel
from fdml.party.data import PartyRows
from fdml.party.effects import WriteBundle
from fdml.party.member import Member
from fdml.party.plan import Plan
from fdml.privacy.build_guard import seeded_key
from fdml.privacy.statement import Statement
from fdml.protocol.alignment_messages import RowCounts, RowsOffer
from fdml.settings import PrivacySettings, RunSettings
from fdml.settings.evaluation import EvaluationSettings
from fdml.settings.losses import task_of

DIGEST = bytes(32)
"""The alignment hash of rows that are in one order already."""
KEY = GroupKey(bytes(32))
"""Seals and masks of a run in one process hide nothing from the one who runs it."""


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """One party's rows, and the labels of all."""

    name: str
    train: RowSet
    held_out: RowSet | None
    classes: int

    def row_ids(self) -> RowIds:
        """By position."""
        rows = np.arange(len(self.train))
        return RowIds(PartyIds(by_position=RowCounts(len(rows), None)), rows, rows)

    def rows(self, _: SharedRows) -> PartyRows:
        """The rows as they are."""
        return PartyRows(self.train.parts[self.name], self._held_out_rows())

    def labels(self, _: SharedRows) -> tuple[LabelSet, LabelEncoding | None]:
        """The labels as they are."""
        none = np.zeros(0)
        return LabelSet(
            self.classes,
            self.train.labels,
            none if self.held_out is None else self.held_out.labels,
            self.train.weights,
            none if self.held_out is None else self.held_out.weights,
            self.train.groups,
            none.astype(np.int64) if self.held_out is None else self.held_out.groups,
        ), None

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights of their own."""
        return not bool((self.train.weights == 1.0).all())

    def _held_out_rows(self) -> Rows | None:
        return None if self.held_out is None else self.held_out.parts[self.name]

    def shared(self, parties: Sequence[str] = ()) -> SharedRows:
        """All rows, in the order they are in. With the names of all `parties` it has keys that it shares with each."""
        rows, held_out = len(self.train), 0 if self.held_out is None else len(self.held_out)
        report = AlignmentReport("tokens", {}, rows + held_out, rows, held_out, 0.0)
        pairs = {other: KEY.derive(" ".join(sorted((self.name, other)))) for other in parties if other != self.name}
        return SharedRows(np.arange(rows), np.arange(held_out), DIGEST, KEY, report, pairs)


class NothingStored:
    """The store of a party of which nothing has to last."""

    def save_rows_offer(self, state: bytes, offer: RowsOffer) -> None:
        """Nothing."""

    def save_generation(self, generation: Generation) -> None:
        """Nothing."""

    def save_alignment(self, shared: SharedRows) -> None:
        """Nothing."""

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Nothing."""

    def save_result(self, result: FinishedModel) -> None:
        """Nothing."""

    def write_statement(self, statement: Statement) -> None:
        """Nothing."""

    def write_bundle(self, _: WriteBundle) -> Path | None:
        """Nothing."""
        return None


def run_of(plan: Plan, privacy: PrivacySettings | None = None, stop_after: int | None = None) -> RunSettings:
    """The settings of a run of all parties of a plan, evaluated after every epoch where there are held-out rows."""
    return RunSettings(
        parties=tuple(plan.models),
        label_party=plan.label_party,
        task=task_of(plan.loss),
        loss=plan.loss,
        training=plan.training,
        evaluation=EvaluationSettings(every="epoch", stop_after=stop_after, baseline="none"),
        privacy=privacy or PrivacySettings(),
    )


def members_of(
    plan: Plan,
    run: RunSettings,
    train: RowSet,
    held_out: RowSet | None,
    start: Mapping[str, State],
    noise_seed: int | None = None,
    *,
    watch_loss: bool = False,
) -> dict[str, Member]:
    """All parties of a plan. Their noise keys follow from a seed (by default the plan's): runs can be repeated."""
    members = {}
    for name, model in plan.models.items():
        data = RowsInMemory(name, train, held_out, plan.classes)
        members[name] = Member(
            run=run,
            name=name,
            data=data,
            noise=seeded_key(plan.training.seed if noise_seed is None else noise_seed, name),
            model=model,
            guard=plan.guard(name),
            shared=data.shared(run.parties),
            start=start.get(name),
            watch_loss=watch_loss,
        )
    return members
