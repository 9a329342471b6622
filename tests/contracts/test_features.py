"""What every feature and every fit of a column must pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fdml.data.column_features import Hashed, Number, NumberInRange, OneHot
from fdml.data.column_types import missing, plain
from fdml.data.date_features import DateInRange, DateNumber, DatePart
from fdml.data.encoding import Encoder, fit
from fdml.data.feature_kinds import FEATURES, MissingIndicator
from fdml.data.fitting import DateFit, KnownFit, NumberFit, OneHotFit, fit_for
from fdml.data.native_features import NATIVE
from tests.data.frames import COLUMNS, data_settings, tables

FITS = {
    "number": NumberFit,
    "small": NumberFit,
    "count": NumberFit,
    "word": OneHotFit,
    "paid": OneHotFit,
    "code": OneHotFit,
    "share code": OneHotFit,
    "city": OneHotFit,
    "bucket": KnownFit,
    "age": NumberFit,
    "day": DateFit,
    "moment": DateFit,
    "clock": DateFit,
    "span": DateFit,
    "birthday": DateFit,
    "colour": KnownFit,
}
DATE = (DateNumber, DatePart, DatePart)
KINDS = {
    **dict.fromkeys(FITS, (OneHot,)),
    **dict.fromkeys(("number", "small", "count"), (Number,)),
    "bucket": (Hashed,),
    "age": (NumberInRange,),
    "day": DATE,
    "moment": (*DATE, DatePart),
    "clock": DATE[:2],
    "span": DATE[:1],
    "birthday": (DateInRange, *DATE[1:]),
}
NUMBERS = Number | NumberInRange | DateNumber | DateInRange
NAMES = pytest.mark.parametrize("name", FITS)


def column_of(name):
    return tables((name,), min_size=2).map(lambda table: table.column(name))


def fitted(name, *batches, **settings):
    chosen = data_settings(**settings)
    found = fit_for(name, batches[0].type, chosen)
    first = 0
    for batch in batches:
        found.add(batch, first)
        first += len(batch)
    return found.features()


def drawn(data, name):
    """A feature, and a column of other rows that it can encode."""
    rule = data.draw(st.sampled_from(["mean", "indicator"]))
    features = fitted(name, data.draw(column_of(name)), scale="none", missing=rule)
    return data.draw(st.sampled_from(features)), data.draw(column_of(name))


def test_every_kind_is_held_to_this_contract():
    assert set(FITS) == set(COLUMNS)
    found = {kind for kinds in KINDS.values() for kind in kinds}
    assert found | {MissingIndicator, *NATIVE} == set(FEATURES.values())
    assert {kind: each.kind for kind, each in FEATURES.items()} == {kind: kind for kind in FEATURES}


@NAMES
@given(data=st.data())
def test_a_column_gets_the_fit_and_the_feature_of_its_kind(name, data):
    column = data.draw(column_of(name))
    assert type(fit_for(name, column.type, data_settings())) is FITS[name]
    features = fitted(name, column)
    assert tuple(map(type, features)) == KINDS[name]
    assert {feature.column for feature in features} == {name}


@NAMES
@given(data=st.data())
def test_numbers_that_are_missing_are_indicated_last_and_others_are_not(name, data):
    column = data.draw(column_of(name))
    last = fitted(name, column, missing="indicator")[-1]
    gone = missing(plain(column))
    numeric = issubclass(KINDS[name][0], NUMBERS)
    assert isinstance(last, MissingIndicator) is bool(numeric and gone.any() and not gone.all())
    if isinstance(last, MissingIndicator):
        assert last.entries(column)[1].tolist() == gone.tolist()


@NAMES
@given(data=st.data())
def test_entries_are_one_per_row_and_within_the_features_names(name, data):
    feature, column = drawn(data, name)
    index, values = feature.entries(column)
    assert (index.dtype, values.dtype) == (np.int32, np.float32)
    assert index.shape == values.shape == (len(column),)
    assert ((index >= -1) & (index < len(feature.names))).all()
    assert np.isfinite(values).all()


@NAMES
@given(data=st.data())
def test_names_are_distinct_and_begin_with_the_column(name, data):
    feature, _ = drawn(data, name)
    assert len(set(feature.names)) == len(feature.names)
    assert all(each.startswith(name) for each in feature.names)


@NAMES
@given(data=st.data())
def test_rows_are_encoded_the_same_together_and_apart(name, data):
    feature, column = drawn(data, name)
    cut = data.draw(st.integers(0, len(column)))
    whole = feature.entries(column)
    parts = [feature.entries(column.slice(0, cut)), feature.entries(column.slice(cut), cut)]
    for number in (0, 1):
        assert np.concatenate([part[number] for part in parts]).tobytes() == whole[number].tobytes()


@NAMES
@given(data=st.data())
def test_no_rows_have_no_entries(name, data):
    feature, column = drawn(data, name)
    index, values = feature.entries(column.slice(0, 0))
    assert (len(index), len(values)) == (0, 0)


@NAMES
@given(data=st.data())
def test_a_feature_comes_back_from_its_json_text(name, data):
    feature, _ = drawn(data, name)
    assert Encoder.from_json(Encoder((feature,)).to_json()).features == (feature,)


@NAMES
@given(data=st.data())
def test_batches_teach_what_all_rows_at_once_do(name, data):
    column = data.draw(column_of(name))
    cut = data.draw(st.integers(0, len(column)))
    (whole, *more), (parts, *others) = fitted(name, column), fitted(name, column.slice(0, cut), column.slice(cut))
    assert more == others
    if isinstance(whole, Number | DateNumber):
        assume((whole.deviation == 1.0) == (parts.deviation == 1.0))  # a variance near the smallest float may become 0
        scale = max(abs(whole.mean), abs(parts.mean), whole.deviation)
        assert parts.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9 * scale)
        assert parts.deviation == pytest.approx(whole.deviation, rel=1e-6, abs=1e-6 * scale)
    elif isinstance(whole, NumberInRange | DateInRange):
        assert (parts.low, parts.high) == (whole.low, whole.high)
        assert parts.fill == pytest.approx(whole.fill)
    else:
        assert parts == whole


@NAMES
@given(data=st.data())
def test_a_fit_needs_no_rows_for_a_feature(name, data):
    column = data.draw(column_of(name)).slice(0, 0)
    for feature in fitted(name, column):
        assert feature.column == name
        assert len(feature.entries(column)[0]) == 0


@NAMES
@given(data=st.data())
def test_missing_values_give_no_category_and_the_fill_of_a_number(name, data):
    feature, _ = drawn(data, name)
    index, values = feature.entries(pa.chunked_array([pa.nulls(3, COLUMNS[name][1])]))
    if isinstance(feature, MissingIndicator):
        assert values.tolist() == [1, 1, 1]
    elif isinstance(feature, Number | DateNumber):
        assert values.tolist() == [np.float32(feature.fill)] * 3
    elif isinstance(feature, NumberInRange | DateInRange):
        same = NumberInRange(name, None, feature.low, feature.high)
        assert values.tolist() == same.entries(pa.chunked_array([[feature.fill] * 3]))[1].tolist()
    assert index.tolist() == ([0, 0, 0] if isinstance(feature, NUMBERS | MissingIndicator) else [-1, -1, -1])


@given(tables(min_size=2))
def test_all_kinds_together_make_rows_as_wide_as_their_names(table):
    encoder = fit([table], tuple(table.column_names), data_settings(scale="none"))
    assert len(encoder.names) == sum(len(feature.names) for feature in encoder.features)
    rows = encoder.encode(table)
    assert (rows.values.shape[1] if len(rows) == 1 else rows.width) == len(encoder.names)
