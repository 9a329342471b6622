import contextlib
import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.column_features import Hashed, Number, OneHot
from fdml.data.encoders import encoder_from_json
from fdml.data.encoding import Encoder, fit
from fdml.data.imputation import fit_imputation
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.rows import to_dense
from fdml.errors import DataError
from tests.data.frames import data_settings, tables

ENCODER = Encoder(
    (
        Number("age", 4.5, 0.1, 2.0),
        OneHot("city", ("", "Köln", "東京"), "text"),
        OneHot("code", ("12", "7"), "number"),
        Hashed("zip", 8),
    )
)


def outcome(encoder, rows):
    """The encoded rows, or the error's text where a number is too large to be scaled."""
    try:
        return encoder.encode(rows)
    except DataError as error:
        return str(error)


def same_bits(one, other):
    assert type(one) is type(other)
    for mine, theirs in zip(one, other, strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


@given(
    tables(min_size=2),
    tables(),
    st.sampled_from(["mean", "zero"]),
    st.sampled_from(["standard", "none"]),
    st.sampled_from([1, 4, 512]),
)
def test_a_loaded_encoder_makes_the_same_bits_of_rows_it_has_never_seen(train, unseen, missing, scale, hash_size):
    encoder = fit([train], tuple(train.column_names), data_settings(missing, scale, hash_size))
    loaded = encoder_from_json(encoder.to_json())
    assert loaded == encoder
    assert loaded.to_json() == encoder.to_json()
    for rows in (train, unseen):
        expected, found = outcome(encoder, rows), outcome(loaded, rows)
        assert type(found) is type(expected)
        if isinstance(expected, str):
            assert found == expected
        else:
            same_bits(found, expected)


def test_a_loaded_encoder_refuses_missing_numbers_where_the_fitted_one_does():
    encoder = fit([pa.table({"x": [1.0, 2.0]})], ("x",), data_settings("error"))
    loaded = encoder_from_json(encoder.to_json())
    assert loaded.features[0].fill is None
    with pytest.raises(DataError, match="column 'x' has no value in data row 3"):
        loaded.encode(pa.table({"x": [1.0, 2.0, None]}))


def test_the_text_says_what_an_encoder_knows_in_plain_words():
    assert json.loads(ENCODER.to_json()) == {
        "layout": 1,
        "encoder": "table",
        "features": [
            {"kind": "number", "column": "age", "fill": 4.5, "mean": 0.1, "deviation": 2.0},
            {"kind": "one_hot", "column": "city", "categories": ["", "Köln", "東京"], "type": "text"},
            {"kind": "one_hot", "column": "code", "categories": ["12", "7"], "type": "number"},
            {"kind": "hashed", "column": "zip", "size": 8, "type": "text"},
        ],
    }
    assert Encoder.from_json(ENCODER.to_json()) == ENCODER


def test_a_fitted_encoder_knows_the_type_of_each_column_of_categories():
    frame = pa.table(
        {
            "city": ["Paris"],
            "big": pa.array(["a"], pa.large_string()),
            "paid": [True],
            "code": [7],
            "coded": pa.array([7]).dictionary_encode(),
            "named": pa.array(["b"]).dictionary_encode(),
            "bucket": [7.5],
            "small": [3],
        }
    )
    encoder = fit([frame], tuple(frame.column_names), data_settings().model_copy(update={"categorical": ("code",)}))
    found = {each.column: each.type for each in encoder.features if not isinstance(each, Number)}
    assert found == {
        "city": "text",
        "big": "text",
        "paid": "bool",
        "code": "number",
        "coded": "number",
        "named": "text",
        "bucket": "number",
    }
    assert encoder.text_columns == ("city", "big", "named")
    assert encoder.columns == tuple(frame.column_names)


def test_an_encoder_of_no_columns_is_saved_and_loaded():
    loaded = encoder_from_json(Encoder(()).to_json())
    assert to_dense(loaded.encode(pa.table({"x": [1, 2]}))).shape == (2, 0)


matrices = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.just(3)),
    elements=st.floats(-(2.0**100), 2.0**100, width=32) | st.just(float("nan")),
)


