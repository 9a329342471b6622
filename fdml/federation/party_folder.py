"""A party's folder: its settings, keys and ledger, and for each run its saved state and in the end its model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fdml.align.group_key import GroupKey, read_key_file
from fdml.align.party_secrets import Secrets
from fdml.data.origins import Origin
from fdml.errors import AlignmentError, SettingsError
from fdml.events import Listener
from fdml.federation.addresses import server_address
from fdml.federation.alignment_folders import alignment_folder
from fdml.federation.key_files import own_credentials
from fdml.federation.party_files import PartyFiles
from fdml.federation.run_folder import RunFolder
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.party.alignment import SharedRows
from fdml.party.consent import Ask, ConsentDecision
from fdml.party.disk_store import DiskStore
from fdml.party.effects import WriteBundle
from fdml.party.kept_store import KeptStore
from fdml.party.label_flips import LabelFlips
from fdml.party.ledger import PartyLedger
from fdml.party.member import AlignmentKeys, Member
from fdml.party.record_level import check_record_level
from fdml.party.settings import PartySettings, read_party
from fdml.privacy.accounts import AccountFile
from fdml.privacy.build_guard import stored_key
from fdml.privacy.statement import Statement
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials, Identity
from fdml.settings import RunSettings, run_hash
from fdml.settings_federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import exclusive_lock, shared_turns
from fdml.transport.grpc_endpoint import Endpoint, check_loopback

MODEL = "model"
HISTORY = "history.json"
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
        self.path = party_toml.parent
        self.settings: PartySettings = read_party(party_toml) if settings is None else settings
        self.run: RunSettings = run if isinstance(run, RunSettings) else read_run(run, self.settings.federation)
        if self.settings.party not in self.run.parties:
            raise SettingsError(
                f"{party_toml}: party {self.settings.party!r} is not among the federation's parties "
                f"{', '.join(self.run.parties)}"
            )
        self.run_folder = RunFolder(self.path, self.run)
        self.files = PartyFiles(self.settings, self.run, self.run_folder.state, origins=origins)
        disk = FolderDisk(self.run_folder.state)
        self._alignment_folder = alignment_folder(self.path, self.run)
        self._alignment_disk = FolderDisk(self._alignment_folder)
        kept = KeptStore(self._alignment_disk, self._turns)
        super().__init__(disk, run_hash=run_hash(self.run), data=self.files.fingerprint, kept=kept)

    def endpoint(self, *, plain: bool, server: str | None = None, on_event: Listener = lambda _: None) -> Endpoint:
        """Where this party reaches the server, and with which keys; `on_event` hears of troubles with them."""
        target = server_address(self.run.server, self.settings.server, server)
        if plain:
            check_loopback(target)
        identity = Identity(self.run.federation, "party", self.settings.party)
        credentials = None if plain else own_credentials(self.path / "keys", identity, self.run, on_event)
        server_key = self.run.members.get(SERVER, "")
        return Endpoint(target, self.run.federation, self.settings.party, credentials, server_key, self.run.name)

    def shared_rows(self) -> SharedRows | None:
        """The alignment of an earlier start, if the group_key file is still the one it was made with."""
        shared, path = super().shared_rows(), self.settings.group_key
        if shared is not None and path is not None and self._bound(path, shared.digest) != shared.key:
            raise AlignmentError(
                f"the group_key file {str(path)!r} holds another key than the one that the rows of party "
                f"{self.settings.party!r} were aligned with; put that back, or give the run a new name at every side"
            )
        return shared

    def _bound(self, key_file: Path, digest: bytes) -> GroupKey:
        """The key of a file as an alignment uses it."""
        return read_key_file(key_file).bound_to(run_hash(self.run), digest)

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
            shared=shared,
            alignment=lambda: self._alignment_keys(consent, endpoint.credentials),
            disk=self.disk,
            plain=endpoint.credentials is None,
        )

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
        data = self.settings.data
        return PartyLedger(accounts, self.files.fingerprint, self.files.name, data.label or "")

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
        )
        folder = self.run_folder.path / MODEL
        Bundle(card=card, parameters=bundle.parameters, encoder=self.files.encoder, labels=bundle.labels).save(folder)
        return folder
