"""Adult's columns as three apps would know them. The data comes with fdml."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fdml.data.samples.adult import LABEL, adult
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset

NAME = "adult"
PERSON = "person"
KNOWN_TO = {
    "store": ("age", "workclass", "education", "education-num"),
    "browser": ("marital-status", "occupation", "relationship"),
    "guard": ("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
}
"""All columns but `fnlwgt`, which says how many people a row stands for."""


def adult_parties() -> SampleDataset:
    """32,561 people to train on and 16,281 in the test file that comes with the data."""
    raw = adult()
    train, test = _with_ids(raw.train, "a"), _with_ids(raw.test, "b")
    parties = {}
    for party, columns in KNOWN_TO.items():
        label = {"label": LABEL} if party == "store" else {}
        chosen = [PERSON, *columns, *label.values()]
        parties[party] = PartyTables(train.select(chosen), test.select(chosen), {"id": PERSON, **label})
    return SampleDataset(NAME, "UCI Adult (comes with fdml, CC BY 4.0)", parties)


def _with_ids(frame: Any, letter: str) -> Any:
    return frame.append_column(PERSON, pa.array([f"{letter}{row:05d}" for row in range(len(frame))]))