@given(matrices, matrices, st.sampled_from(["error", "mean", "zero"]), st.sampled_from([np.asarray, sp.csr_array]))
def test_a_loaded_matrix_encoder_makes_the_same_bits(train, unseen, rule, kind):
    encoder = MatrixEncoder(3, fit_imputation([kind(train)], 3, rule), 0)
    loaded = encoder_from_json(encoder.to_json())
    assert loaded.to_json() == encoder.to_json()
    assert (loaded.width, loaded.first_number, loaded.names) == (3, 0, ("1", "2", "3"))
    if rule == "error" and np.isnan(unseen).any():
        with pytest.raises(DataError, match="is NaN"):
            loaded.encode(kind(unseen))
    else:
        same_bits(loaded.encode(kind(unseen)), encoder.encode(kind(unseen)))


def test_the_text_of_a_matrix_encoder():
    encoder = MatrixEncoder(2, np.array([0.5, -0.0], np.float32))
    expected = {"layout": 1, "encoder": "matrix", "width": 2, "fills": [0.5, -0.0], "first_number": 1}
    assert json.loads(encoder.to_json()) == expected
    assert np.signbit(encoder_from_json(encoder.to_json()).fills).tolist() == [False, True]


def changed(given, **values):
    return json.dumps({**json.loads(given.to_json()), **values})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the encoder is no JSON"),
        ("[]", "the encoder has no layout number"),
        (changed(ENCODER, layout=2), "the encoder has layout 2, this fdml reads layout 1"),
        (changed(ENCODER, encoder="tabel"), "there is no kind of encoder 'tabel'; did you mean 'table'"),
        (changed(ENCODER, encoder=None), "there is no kind of encoder 'None'"),
        (changed(ENCODER, features=7), "the encoder: features: "),
        (changed(ENCODER, features=[7]), "the encoder: features.0: "),
        (changed(ENCODER, features=[{}]), "there is no kind of feature 'None'"),
        (changed(ENCODER, features=[{"kind": "onehot", "column": "c"}]), "no kind of feature 'onehot'; did you mean"),
        (changed(ENCODER, features=[{"kind": "one_hot", "column": "c"}]), "column 'c': categories: "),
        (changed(ENCODER, features=[{"kind": "hashed", "column": "c", "size": 0}]), "column 'c': size: "),
        (changed(ENCODER, features=[{"kind": "hashed", "column": "c", "size": 1, "type": "date"}]), "type: "),
        (changed(ENCODER, features=[{"kind": "number", "column": "c", "fill": 0, "deviation": 0}]), "deviation: "),
        (changed(ENCODER, more=1), "the encoder: 'more' is not among encoder, features"),
        (changed(MatrixEncoder(2, None), width=-1), "the encoder: width: Input should be"),
        (changed(MatrixEncoder(2, None), fills=[1.0]), "the encoder has 1 fills for 2 features; it is damaged"),
        (changed(MatrixEncoder(2, None), fills=["a", "b"]), "the encoder: fills.0: "),
        (changed(MatrixEncoder(2, None), first_number=2), "the encoder: first_number: "),
    ],
)
def test_a_text_that_is_no_encoder_is_refused_with_what_is_wrong(text, message):
    with pytest.raises(DataError, match=message):
        encoder_from_json(text)


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_any_text_gives_an_encoder_or_a_data_error(text):
    with pytest.raises(DataError):
        encoder_from_json(text)


@given(st.data())
def test_any_change_of_a_saved_encoder_loads_or_is_a_data_error(data):
    text = ENCODER.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    broken = text[:at] + data.draw(st.sampled_from(["", "0", '"', "}", "x", "\\"])) + text[at + 1 :]
    with contextlib.suppress(DataError):
        assert isinstance(encoder_from_json(broken), Encoder)
