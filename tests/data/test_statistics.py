"""Statistics of pieces, merged in order: the encoder of all rows at once, to the bit, wherever they are cut."""

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.encoding import Statistics, fit
from fdml.errors import DataError
from fdml.settings.data import DataSettings

TYPES = {
    "number": pa.float64(),
    "whole": pa.int64(),
    "text": pa.string(),
    "coded": pa.dictionary(pa.int32(), pa.string()),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "code": pa.int64(),
    "hashed": pa.string(),
    "in range": pa.float64(),
}
COLUMNS = tuple(TYPES)
VALUES = {
    "number": st.floats(-1e30, 1e30, allow_subnormal=True),
    "whole": st.integers(-(2**53), 2**53),
    "text": st.sampled_from(["", "a", "b", "Ä", "1,5", "2,5", "3 %", " "]),
    "coded": st.sampled_from(["x", "y", "z"]),
    "flag": st.booleans(),
    "day": st.dates(),
    "code": st.integers(0, 6),
    "hashed": st.text(st.characters(codec="utf-8"), max_size=3),
    "in range": st.floats(-5, 5),
}
ROW = st.tuples(*(st.none() | VALUES[name] for name in COLUMNS))


def settings_of(**more):
    return DataSettings(categorical=["code"], hashed=["hashed"], ranges={"in range": (-1.0, 1.0)}, **more)


def batch_of(rows):
    columns = zip(*rows, strict=True) if rows else [[]] * len(COLUMNS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def merged(pieces, settings, encoding):
    """The encoder of pieces that others have learned from, as what they learned travels."""
    whole, first = Statistics(COLUMNS, settings), 0
    for piece in pieces:
        one = Statistics(COLUMNS, settings)
        one.learn([batch_of(piece)], first)
        whole.merge(json.loads(json.dumps(one.state())), TYPES)
        first += len(piece)
    return whole.encoder(encoding)


def outcome(make):
    """What comes of it: the encoder's text and remarks, or the error's."""
    try:
        encoder = make()
    except DataError as error:
        return str(error)
    return encoder.to_json(), encoder.remarks


@given(
    st.lists(ROW, min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from(["indicator", "error", "mean", "zero"]),
    st.sampled_from([2, 4, 10_000]),
    st.sampled_from(["numeric", "native", "both"]),
    st.sampled_from(["standard", "none"]),
)
def test_pieces_are_merged_to_the_encoder_of_all_rows(rows, cuts, missing, most, encoding, scale):
    settings = settings_of(missing=missing, max_categories=most, scale=scale)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [rows[start:stop] for start, stop in pairwise(bounds)]
    alone = outcome(lambda: fit([batch_of(rows)], COLUMNS, settings, encoding))
    assert outcome(lambda: merged(pieces, settings, encoding)) == alone


def test_a_column_of_numbers_as_text_is_refused_wherever_the_many_categories_end():
    """Which categories are kept of a column with many depends on the cut; what all of them look like does not."""
    commas = [f"{number},5" for number in range(10)]
    column, settings = ("x",), DataSettings(max_categories=3)

    def learned(texts):
        statistics = Statistics(column, settings)
        statistics.learn([pa.record_batch({"x": texts})])
        return statistics

    with pytest.raises(DataError, match="decimal comma"):
        learned(commas).encoder()
    assert learned([*commas, "word"]).encoder().names[0] == "x#0"
    both = learned(commas)
    both.merge(learned(["word"]).state(), {"x": pa.string()})
    assert both.encoder() == learned([*commas, "word"]).encoder()
    both = learned(["word"])
    both.merge(learned(commas).state(), {"x": pa.string()})
    assert both.encoder() == learned([*commas, "word"]).encoder()
