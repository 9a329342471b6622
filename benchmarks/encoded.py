"""A data set whose rows are encoded for networks and for trees: every kind of model gets the features it wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.trees import NativeProblem
from fdml.align.split import split_rows
from fdml.data.row_set import RowSet
from fdml.data.rows import NO_NATIVE, NativeFeatures, RowEncoding, split_features
from fdml.data.samples.sample_dataset import SampleDataset
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.models.registry import kind_named, model_settings, with_native
from fdml.settings import ModelSettings

_HOLDOUT = 0.2
SPLIT = 17
"""By which test rows are drawn where a sample has none of its own. Settings are chosen on the other rows alone."""


@dataclass(frozen=True)
class EncodedProblem:
    """Rows of all parties; where columns were encoded both ways, `native` says where the features for trees begin."""

    whole: JointDataset
    native: Mapping[str, NativeFeatures] = field(default_factory=dict)

    @classmethod
    def of(cls, sample: SampleDataset, seed: int) -> EncodedProblem:
        """Both encodings of a sample. The seed shuffles training rows; test rows are the same for all seeds."""
        data = sample.encoded("both")
        problem = build_dataset(data, sample.label_party, "binary", None, holdout=_HOLDOUT, seed=SPLIT)
        return cls(problem.shuffled(seed), {name: each.train.native for name, each in data.items()})

    def for_choosing(self, seed: int) -> EncodedProblem:
        """The training rows alone, a fifth of them in place of the test rows: settings are chosen here."""
        keep, out = split_rows(len(self.whole.train), _HOLDOUT, seed)
        train = self.whole.train
        return replace(self, whole=replace(self.whole, train=train.take(keep), test=train.take(out)))

    def rows_for(self, kind: str) -> JointDataset:
        """The features that a kind of model wants."""
        encoding = kind_named(kind).encoding
        train, test = (self._part(rows, encoding) for rows in (self.whole.train, self.whole.test))
        return replace(self.whole, train=train, test=test)

    def model(self, kind: str, party: str, **values: Any) -> ModelSettings:
        """A party's model of a kind, which knows its features."""
        known, settings = self.native.get(party, NO_NATIVE), model_settings(kind, **values)
        return with_native(settings, known if settings.kind == "trees+mlp" else _by_itself(known))

    def for_trees(self) -> NativeProblem:
        """The features for trees alone."""
        known = {name: _by_itself(self.native.get(name, NO_NATIVE)) for name in self.whole.train.parts}
        return NativeProblem(self.rows_for("trees"), known)

    def _part(self, rows: RowSet, encoding: RowEncoding) -> RowSet:
        if encoding == "both":
            return rows
        wanted = 0 if encoding == "numeric" else 1
        parts = {
            name: split_features(part, self.native.get(name, NO_NATIVE).first)[wanted]
            for name, part in rows.parts.items()
        }
        return replace(rows, parts=parts)


def _by_itself(known: NativeFeatures) -> NativeFeatures:
    """The same where the features for trees are all there are."""
    return NativeFeatures(0, tuple(place - known.first for place in known.categories))
