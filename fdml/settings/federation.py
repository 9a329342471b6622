"""Who works together and what they run: federation.toml, run.toml, and both together as the settings of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from fdml.errors import SettingsError
from fdml.settings.file import Settings, read_settings, read_table
from fdml.settings.names import Fingerprint, check_members, check_name, check_party_names
from fdml.settings.run import RunSettings
from fdml.settings.topology import NO_SERVER, check_addresses, check_host_name

FEDERATION_FILE = "federation.toml"
RUN_FILE = "run.toml"
_WHO = ("server", "host", "addresses", "parties", "members", "rights", "federation")
"""Settings that stand in federation.toml, not in run.toml."""
_NOT_A_FEDERATION = {
    "party": "this is a party.toml; give the federation.toml that it names",
    "label_party": "this is a run.toml; give the federation.toml beside it",
}


class RightsSettings(Settings):
    """Which parties may do what."""

    start: tuple[str, ...] | None = None
    """The parties that may start runs; None lets all of them."""


class FederationSettings(Settings):
    """Who works together: the same at every side, whatever they run."""

    name: str = "federation"
    """Every certificate carries it; to change it, make the keys anew."""
    server: str = "127.0.0.1:7443"
    """Where the server listens, and all parties reach it; "none" where every party sums for itself."""
    host: str | None = None
    """The party that runs the server inside its own process; None where the server is a process of its own."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """With server = "none": where each party listens, and all others reach it."""
    parties: Annotated[tuple[str, ...], Field(min_length=1)]
    """Their names, each once."""
    members: dict[str, Fingerprint] = Field(default_factory=dict)
    """The key of the server and of every party, so that all agree on who is who; only plain lines do without."""
    rights: RightsSettings = RightsSettings()

    @field_validator("members", "addresses")
    @classmethod
    def _sorted(cls, table: dict[str, str]) -> dict[str, str]:
        return dict(sorted(table.items()))

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_name("federation name", self.name)
        check_party_names(self.parties)
        check_members(self.members, self.parties, mesh=self.server == NO_SERVER)
        check_addresses(self.server, self.addresses, self.host, self.parties)
        check_host_name(self.host, self.parties)
        for party in self.rights.start or ():
            if party not in self.parties:
                raise SettingsError(
                    f"[rights] lets {party!r} start runs, which is not among the parties {', '.join(self.parties)}"
                )
        return self

    @classmethod
    def of_run(cls, run: RunSettings) -> Self:
        """Who takes part in a run; its rights are not among the settings of a run, so all may start runs."""
        return cls(
            name=run.federation,
            server=run.server,
            host=run.host,
            addresses=run.addresses,
            parties=run.parties,
            members=run.members,
        )

    @property
    def of_every_run(self) -> dict[str, Any]:
        """What the settings of every run say of the federation."""
        return {
            "federation": self.name,
            "server": self.server,
            "host": self.host,
            "addresses": self.addresses,
            "parties": self.parties,
            "members": self.members,
        }

    @property
    def starters(self) -> tuple[str, ...]:
        """The parties that may start runs."""
        return self.parties if self.rights.start is None else self.rights.start

    def run(self, /, **values: Any) -> RunSettings:
        """The settings of a run of this federation, from what its run.toml says."""
        _check_what(values)
        return RunSettings(**values, **self.of_every_run)


def read_federation(path: Path) -> FederationSettings:
    """Read and check a federation.toml."""
    values = read_table(path)
    for key, text in _NOT_A_FEDERATION.items():
        if key in values:
            raise SettingsError(f"{path}: {text}")
    return read_settings(path, FederationSettings)


def read_run(
    run: Path | None = None,
    federation: Path | None = None,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values,
) -> RunSettings:
    """Read and check a run.toml and its federation.toml; either stands beside the other where it is not named.

    `change` may replace what the run.toml says.
    """
    if run is None and federation is not None:
        read_federation(federation)  # the file that was named is the one whose fault is told first
    path = (federation or Path()).parent / RUN_FILE if run is None else run
    values = read_table(path)
    if "party" in values:
        raise SettingsError(f"{path}: this is a party.toml; give the run.toml of the run that it joins")
    _check_what(values, f"{path}: ")
    who = read_federation(federation or federation_of(path))
    try:
        return who.run(**change(values))
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _check_what(values: Mapping[str, Any], where: str = "") -> None:
    """Raise where run.toml says who works together; `where` begins the sentence."""
    for name in _WHO:
        if name in values:
            raise SettingsError(f"{where}{name!r} stands in {FEDERATION_FILE} now; move it there, out of {RUN_FILE}")


def federation_of(run: Path) -> Path:
    """The federation.toml beside a run.toml."""
    return run.parent / FEDERATION_FILE
