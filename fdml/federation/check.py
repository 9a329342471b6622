"""A party looked at home, before anyone waits for it: all faults at once, and what a run would mean for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fdml.cluster.column_groups import check_column_groups
from fdml.cluster.sharding import check_shards
from fdml.data.encoders import AnyEncoder, native_of
from fdml.data.encoding import Encoder
from fdml.data.label_encoding import fit_labels
from fdml.data.locations import TABLES
from fdml.data.origins import Origin, origins_of
from fdml.data.profile import DataProfile, profile_matrices, profile_rows, profile_test_rows
from fdml.errors import FdmlError
from fdml.federation.addresses import checked_address
from fdml.federation.estimate import Estimate, estimate_for
from fdml.federation.key_files import own_credentials
from fdml.federation.leading_keys import data_settings
from fdml.federation.machine_limits import memory_size
from fdml.federation.tracking import check_trackers
from fdml.federation.versions import why_not_here, with_versions
from fdml.models.losses import loss_named
from fdml.models.registry import with_native
from fdml.party.ledger import PartyLedger, planned_account
from fdml.party.record_level import check_encoder, check_record_level, check_repeats
from fdml.party.settings import PartySettings, check_label_owner, read_party
from fdml.privacy.accounts import AccountFile
from fdml.privacy.build_guard import guard_for, seeded_key
from fdml.privacy.disclosures import DISCLOSURES, POINTERS
from fdml.privacy.ledger import HELD_OUT, Ledger
from fdml.privacy.statement import Statement, state_of
from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.identity import Identity
from fdml.protocol.messages import prediction_width
from fdml.protocol.schedule import Schedule
from fdml.settings import AgreedTraining, RunSettings
from fdml.settings.data import DataSettings
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk

T = TypeVar("T")
_UNKNOWN_CLASSES = 3
"""What an estimate takes where only the label party knows how many classes there are."""
_BY_POSITION = ("There are no ids: rows are matched by position, and all learn their number.",)


@dataclass(frozen=True)
class Classes:
    """The labels of a label party, in counts."""

    count: int
    smallest_share: float
    """Of the rarest class among all rows."""


@dataclass
class CheckReport:
    """All that was found; `faults` keep a run from beginning or from meaning what it should."""

    party: str = ""
    run: str = ""
    data: DataProfile | None = None
    test: DataProfile | None = None
    classes: Classes | None = None
    shows: tuple[str, ...] = ()
    """What finding the shared rows shows, in sentences."""
    statement: Statement | None = None
    """What training would show, by the privacy statement's own rules."""
    estimate: Estimate | None = None
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_of(party: PartySettings, run: Path | None, home: Path) -> RunSettings:
    """The run that a party is checked for: the one named, or the run.toml beside its federation.toml."""
    return read_run(run, party.federation, partial(with_versions, home))


def check(path: Path, run: Path | None = None, *, plain: bool = False) -> CheckReport:
    """Look at a party.toml, its data and its run, without a network and without changing anything."""
    return _Check(path, run, plain=plain).run()


