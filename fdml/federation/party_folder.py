"""A party's folder: its settings, keys and ledger, and for each run its saved state and in the end its model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fdml.align.group_key import GroupKey, read_key_file
from fdml.align.party_secrets import Secrets
from fdml.data.origins import Origin
from fdml.data.rows import row_count
from fdml.errors import AlignmentError, SettingsError
from fdml.events import Listener
from fdml.federation.addresses import server_address
from fdml.federation.alignment_folders import alignment_folder
from fdml.federation.key_files import own_credentials
from fdml.federation.party_files import PartyFiles
from fdml.federation.run_folder import MODEL, RUNS, RunFolder
from fdml.federation.versions import (
    Promotions,
    check_compared,
    check_warm_start,
    earlier_run,
    promotion_text,
    with_versions,
)
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.models.bundle_model import bundle_model, check_same_joint, joint_in
from fdml.models.calibration import Calibration
from fdml.models.losses import Floats
from fdml.models.row_pointers import predict_rows
from fdml.party.alignment import SharedRows
from fdml.party.consent import Ask, ConsentDecision
from fdml.party.disk_store import DiskStore
from fdml.party.earlier import EarlierModel, without_part
from fdml.party.effects import WriteBundle
from fdml.party.kept_store import KeptStore
from fdml.party.label_flips import LabelFlips
from fdml.party.ledger import PartyLedger
from fdml.party.member import AlignmentKeys, Member
from fdml.party.policy import PolicySettings
from fdml.party.record_level import check_record_level
from fdml.party.settings import PartySettings, read_party, with_model
from fdml.privacy.accounts import AccountFile
from fdml.privacy.build_guard import stored_key
from fdml.privacy.statement import Statement
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials, Identity
from fdml.settings import RunSettings, run_hash
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import exclusive_lock, shared_turns
from fdml.transport.grpc_endpoint import Endpoint, check_loopback

HISTORY = "history.json"
_EARLIER = "earlier"
"""In the state of a run: the held-out rows as the version that it is compared with encodes them."""
LABEL_FLIPS = "label-secret"
"""The file of the secret that private labels are randomised with."""


class PartyFolder(DiskStore):
    """One party's files on this machine for one run; the store of its session.

    `run` is the run's settings or its run.toml; None takes the run.toml beside the federation.toml of the party.
    `origins` are the party's rows, if they are not where party.toml says: `fdml.data.origins.frame_origins` has those
    of frames. With `settings` no party.toml is read.
    """

    def __init__(
        self,
        party_toml: Path,
        run: Path | RunSettings | None = None,
        *,
        origins: Sequence[Origin] | None = None,
        settings: PartySettings | None = None,
    ) -> None:
        self.file = party_toml
        self.path = party_toml.parent
        self.settings: PartySettings = read_party(party_toml) if settings is None else settings
        named = partial(with_versions, self.path)
        self.run: RunSettings = run if isinstance(run, RunSettings) else read_run(run, self.settings.federation, named)
        if self.settings.party not in self.run.parties:
            raise SettingsError(
                f"{party_toml}: party {self.settings.party!r} is not among the federation's parties "
                f"{', '.join(self.run.parties)}"
            )
        self.run_folder = RunFolder(self.path, self.run)
        self.settings = with_model(self.settings, self.run_folder.own_model())
        self.accepted_by: PolicySettings | None = None
        """The policy that has accepted the run; None where a person has."""
        self._origins = origins
        self._begins_with = self._earlier_bundle(self.run.from_version)
        if self._begins_with is not None:
            self.settings = with_model(self.settings, _optimizer_of(self._begins_with, self.settings))
        self.files = PartyFiles(
            self.settings,
            self.run,
            self.run_folder.state,
            origins=origins,
            encoder=None if self._begins_with is None else self._begins_with.encoder,
            labels=None if self._begins_with is None else self._begins_with.labels,
        )
        disk = FolderDisk(self.run_folder.state)
        self._alignment_folder = alignment_folder(self.path, self.run)
        self._alignment_disk = FolderDisk(self._alignment_folder)
        kept = KeptStore(self._alignment_disk, self._turns)
        super().__init__(disk, run_hash=run_hash(self.run), data=self.files.fingerprint, kept=kept)

    def endpoint(self, *, plain: bool, server: str | None = None, on_event: Listener = lambda _: None) -> Endpoint:
        """Where this party reaches the server, and with which keys; `on_event` hears of troubles with them."""
        credentials = self.credentials(plain=plain, on_event=on_event)
        target = server_address(self.run.server, self.settings.server, server)
        if plain:
            check_loopback(target)
        server_key = self.run.members.get(SERVER, "")
        return Endpoint(target, self.run.federation, self.settings.party, credentials, server_key, self.run.name)

    def credentials(self, *, plain: bool, on_event: Listener = lambda _: None) -> Credentials | None:
        """This party's keys; none on plain lines."""
        identity = Identity(self.run.federation, "party", self.settings.party)
        return None if plain else own_credentials(self.path / "keys", identity, self.run, on_event)

    def shared_rows(self) -> SharedRows | None:
        """The alignment of an earlier start, if the group_key file is still the one it was made with."""
        shared, path = super().shared_rows(), self.settings.group_key
        if shared is not None and path is not None and _bound(path, shared) != shared.key:
            raise AlignmentError(
                f"the group_key file {str(path)!r} holds another key than the one that the rows of party "
                f"{self.settings.party!r} were aligned with; put that back, or give the run a new name at every side"
            )
        return shared

    def member(self, endpoint: Endpoint, *, yes: bool = False, ask: Ask | None = None) -> Member:
        """This party as its session sees it; `yes` and `ask` are how it consents to the shared rows being told."""
        settings = self.settings
        check_record_level(settings.guard, self.run.training, settings.model, settings.data)
        consent = ConsentDecision(self._alignment_disk, self.run, settings.party, settings.align, yes, ask)
        shared = self.shared_rows()
        if shared is None:
            consent.check_possible()
        wanted = settings.threads
        return Member(
            run=self.run,
            name=settings.party,
            data=self.files,
            noise=stored_key(self.disk),
            flips=self.flips(),
            ledger=self.ledger(),
            model=settings.model,
            guard=settings.guard,
            threads=(os.cpu_count() or 1) if wanted == "auto" else wanted,
            workers=settings.workers,
            shared=shared,
            alignment=lambda: self._alignment_keys(consent, endpoint.credentials),
            disk=self.disk,
            start=None if self._begins_with is None else self._begins_with.parameters,
            earlier=self._earlier_model(),
            plain=endpoint.credentials is None,
        )

    def _earlier_bundle(self, version: str | None) -> Bundle | None:
        """This party's bundle of an earlier version, if it can be gone on from; None where it has none."""
        if version is None:
            return None
        check_warm_start(self.settings, self.run)
        name = earlier_run(self.path, self.settings.party, self.run, version)
        if name is None:
            return None
        bundle = Bundle.load(self.path / RUNS / name / MODEL)
        kind, now = bundle.card.settings.model["kind"], self.settings.model.kind
        if kind != now:
            raise SettingsError(
                f"version {version} has a model of kind {kind!r} at party {self.settings.party!r}, and party.toml says "
                f"{now!r}; put it back, or leave `from` out"
            )
        optimizer, wanted = bundle.card.settings.model.get("optimizer"), self.settings.model.optimizer
        if wanted not in ("auto", optimizer):
            raise SettingsError(
                f"version {version} was trained with optimizer {optimizer!r} at party {self.settings.party!r}, and "
                f"what that remembers does not fit model.optimizer = {wanted!r}; put it back, or leave `from` out"
            )
        return bundle

    def _earlier_model(self) -> EarlierModel | None:
        """The version that this run is compared with."""
        version = self.run.compared_version
        if version is None:
            return None
        name = earlier_run(self.path, self.settings.party, self.run, version)
        if name is None:
            return without_part(version)
        bundle = Bundle.load(self.path / RUNS / name / MODEL)
        check_compared(self.settings, bundle.card)
        check_same_joint(bundle, self.run.training)

        def predict(shared: SharedRows, floats: int) -> Floats:
            files = PartyFiles(
                self.settings,
                self.run,
                self.run_folder.state / _EARLIER,
                origins=self._origins,
                encoder=bundle.encoder,
            )
            rows = files.held_out(shared)
            return predict_rows(bundle_model(bundle, floats), rows, 0, row_count(rows))

        calibration = Calibration(bundle.card.scale, np.array(bundle.card.offset))
        return EarlierModel(version, name, predict, bundle.labels, calibration, joint_in(bundle))

    def _turns(self) -> AbstractContextManager[None]:
        """Runs of this party at once take turns to write what they share."""
        return shared_turns(self._alignment_folder)

    def _alignment_keys(self, consent: ConsentDecision, credentials: Credentials | None) -> AlignmentKeys:
        with self._turns():
            secrets = Secrets.load_or_make(self._alignment_disk, self.run, self.settings.party, credentials)
        return AlignmentKeys(secrets, consent, credentials, self.settings.group_key, self.kept.load(), self.offered())

    def flips(self) -> LabelFlips | None:
        """How this party's labels are randomised; None where they are not."""
        if self.settings.party != self.run.label_party or self.run.privacy.labels != "private":
            return None
        secret = stored_key(FolderDisk(self.settings.ledger), LABEL_FLIPS)
        rows = "" if self.settings.data.id else self.files.fingerprint
        return LabelFlips(secret, self.settings.data.label or "", rows)

    def ledger(self) -> PartyLedger:
        """What all runs have released."""
        folder = self.settings.ledger
        accounts = AccountFile(FolderDisk(folder), lambda: shared_turns(folder))
        return PartyLedger(
            accounts,
            self.files.fingerprint,
            self.files.name,
            self.settings.data.label or "",
            total_releases=self.settings.policy.total_releases,
            policy=self.accepted_by,
        )

    def lock(self) -> AbstractContextManager[None]:
        """One process at a time may be this party in this run."""
        holder = f"process of party {self.settings.party!r} in run {self.run.name!r}"
        return exclusive_lock(self.run_folder.state, holder)

    def write_statement(self, statement: Statement) -> None:
        """Write the privacy statement for people."""
        statement.write(self.run_folder.path)

    def write_bundle(self, bundle: WriteBundle) -> Path:
        """Write the trained model; gives its folder."""
        settings, calibration = self.settings, bundle.calibration
        card = BundleCard.of(
            run=self.run,
            party=settings.party,
            model=bundle.model,
            data=settings.data,
            alignment_hash=bundle.alignment_hash,
            evaluated=bundle.evaluated,
            privacy=bundle.spent,
            scale=calibration.scale,
            offset=calibration.offset.tolist(),
            width=bundle.width,
        )
        folder = self.run_folder.path / MODEL
        Bundle(card=card, parameters=bundle.parameters, encoder=self.files.encoder, labels=bundle.labels).save(folder)
        if bundle.promoted:
            Promotions(self.path).promote(card.version, self.run.name, "rule", promotion_text(self.run))
        return folder


def _optimizer_of(earlier: Bundle, settings: PartySettings) -> dict[str, Any]:
    """The optimizer of the version that is gone on from, where the party has not set one: what it remembers is kept."""
    trained_with = earlier.card.settings.model.get("optimizer", "auto")  # "auto" of a kind that has none
    return {} if trained_with == "auto" or settings.model.optimizer != "auto" else {"optimizer": trained_with}


def _bound(key_file: Path, shared: SharedRows) -> GroupKey:
    """The key of a file as a run over an alignment uses it."""
    return read_key_file(key_file).bound_to(shared.begun, shared.digest)
