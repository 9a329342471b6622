"""Publishing at a party: its column of predictions is computed when its run ends, and again when its rows change."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from fdml.cluster.hashing import hashing
from fdml.cluster.reading import PartReader
from fdml.data.origins import Origin, origins_of
from fdml.data.sources import open_encoded
from fdml.federation.leading_keys import data_settings
from fdml.federation.party_files import data_fingerprint, parts_folder
from fdml.federation.party_folder import PartyFolder
from fdml.federation.run_folder import MODEL, RUNS
from fdml.models.bundle import Bundle
from fdml.models.calibration import Calibration
from fdml.models.joint_model import joint_state
from fdml.models.registry import encoding_of
from fdml.party.settings import PartySettings
from fdml.privacy.build_guard import gradients_of, mechanism_of
from fdml.privacy.noise import NoiseKey
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.schedule import schedule_of
from fdml.serving.keys import ServingKeys
from fdml.serving.publication import FOLDER, Publication, Published, is_published, read_facts
from fdml.serving.publishing import column_of
from fdml.serving.reading import ScoreReading
from fdml.storage.lock import shared_turns

COLUMN_PARTS = f".{FOLDER}.parts"
"""In the folder of a run: predictions as workers have made them, until the column is on disk."""


def publish(folder: PartyFolder) -> Publication | None:
    """Publish the model of a finished run, unless that was done; None where rows have no ids to ask by."""
    place = folder.run_folder.path / FOLDER
    with publishing_turn(place):  # the run's own process and the standing one may both see that it is to be done
        return Publication.load(place) if is_published(place) else _published(folder, place)


def _published(folder: PartyFolder, place: Path) -> Publication | None:
    settings, run = folder.settings, folder.run
    shared = folder.shared_rows() if settings.data.id else None
    if shared is None:
        return None
    bundle = Bundle.load(folder.run_folder.path / MODEL)
    agreed = agreed_training(run.training, len(shared.train), len(run.parties), shared.line)
    guard = settings.guard
    facts = Published(
        run=run,
        party=settings.party,
        version=bundle.card.version,
        bits=grid_of(agreed.value_bits).bits,
        keys=ServingKeys.of(settings.party, bundle.card.version, shared.key, shared.pair_keys),
        mechanism=mechanism_of(guard, schedule_of(len(shared.train), agreed)),
        gradients=None if guard.training is None else gradients_of(guard),
        noise=NoiseKey(secrets.token_bytes(32)),
        data=folder.files.fingerprint,
        file=folder.files.name,
        reading=_score_reading(bundle),
    )
    files = folder.files
    with _computed(facts, bundle, settings, files.origins, place, number=facts.computed, remark=files.remark) as made:
        made.save(place)
    return made


def refreshed(party: PartySettings, home: Path, run: str) -> Publication:
    """The published model of a run, computed again if the party's files are not what they were."""
    place = home / RUNS / run / FOLDER
    facts = read_facts(place)
    if party.data.path is None and party.data.query is None:
        return Publication.load(place)  # rows that were handed over in Python
    origins = origins_of(party.data)
    data = data_fingerprint(origins, data_settings(party, facts.run), encoding_of(party.model))
    if data == facts.data:
        return Publication.load(place)
    with publishing_turn(place):  # else two processes would draw the same noise for different values
        before = Publication.load(place)
        if data == before.facts.data:
            return before
        bundle = Bundle.load(home / RUNS / run / MODEL)
        number = before.facts.computed + 1
        with _computed(before.facts, bundle, party, origins, place, number=number) as now:
            found = before.updated(now.column, data)
            found.save(place)
    return found


def publishing_turn(place: Path) -> AbstractContextManager[None]:
    """One process at a time makes the published model in a folder."""
    return shared_turns(place.with_name(f".{place.name}.turn"))


@contextmanager
def _computed(
    facts: Published,
    bundle: Bundle,
    party: PartySettings,
    origins: Sequence[Origin],
    place: Path,
    *,
    number: int,
    remark: Callable[[str], None] = lambda _: None,
) -> Iterator[Publication]:
    """A model with its column, to be saved within the block.

    Parts that workers have made of it stay until the block has ended well: after a crash they are used again.
    """
    reader = PartReader(party.workers, parts_folder(party, place.with_name(COLUMN_PARTS)), remark=remark, bundle=bundle)
    data = data_settings(party, facts.run)
    sources = [open_encoded(data, bundle.encoder, origin, reader) for origin in origins]
    with hashing(party.workers) as hashed:
        column = column_of(
            bundle,
            facts.run,
            sources,
            facts.keys,
            bits=facts.bits,
            mechanism=facts.mechanism,
            noise=facts.noise,
            number=number,
            hashed=hashed,
        )
    yield Publication(facts, column)
    reader.clear()


def _score_reading(bundle: Bundle) -> str:
    if bundle.labels is None:
        return ""
    calibration = Calibration(bundle.card.scale, np.asarray(bundle.card.offset, np.float64))
    head = joint_state(bundle.parameters).get("theta")
    return ScoreReading(calibration, bundle.labels, head).to_json().decode()