class _Check:
    """One check; what fails is a fault, and all that does not depend on it goes on."""

    def __init__(self, path: Path, run: Path | None, *, plain: bool) -> None:
        self._path = path
        self._run_path = run
        self._plain = plain
        self._report = CheckReport()

    def run(self) -> CheckReport:
        report = self._report
        party = self._tried(lambda: read_party(self._path))
        if party is None:
            return report
        report.party = party.party
        self._tried(lambda: check_trackers(party.track))
        self._tried(party.workers.check)
        run = self._tried(lambda: run_of(party, self._run_path, self._path.parent))
        if run is not None:
            report.run = run.name
            self._check_settings(party, run)
        settings = party.data
        if run is not None:
            settings = self._tried(lambda: data_settings(party, run)) or party.data
        origins = self._tried(lambda: origins_of(settings))
        if origins is not None:
            self._look(origins, settings)
        if run is not None and report.data is not None:
            self._check_data(party, run, report.data)
            self._plan(party, run, report.data)
        return report

    def _tried(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except FdmlError as error:
            if str(error) not in self._report.faults:
                self._report.faults.append(str(error))
            return None

    def _check_settings(self, party: PartySettings, run: RunSettings) -> None:
        """What can be said without the data."""
        if lacks := why_not_here(self._path.parent, party, run):
            self._report.faults.append(lacks)
        if party.party not in run.parties:
            self._report.faults.append(
                f"{self._path}: party {party.party!r} is not among the parties {', '.join(run.parties)}; correct "
                "`party`, or ask for the file that all agreed on"
            )
            return
        self._tried(lambda: check_label_owner(party, run))
        self._tried(lambda: check_repeats(party.guard, run, party.party))
        self._tried(lambda: check_record_level(party.guard, run.training, party.model, party.data))
        noisy = party.guard.training is not None
        for check_parts in (check_shards, check_column_groups):
            self._tried(partial(check_parts, party.model, run.training.joint, run.chosen_loss, noisy=noisy))
        for address in run.addresses.values() if run.is_mesh else (party.server or run.server,):
            self._tried(partial(checked_address, address))
        if not self._plain:
            identity = Identity(run.federation, "party", party.party)
            self._tried(lambda: own_credentials(self._path.parent / "keys", identity, run))
        if party.align.max_rows is None:
            self._report.warnings.append(
                "[align] max_rows is not set: `fdml join` will ask a person, or take --yes, before rows are shared"
            )

    def _look(self, origins: Sequence[Origin], settings: DataSettings) -> None:
        report = self._report
        if origins[0].kind not in (*TABLES, "query", "frame"):
            matrices = self._tried(lambda: profile_matrices(origins, settings)) or []
            report.data = next(iter(matrices), None)
            report.test = matrices[1] if len(matrices) > 1 else None
            return
        report.data = profile_rows(origins[0], settings)
        found = [report.data]
        if len(origins) > 1:
            report.test = profile_test_rows(origins[1], settings, report.data)
            found.append(report.test)
        for each in found:
            report.faults += each.all_faults
            report.warnings += [] if each.ids is None else [f"{each.place}: {text}" for text in each.ids.warnings]
        report.warnings += [
            f"column {column.name!r}: {text}" for column in report.data.columns for text in column.warnings
        ]

    def _check_data(self, party: PartySettings, run: RunSettings, data: DataProfile) -> None:
        """What the run asks of this party's columns."""
        for encoder in _one_by_one(data.encoder):
            self._tried(partial(check_encoder, party.guard, party.data, encoder))
        if data.encoder is not None:
            self._tried(partial(with_native, party.model, native_of(data.encoder)))
        is_label_party = party.party == run.label_party
        if not is_label_party and data.rows and not (data.encoder and data.encoder.names) and not data.all_faults:
            self._report.faults.append(f"party {party.party!r} has no features; only the label party may have none")
        if is_label_party and party.data.label is None and data.labels is None:
            self._report.faults.append(f"label party {party.party!r} has no labels; set data.label to its label column")
        if is_label_party and data.labels is not None:
            labels = data.labels
            encoding = self._tried(lambda: fit_labels(run.task, labels, link=loss_named(run.chosen_loss).link))
            if encoding is not None and encoding.classes is not None:
                counts = np.unique(labels, return_counts=True)[1]
                self._report.classes = Classes(len(counts), float(counts.min() / counts.sum()))

    def _plan(self, party: PartySettings, run: RunSettings, data: DataProfile) -> None:
        """What the run would show, cost and spend."""
        report = self._report
        ids = DISCLOSURES[run.align] if party.data.id or data.has_ids else _BY_POSITION
        report.shows = ids if run.pointing_party is None else POINTERS
        rows = data.rows if data.ids is None else data.rows - data.ids.counts.missing - data.ids.counts.repeated
        if party.party not in run.parties or data.encoder is None or rows < 2:
            return
        classes = report.classes.count if report.classes is not None else _UNKNOWN_CLASSES
        found, agreed, schedule = estimate_for(
            run,
            party.model,
            features=len(data.encoder.names),
            entries=data.entries,
            rows=rows,
            test_rows=None if report.test is None else max(report.test.rows, 1),
            width=prediction_width(run.task, classes, run.training),
            pass_seconds=data.seconds,
        )
        report.estimate = found
        self._check_machine(found)
        report.statement = self._tried(lambda: self._statement(party, run, agreed, schedule))

    def _statement(
        self, party: PartySettings, run: RunSettings, agreed: AgreedTraining, schedule: Schedule
    ) -> Statement:
        """The privacy statement of the run as planned; raises where the guard or the ledger would refuse it."""
        guard = guard_for(
            party.guard,
            schedule,
            seeded_key(0, party.party),
            grid=grid_of(agreed.value_bits, agreed.max_prediction),
            parties=len(run.parties),
            few_bits=few_bits_of(run),
        )
        planned = planned_account(run, party.guard, schedule)
        if party.ledger.is_dir():
            accounts = AccountFile(FolderDisk(party.ledger))
            ledger = PartyLedger(accounts, "", "", total_releases=party.policy.total_releases)
            ledger.open_run(run, party.guard, schedule, seeded_key(0, party.party))
        counted = Ledger(guard.ledger.mechanism, guard.ledger.gradients, guard.ledger.delta, None)
        counted.count_release("block 0", planned.counts.releases)
        counted.count_use("block 0", planned.counts.uses)
        counted.count_release(HELD_OUT, planned.counts.held_out)
        evaluations = planned.counts.held_out
        return state_of(run, party.party, party.guard, counted, schedule, evaluations, plain=self._plain)

    def _check_machine(self, found: Estimate) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if found.disk_bytes > free:
            self._report.faults.append(
                f"the features take about {found.disk_bytes / 1e9:.1f} GB on disk, and {free / 1e9:.1f} GB are free; "
                "make room, or leave columns out"
            )
        if found.memory_bytes > memory_size():
            self._report.warnings.append(
                f"about {found.memory_bytes / 1e9:.1f} GB of memory are needed, and this machine has "
                f"{memory_size() / 1e9:.1f} GB"
            )


def _one_by_one(encoder: AnyEncoder | None) -> list[AnyEncoder]:
    """An encoder for each column, so that the faults of all are found."""
    if isinstance(encoder, Encoder):
        return [Encoder((feature,)) for feature in encoder.features]
    return [] if encoder is None else [encoder]


def as_json(report: CheckReport) -> dict[str, Any]:
    """The report as values that `json.dump` takes; labels and encoder stay out, as they hold what rows hold."""

    def table(profile: DataProfile | None) -> dict[str, Any] | None:
        if profile is None:
            return None
        bare = replace(profile, encoder=None, labels=None, roles=None)
        return {name: value for name, value in asdict(bare).items() if name not in ("encoder", "labels", "roles")}

    return {
        "party": report.party,
        "run": report.run,
        "faults": report.faults,
        "warnings": report.warnings,
        "data": table(report.data),
        "test": table(report.test),
        "classes": None if report.classes is None else asdict(report.classes),
        "shows": list(report.shows),
        "statement": None if report.statement is None else report.statement.as_json(),
        "estimate": None if report.estimate is None else asdict(report.estimate),
    }
