"""Published models made by hand: no training, so that a test costs milliseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fdml.align.group_key import GroupKey
from fdml.data.label_encoding import LabelEncoding
from fdml.models.calibration import Calibration
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.serving.answer_rules import AnswerRules
from fdml.serving.answering import Answerer
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.column import Column
from fdml.serving.keys import ServingKeys
from fdml.serving.local_line import LocalLine
from fdml.serving.publication import Publication, Published
from fdml.serving.reading import ScoreReading
from fdml.settings import RunSettings

VERSION = "0123456789abcdef" * 2
PARTIES = ("ann", "bob", "cid")
NO_NOISE = Mechanism("none", np.inf, 0.0)
STEP = 2.0**-20
"""Of 32 bits."""
IDS = tuple(f"r{number}" for number in range(40))


def run_of(parties=PARTIES, **settings):
    return RunSettings(name="first", parties=parties, label_party=parties[0], **settings)


def pair_keys(parties, party):
    """The same at both parties of a pair."""
    return {other: "".join(sorted((party, other))).encode().ljust(32, b"-") for other in parties if other != party}


def keys_of(parties, party, version=VERSION):
    return ServingKeys.of(party, version, GroupKey(b"g" * 32), pair_keys(parties, party))


def texts(ids):
    return pa.array(ids, pa.large_string())


def reading_of(task="binary", scale=1.0, offset=(0.0,)):
    classes = {"binary": np.array(["no", "yes"]), "multiclass": np.array(["a", "b", "c"]), "regression": None}[task]
    return ScoreReading(Calibration(scale, np.array(offset)), LabelEncoding(task, classes))


def codes_of(values):
    """Fixed point of 32 bits, `(rows, width)`."""
    found = np.rint(np.asarray(values, float) / STEP).astype(np.int64)
    return found.reshape(len(found), -1)


def publication_of(party, ids, values, *, run=None, version=VERSION, reading=None, mechanism=NO_NOISE):
    run = run or run_of()
    if reading is None and party == run.label_party:
        reading = reading_of(run.task)
    keys, codes = keys_of(run.parties, party, version), codes_of(values)
    facts = Published(
        run=run,
        party=party,
        version=version,
        bits=32,
        keys=keys,
        mechanism=mechanism,
        noise=NoiseKey(party.encode().ljust(32, b"n")),
        reading="" if reading is None else reading.to_json().decode(),
    )
    return Publication(facts, Column.of(keys.tokens_of(texts(ids)), codes, codes))


class Counted:
    """A ledger that takes everything, and what it was told."""

    def __init__(self):
        self.seen = []

    def count(self, publication):
        self.seen.append((publication.party, publication.facts.generation))


def answerer_of(publication, releases=None, askers=None, **rules):
    name, own = publication.run.name, AnswerRules(askers, **rules)
    return Answerer(lambda run: publication if run == name else None, releases or Counted(), lambda: own)


def federation(values, *, run=None, ids=IDS, missing=(), width=1, **options):
    """By party, a publication whose values are given, and an asker with a line to all but the `missing` ones."""
    run = run or run_of()
    found = {name: publication_of(name, ids, values[name], run=run, **options) for name in run.parties}
    return found, asker_of(found, run.label_party, missing=missing)


def asker_of(found, party, *, missing=(), **options):
    line = LocalLine(
        party,
        {name: answerer_of(each) for name, each in found.items() if name != party and name not in missing},
        found[party].run.parties,
    )
    return Asker(found[party], line, **options)


def values_of(parties=PARTIES, rows=40, width=1, seed=0):
    """Numbers on the grid, so that sums are exact."""
    random = np.random.default_rng(seed)
    return {name: np.round(random.normal(size=(rows, width)) * 2**10) / 2**10 for name in parties}


def ask(asker, ids, **leads):
    return asker.ask(AskedRows(texts(ids), {name: texts(keys) for name, keys in leads.items()}))
