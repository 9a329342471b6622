"""party.toml: stays at home and says where the party's data is and which model it trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, PositiveInt, SerializeAsAny, field_validator

from fdml.cluster.settings import WorkersSettings
from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from fdml.party.policy import PolicySettings
from fdml.settings import GuardSettings, ModelSettings, RunSettings
from fdml.settings.data import DataSettings
from fdml.settings.file import Settings, read_settings, read_table


def _model(values: object) -> object:
    """The settings of the kind that a table names."""
    return model_settings(**values) if isinstance(values, Mapping) else values


class AlignSettings(Settings):
    """What this party consents to before anyone is told which rows are shared."""

    max_rows: PositiveInt | None = None
    """The most rows, or test rows, that another party may bring; with it set nobody is asked. None has no limit."""
    min_shared: PositiveInt | None = None
    """The fewest rows that must be shared; None is any number."""


class TrackSettings(Settings):
    """Where else this party's own figures go."""

    tensorboard: Path | None = None
    """A folder for TensorBoard's event files; every run has a folder of its name in it."""
    mlflow: str | None = None
    """A folder for MLflow's file store, or the address of a tracking server, "https://...". Name and password are not
    written here: MLflow takes them from its own environment variables."""
    experiment: str = "fdml"
    """The experiment of MLflow that runs belong to."""

    @field_validator("mlflow")
    @classmethod
    def _holds_no_password(cls, value: str | None) -> str | None:
        if value is not None and "@" in urlsplit(value).netloc:
            raise ValueError("holds a name or password; give them in MLFLOW_TRACKING_USERNAME and _PASSWORD")
        return value


_NOT_A_PARTY = {
    "parties": "this is a federation.toml; give the party.toml in the party's folder",
    "label_party": "this is a run.toml; give the party.toml in the party's folder",
}
"""Keys of other files."""


class PartySettings(Settings):
    """One party's own file."""

    party: str
    """This party's name, which is also that of its folder."""
    federation: Path
    """The federation.toml that all sides agree on; a run.toml stands beside it, unless `--run` names another."""
    server: str | None = None
    """Where this party reaches the server; None takes the federation's address."""
    listen: str | None = None
    """Where this party listens, if it hosts the server and not at the federation's address: "0.0.0.0:7443"."""
    group_key: Path | None = None
    """A file with the key that the parties share and the server never learns; None agrees on one over the line."""
    ledger: Path = Path("ledger")
    """The folder of what outlives runs: accounts of all releases, and the secret that labels are randomised with.
    Runs that use the same people's rows should share one."""
    threads: PositiveInt | Literal["auto"] = "auto"
    """That predict a block together; "auto" takes as many as the machine has cores."""
    workers: WorkersSettings = WorkersSettings()
    """Who reads this party's Parquet files, and who trains its shards or column groups."""
    align: AlignSettings = AlignSettings()
    data: DataSettings = DataSettings()
    model: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_model)] = model_settings()
    guard: GuardSettings = GuardSettings()
    policy: PolicySettings = PolicySettings()
    """Which runs of others this party takes part in without a person, where it stands by with `fdml up`."""
    track: TrackSettings = TrackSettings()


def read_party(path: Path) -> PartySettings:
    """Read and check a party.toml; its paths are taken from the folder it is in."""
    values = read_table(path)
    for key, text in _NOT_A_PARTY.items():
        if key in values and "party" not in values:
            raise SettingsError(f"{path}: {text}")
    if "run" in values and "federation" not in values:
        raise SettingsError(
            f'{path}: `run` gives way to `federation`; write federation = "../federation.toml" in its place'
        )
    return in_folder(read_settings(path, PartySettings), path.parent)


def in_folder(settings: PartySettings, home: Path) -> PartySettings:
    """The settings with their paths taken from a folder."""
    data = settings.data.model_copy(
        update={
            "path": _at(home, settings.data.path),
            "test_path": _at(home, settings.data.test_path),
            "attach": _at(home, settings.data.attach),
            "folder": home / settings.data.folder,
        }
    )
    key = None if settings.group_key is None else home / settings.group_key
    return settings.model_copy(
        update={
            "federation": home / settings.federation,
            "data": data,
            "group_key": key,
            "ledger": home / settings.ledger,
            "workers": settings.workers.model_copy(update={"folder": _at(home, settings.workers.folder)}),
            "track": settings.track.model_copy(
                update={"tensorboard": _at(home, settings.track.tensorboard), "mlflow": _store(home, settings.track)}
            ),
        }
    )


def with_model(settings: PartySettings, changes: Mapping[str, Any]) -> PartySettings:
    """The settings with some of `[model]` changed; another kind of model begins with its own defaults."""
    if not changes:
        return settings
    kept = settings.model.model_dump(exclude_unset=True) if changes.get("kind") in (None, settings.model.kind) else {}
    return settings.model_copy(update={"model": model_settings(**{"kind": settings.model.kind, **kept, **changes})})


def check_label_owner(party: PartySettings, run: RunSettings) -> None:
    """Raise where a party names a label that nobody will look at: the labels are the label party's."""
    if party.party != run.label_party and party.data.label is not None:
        raise SettingsError(
            f"data.label is set at party {party.party!r}, but the labels are those of {run.label_party!r}; leave it "
            f"out, or name the column in data.ignore if it is no feature"
        )


def _store(home: Path, track: TrackSettings) -> str | None:
    """The address of MLflow's store: that of a folder begins with file:."""
    if track.mlflow is None or "://" in track.mlflow:
        return track.mlflow
    return (home / track.mlflow).resolve().as_uri()


def _at(home: Path, location: Path | str | None) -> Path | str | None:
    """A path from the folder of party.toml; an address like s3://bucket/rows stays as it is."""
    return home / location if isinstance(location, Path) else location
