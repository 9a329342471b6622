"""Recordings of finished runs of processes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.audit.message_log import MessageLog, any_masks
from fdml.audit.recording import FurtherRun, GroundTruth, PartyFile, Recording
from fdml.data.label_encoding import LabelEncoding
from fdml.data.rows import PlainRows, Rows, plain_rows
from fdml.errors import DataError, SettingsError
from fdml.experiments.party_folders import dataset_of, load_model, plan_of, read_party_folders
from fdml.federation.run_folder import RunFolder
from fdml.party.alignment import SharedRows
from fdml.party.label_flips import LabelFlips, shown_labels, training_ids
from fdml.party.member import pairwise_masks_of
from fdml.privacy.build_guard import mechanism_of
from fdml.privacy.noise import NoiseKey
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.protocol.messages import FromParty
from fdml.protocol.wire import decode_from_party
from fdml.protocol.wire_pb2 import Record
from fdml.settings import PrivacySettings, RunSettings
from fdml.settings.choices import PAIRWISE
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal

Answers = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def read_recording(run_toml: Path) -> Recording:
    """The recording of a finished run whose parties all have their folders beside its run.toml."""
    run = read_run(run_toml)
    if run.unmatched == "keep":
        raise SettingsError(
            'the attacks take every party to hold every row, and unmatched = "keep" lets rows be absent; audit a run '
            'with unmatched = "drop"'
        )
    if run.compared_version is not None:
        raise SettingsError(
            "the attacks replay a run from its first parameters on, and this one began with or was compared with an "
            "earlier version; audit a run without `from` and evaluation.against"
        )
    if run.chosen_loss == PAIRWISE:
        raise SettingsError(
            'the attacks replay losses of single rows, and loss = "pairwise" compares rows of a group; audit a run '
            'with loss = "logistic", which shows no less of a row'
        )
    messages = list(_logged(RunFolder(run_toml.parent / "server", run).state))
    folders = read_party_folders(run_toml, run)
    label_party = folders[run.label_party]
    log = MessageLog(
        run,
        any_masks(label_party.shared.key.derive("masks"), run.parties),
        all_pairwise_masks(run, {name: home.shared for name, home in folders.items()}),
    )
    for sender, message in messages:
        log.take(sender, message)
    problem = dataset_of(run, folders)
    plan = plan_of(run, folders, problem)
    train, outputs = problem.train, problem.encoding.class_count
    schedule = plan.schedule(len(train))
    ids = training_ids(label_party.folder.files.row_ids(), label_party.shared.train)
    flips = label_party.folder.flips() or LabelFlips(NoiseKey(b""))
    answers = label_answers(run.privacy, train.labels, flips, outputs, problem.encoding, ids)
    truth = GroundTruth(
        features=copied_features(train.parts),
        labels=train.labels,
        shown_labels=answers(np.arange(len(train))),
        further_run=further_run(answers, len(train)),
        held_out=copied_features(problem.test.parts),
        held_out_labels=problem.test.labels,
        models={name: load_model(plan, home) for name, home in folders.items()},
        weights=train.weights,
        files={
            name: PartyFile(home.folder.settings.data, home.folder.settings.guard, home.shared.train)
            for name, home in folders.items()
        },
    )
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in run.parties}
    return log.recording(schedule, plan.objective, plan.echo, mechanisms, truth, plan.models, plan.training)


def copied_features(parts: Mapping[str, Rows]) -> dict[str, PlainRows]:
    """Features row by row, also where many rows point to the same."""
    return {name: plain_rows(rows) for name, rows in parts.items()}


def all_pairwise_masks(run: RunSettings, shared: Mapping[str, SharedRows]) -> dict[str, PairwiseMasks]:
    """The masks of every party, where the run has pairwise ones."""
    if not run.has_pairwise_masks:
        return {}
    return {name: pairwise_masks_of(run, name, shared[name]) for name in run.parties}


def _logged(state: Path) -> Iterator[tuple[str, FromParty]]:
    """All messages the server acted on, in order."""
    if not (state / "journal").is_file():
        raise DataError(f"there is no log {str(state / 'journal')!r}; run `fdml simulate` first")
    for number, raw in enumerate(Journal(FolderDisk(state), "journal").replay(), 1):
        record = Record.FromString(raw)
        if record.number != number or not record.message:
            raise DataError(
                f"the server's log begins anew at message {record.number}: what came before it was folded into a "
                f"snapshot and is gone; audit a run of fewer rows or epochs, whose log stays below 256 MB"
            )
        yield record.sender, decode_from_party(record.message)


def label_answers(
    privacy: PrivacySettings,
    labels: NDArray[np.float64],
    flips: LabelFlips,
    classes: int,
    encoding: LabelEncoding | None,
    ids: pa.LargeStringArray,
) -> Answers:
    """The labels as training shows them, by the order that a run has the rows in."""

    def answers(order: NDArray[np.int64]) -> NDArray[np.float64]:
        chosen = partial(ids.take, pa.array(order))
        return shown_labels(labels[order], privacy, flips, classes=classes, encoding=encoding, ids=chosen)

    return answers


def further_run(answers: Answers, rows: int) -> FurtherRun:
    """The labels as the label party would show them in one more run, which has the rows in another order."""
    order = np.random.default_rng(rows).permutation(rows)
    return FurtherRun(order, answers(order))
