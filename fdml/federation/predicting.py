"""How a party asks for predictions: over the standing server, or of parties whose folders are all on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fdml.data.origins import origins_of
from fdml.data.row_set import RowSet, mean_one
from fdml.errors import DataError, LabelError, SettingsError
from fdml.events import Listener
from fdml.federation.asked_files import AskedFile, WholeFile, asked_file, own_rows
from fdml.federation.party_folder import PartyFolder
from fdml.federation.party_home import PartyHome
from fdml.federation.publish import refreshed
from fdml.federation.run_folder import RUNS, run_names
from fdml.federation.versions import Promotions
from fdml.party.policy import PolicySettings
from fdml.party.settings import PartySettings, read_party
from fdml.privacy.accounts import AccountFile
from fdml.serving.absence import AbsenceCalibrations, LabelledRows
from fdml.serving.answer_rules import AnswerRules
from fdml.serving.answering import Answerer
from fdml.serving.asking import AskedRows, Asker, QuestionLine
from fdml.serving.local_line import LocalLine
from fdml.serving.publication import FOLDER, Publication, Published, is_published, read_facts
from fdml.serving.releases import LedgerReleases
from fdml.settings.federation import read_federation
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import shared_turns
from fdml.transport.grpc_relay import GrpcQuestions

ABSENCE = "absence.json"
"""The label party's calibrations of scores without some parties, in the folder of the run."""


def published_runs(home: Path) -> dict[str, Published]:
    """The published models in a party's folder, by the name of their run."""
    names = [name for name in run_names(home) if is_published(home / RUNS / name / FOLDER)]
    return {name: read_facts(home / RUNS / name / FOLDER) for name in names}


def chosen_run(home: Path, run: str | None, version: str | None) -> str:
    """The run whose model is meant: by name, by the beginning of its version; else the promoted one, or the newest."""
    known, promoted = published_runs(home), Promotions(home).current
    if run is None and version is None and promoted is not None:
        version = promoted.version
    fitting = {
        name: each for name, each in known.items() if run in (None, name) and each.version.startswith(version or "")
    }
    if not fitting:
        wanted = " of ".join([*([f"version {version!r}"] if version else []), *([f"run {run!r}"] if run else [])])
        listed = ", ".join(f"{name} ({each.version[:12]})" for name, each in known.items()) or "none"
        raise DataError(
            f"there is no published model{' ' + wanted if wanted else ''} in {str(home)!r}; there are: {listed}. "
            f"`fdml join` and `fdml up` publish one when a run ends"
        )
    if version and len(fitting) > 1:
        raise DataError(f"version {version!r} is that of {', '.join(fitting)}; give more of its characters, or --run")
    return max(fitting, key=lambda name: (home / RUNS / name / FOLDER).stat().st_mtime_ns)


@contextmanager
def asking(
    path: Path,
    *,
    run: str | None = None,
    version: str | None = None,
    plain: bool = False,
    server: str | None = None,
    seconds: float | None = None,
    on_event: Listener = lambda _: None,
) -> Iterator[Asker]:
    """An asker for the party of this party.toml, whose questions go over the standing server."""
    home = PartyHome.read(path, plain=plain, server=server, on_event=on_event)
    name = chosen_run(home.folder, run, version)
    with home.client(on_event=on_event) as client:
        facts = client.run(name)
    if facts is not None and facts.state != "finished":
        raise DataError(
            f"run {name!r} is {facts.state}: a version counts once all parties have finished; see "
            f"`fdml runs show {name}`"
        )
    with GrpcQuestions(home.endpoint, on_event) as line:
        yield published_asker(home, name, line, seconds)


def published_asker(home: PartyHome, run: str, line: QuestionLine, seconds: float | None = None) -> Asker:
    """An asker for a published model, brought up to date with the party's files."""
    return _asker(refreshed(home.settings, home.folder, run), line, home.settings, home.folder, seconds)


