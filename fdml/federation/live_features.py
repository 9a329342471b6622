"""The asker's own features that come with a question: encoded as in training, they take the place of stored rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fdml.data.origins import FilesOrigin, Origin
from fdml.data.sources import open_encoded
from fdml.errors import DataError
from fdml.federation.leading_keys import data_settings
from fdml.federation.run_folder import MODEL, RUNS
from fdml.models.bundle import Bundle
from fdml.party.settings import PartySettings
from fdml.serving.column import Column
from fdml.serving.publication import Published
from fdml.serving.publishing import column_of


class LiveFeatures:
    """Makes the asker's part of rows that are handed in: a column without noise, as it never leaves."""

    def __init__(self, party: PartySettings, home: Path, facts: Published) -> None:
        self._facts = facts
        self._bundle = Bundle.load(home / RUNS / facts.run.name / MODEL)
        self._data = data_settings(party, facts.run)

    def column(self, origin: Origin) -> Column:
        """The part of each row of a table with the id and all feature columns of the asker's own files."""
        facts = self._facts
        source = open_encoded(self._data, self._bundle.encoder, origin)
        return column_of(
            self._bundle,
            facts.run,
            [source],
            facts.keys,
            bits=facts.bits,
            mechanism=replace(facts.mechanism, noise="none", sigma=0.0),
            noise=facts.noise,
            number=facts.computed,
        )


def live_file(path: Path, party: PartySettings, home: Path, facts: Published) -> tuple[Column, bytes]:
    """The asker's part of the rows of a CSV or Parquet file, and a hash of the file."""
    settings = data_settings(party, facts.run).model_copy(update={"path": path, "test_path": None, "format": None})
    origin = FilesOrigin(path, settings)
    found = LiveFeatures(party, home, facts).column(origin)
    if not len(found):
        raise DataError(f"{str(path)!r} has no rows with an id; leave --features out to ask with what is stored")
    return found, origin.digest()