@contextmanager
def asking_locally(
    federation: Path, *, run: str | None = None, version: str | None = None, party: str | None = None
) -> Iterator[Asker]:
    """An asker whose federation has the folders of all parties beside it, as `fdml simulate` leaves them."""
    first = federation.parent / (party or read_federation(federation).parties[0])
    name = chosen_run(first, run, version)
    trained = read_facts(first / RUNS / name / FOLDER).run
    parties = trained.parties  # later ones may have more
    files = {each: federation.parent / each / "party.toml" for each in parties}
    settings = {each: read_party(file) for each, file in files.items()}
    asker = party or trained.label_party
    found = {each: refreshed(settings[each], files[each].parent, name) for each in parties}
    answerers = {each: answerer_of(settings[each], found[each]) for each in parties if each != asker}
    line = LocalLine(asker, answerers, parties)
    yield _asker(found[asker], line, settings[asker], files[asker].parent, None)


def answerer_of(party: PartySettings, publication: Publication) -> Answerer:
    """Answers from one published model."""
    run = publication.run.name
    return Answerer(
        lambda name: publication if name == run else None, releases_of(party), lambda: answer_rules(party.policy)
    )


def answer_rules(policy: PolicySettings) -> AnswerRules:
    """What a party's policy says of questions."""
    return AnswerRules(policy.askers, policy.answer_until, policy.answers_per_hour)


def releases_of(party: PartySettings) -> LedgerReleases:
    """The ledger of a party, for its answers."""
    accounts = AccountFile(FolderDisk(party.ledger), lambda: shared_turns(party.ledger))
    return LedgerReleases(
        accounts,
        total_epsilon=party.guard.total_epsilon,
        delta=party.guard.delta,
        total_releases=party.policy.total_releases,
    )


def _asker(own: Publication, line: QuestionLine, party: PartySettings, home: Path, seconds: float | None) -> Asker:
    asker = Asker(own, line, seconds=seconds)
    calibrated = own.run.serving.absent == "calibrated"
    if own.party == own.run.label_party and (calibrated or own.run.serving.ask == "unsure"):
        calibrations = AbsenceCalibrations(asker, _sampler(party, asker), home / RUNS / own.run.name / ABSENCE)
        asker.calibration_without = calibrations
        if calibrated:  # while all are there; those that cannot be fitted now are when they are needed
            calibrations.fit_single()
    return asker


def _sampler(party: PartySettings, asker: Asker) -> Callable[[int], LabelledRows]:
    """Labelled rows of the label party's own files, drawn by the run's seed."""

    def sample(most: int) -> LabelledRows:
        return labelled(own_rows(party, asker.own.run), asker, most)

    return sample


def labelled(file: WholeFile, asker: Asker, most: int | None = None) -> LabelledRows:
    """Rows with their labels, encoded as in training; at most so many, drawn by the run's seed."""
    run, reading = asker.own.run, asker.reading
    if file.labels is None or reading is None:
        raise LabelError("the rows have no labels; data.label names the column they should be in")
    count = len(file.labels)
    chosen = np.arange(count)
    if most is not None and most < count:
        chosen = np.sort(np.random.default_rng(run.training.seed).choice(count, most, replace=False))
    weights = None if file.weights is None else file.weights[chosen]
    groups = None if file.groups is None else file.groups[chosen]
    rows = AskedRows(file.rows.ids.take(chosen), {other: keys.take(chosen) for other, keys in file.rows.leads.items()})
    encoded = reading.labels.transform(file.labels[chosen])
    return LabelledRows(rows, RowSet({}, encoded, mean_one(weights, len(chosen)), groups))


def rows_to_evaluate(path: Path, asker: Asker, file: Path | None) -> LabelledRows:
    """The labelled rows of a file, or those that the run has held out."""
    party, run = read_party(path), asker.own.run
    if party.party != run.label_party:
        raise SettingsError(f"the labels are those of {run.label_party!r}; evaluate there, not at {party.party!r}")
    if file is not None:
        return labelled(asked_file(file, party, run).whole(), asker)
    shared = PartyFolder(path, run).shared_rows()
    if shared is None:
        raise DataError(
            f"the state of run {run.name!r} is gone, and with it which rows were held out; give --rows FILE"
        )
    last = AskedFile(origins_of(party.data)[-1], party, run).whole()
    found = labelled(last, asker)
    held_out = shared.held_out
    leads = {other: keys.take(held_out) for other, keys in found.rows.leads.items()}
    return LabelledRows(AskedRows(found.rows.ids.take(held_out), leads), found.labels.take(held_out))
