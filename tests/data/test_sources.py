import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from fdml.data import csv_files, table_source
from fdml.data.block_store import open_blocks, write_blocks
from fdml.data.encoders import encoder_from_json
from fdml.data.encoding import Encoder, fit
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.readers import load
from fdml.data.rows import DenseRows, SparseRows, row_count, to_dense, vstack
from fdml.data.sources import open_encoded, open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.examples import examples

RNG = np.random.default_rng(5)
COUNT = 97
FRAME = pa.table(
    {
        "user": [f"u{number}" for number in range(COUNT)],
        "age": RNG.integers(18, 90, COUNT),
        "height": RNG.normal(170, 10, COUNT),
        "city": RNG.choice(["Paris", "Lima", "Oslo"], COUNT),
        "zip": RNG.choice(["01", "02", "10"], COUNT),
        "paid": RNG.integers(0, 2, COUNT),
        "share": RNG.random(COUNT),
    }
)
COLUMNS = {"id": "user", "label": "paid", "weight": "share", "categorical": "zip"}
FEATURES = ("age", "height", "city", "zip")
MATRIX = (RNG.integers(-3, 4, (COUNT, 9)) * (RNG.random((COUNT, 9)) < 0.4)).astype(np.float32)
MATRIX[0] = 1


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BLOCK", 400)
    monkeypatch.setattr(table_source, "BATCH_ROWS", 10)


def write_frame(frame, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(frame, path, row_group_size=25)
        return path
    pa.csv.write_csv(frame, path)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(path.read_bytes()))
    return path


def write_matrix(path, kind):
    labels = np.arange(COUNT) % 2
    if kind == "npy":
        np.save(path, MATRIX)
    elif kind in ("npz", "packed"):
        (np.savez if kind == "npz" else np.savez_compressed)(path, X=MATRIX, y=labels, ids=np.arange(COUNT))
    elif kind in ("sparse", "packed sparse"):
        sp.save_npz(path, sp.csr_array(MATRIX), compressed=kind != "sparse")
    else:
        dump_svmlight_file(MATRIX, labels, str(path), zero_based=False)
    return path


MATRIX_KINDS = {
    "npy": "x.npy",
    "npz": "x.npz",
    "packed": "x.npz",
    "sparse": "x.npz",
    "packed sparse": "x.npz",
    "libsvm": "x.svm",
}


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz", "x.csv.bz2"])
@pytest.mark.parametrize("more", [{}, {"hashed": "city", "hash_size": 64}], ids=["dense", "sparse"])
def test_a_table_in_chunks_equals_the_whole_table_encoded_at_once(tmp_path, name, more):
    settings = DataSettings(path=write_frame(FRAME, tmp_path / name), **COLUMNS, **more)
    (source,) = open_sources(settings)
    encoder = fit([FRAME], FEATURES, settings)
    assert (source.count, source.names) == (COUNT, encoder.names)
    chunks = list(source.chunks(1000))
    assert len(chunks) > 3
    assert {type(chunk) for chunk in chunks} == {SparseRows if more else DenseRows}
    np.testing.assert_allclose(to_dense(vstack(chunks)), to_dense(encoder.encode(FRAME)), rtol=1e-5, atol=1e-6)
    assert source.ids().texts.to_pylist() == FRAME["user"].to_pylist()
    assert source.labels().tolist() == FRAME["paid"].to_pylist()
    assert source.weights().tolist() == pytest.approx(FRAME["share"].to_pylist())


@pytest.mark.parametrize(("kind", "name"), MATRIX_KINDS.items())
@pytest.mark.parametrize("size", [1, 200, 10**6])
def test_a_matrix_in_chunks_equals_the_whole(tmp_path, kind, name, size):
    (source,) = open_sources(DataSettings(path=write_matrix(tmp_path / name, kind)))
    assert (source.count, source.names) == (COUNT, tuple("123456789"))
    chunks = list(source.chunks(size))
    assert len(chunks) == 1 if size > 1000 else len(chunks) > 5
    assert len({type(chunk) for chunk in chunks}) == 1
    np.testing.assert_array_equal(to_dense(vstack(chunks)), MATRIX)
    assert source.weights() is None
    assert (source.labels() is None) == (kind in ("npy", "sparse", "packed sparse"))
    assert (source.ids() is None) == (kind not in ("npz", "packed"))


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_chunks_can_be_read_again_and_stay_within_their_size(tmp_path, name):
    (source,) = open_sources(DataSettings(path=write_frame(FRAME, tmp_path / name), **COLUMNS))
    sizes = [row_count(chunk) for chunk in source.chunks(600)]
    assert sum(sizes) == COUNT
    assert max(sizes) * 4 * len(source.names) <= 600
    assert [row_count(chunk) for chunk in source.chunks(600)] == sizes


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_load_gathers_what_the_sources_give(tmp_path, name):
    settings = DataSettings(path=write_frame(FRAME, tmp_path / name), **COLUMNS)
    (source,), table = open_sources(settings), load(settings).train
    np.testing.assert_array_equal(to_dense(table.rows), to_dense(vstack(list(source.chunks(500)))))
    assert table.ids.tolist() == source.ids().as_objects().tolist()


def test_the_encoder_is_fitted_on_training_only(tmp_path):
    train = write_frame(FRAME.slice(0, 60), tmp_path / "train.csv")
    test = write_frame(FRAME.slice(60), tmp_path / "test.csv")
    settings = DataSettings(path=train, test_path=test, **COLUMNS)
    encoder = fit([FRAME.slice(0, 60)], FEATURES, settings)
    first, second = open_sources(settings)
    assert first.names == second.names == encoder.names
    found = to_dense(vstack(list(second.chunks(500))))
    np.testing.assert_allclose(found, to_dense(encoder.encode(FRAME.slice(60))), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "more"), [("npy", {}), ("sparse", {})])
def test_missing_numbers_are_filled_with_the_means_of_the_whole_training_file(tmp_path, monkeypatch, name, more):
    monkeypatch.setattr("fdml.data.sources.CHUNK_BYTES", 100)
    holes = MATRIX.copy()
    holes[5, 2] = holes[80, 2] = holes[90, 7] = np.nan
    path = tmp_path / "x.npz"
    if name == "npy":
        np.savez(path, X=holes)
    else:
        sp.save_npz(path, sp.csr_array(holes), compressed=False)
    (source,) = open_sources(DataSettings(path=path, missing="mean"))
    expected = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    np.testing.assert_allclose(to_dense(vstack(list(source.chunks(100)))), expected, rtol=1e-6)
    (strict,) = open_sources(DataSettings(path=path, missing="error"))
    with pytest.raises(DataError, match=r"x.npz: feature 3 of data row 6 is NaN"):
        list(strict.chunks(100))


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_errors_far_down_name_the_file_and_the_row_in_it(tmp_path, name):
    broken = FRAME["height"].to_pylist()
    broken[70] = None
    test = write_frame(FRAME.set_column(2, "height", pa.array(broken)), tmp_path / name)
    train = write_frame(FRAME, tmp_path / f"train-{name}")
    _, source = open_sources(DataSettings(path=train, test_path=test, missing="error", **COLUMNS))
    with pytest.raises(DataError, match=rf"{name}: column 'height' has no value in data row 71 \(1 such rows\)"):
        list(source.chunks(500))
    with pytest.raises(DataError, match=rf"{name}: column 'height' has no value in data row 71 \(1 such rows\)"):
        open_sources(DataSettings(path=test, missing="error", **COLUMNS))


def test_a_label_party_without_features_gives_rows_of_no_width(tmp_path):
    path = write_frame(FRAME.select(["user", "paid"]), tmp_path / "x.csv")
    (source,) = open_sources(DataSettings(path=path, id="user", label="paid"))
    (chunk,) = source.chunks()
    assert (source.names, chunk.values.shape) == ((), (COUNT, 0))


def test_ids_are_read_by_their_settings_and_dropped_rows_stay_in_the_chunks(tmp_path):
    users = pa.array(["same" if number < 3 else f"u{number}" for number in range(COUNT)])
    path = write_frame(FRAME.set_column(0, "user", users), tmp_path / "x.csv")
    (source,) = open_sources(DataSettings(path=path, ids={"duplicates": "first"}, **COLUMNS))
    assert source.ids().counts.dropped == 2
    assert len(source.labels()) == sum(map(row_count, source.chunks())) == source.count == COUNT
    (strict,) = open_sources(DataSettings(path=path, **COLUMNS))
    with pytest.raises(DataError, match=r"x.csv: it has 2 rows with a duplicate id"):
        strict.ids()


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.npz", "x.svm"])
def test_a_source_goes_into_a_store_and_comes_out_in_order(tmp_path, name):
    if name in ("x.parquet", "x.csv"):
        settings = DataSettings(path=write_frame(FRAME, tmp_path / name), **COLUMNS)
    else:
        settings = DataSettings(path=write_matrix(tmp_path / name, "npz" if name == "x.npz" else "libsvm"))
    (source,) = open_sources(settings)
    order = np.random.default_rng(3).permutation(COUNT)[:50]
    places = np.full(COUNT, -1)
    places[order] = np.arange(50)
    write_blocks(tmp_path / "blocks", source.chunks(500), places, 50, len(source.names))
    whole = to_dense(load(settings).train.rows)
    np.testing.assert_array_equal(to_dense(open_blocks(tmp_path / "blocks")), whole[order])


@examples(25)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.none() | st.integers(-5, 5)), min_size=1), st.data())
def test_any_table_is_read_in_chunks_as_at_once(tmp_path_factory, values, data):
    cities, sizes = zip(*values, strict=True)
    frame = pa.table({"city": pa.array(cities), "size": pa.array(sizes, pa.float64()), "y": [0] * len(values)})
    path = tmp_path_factory.mktemp("source") / "x.parquet"
    pa.parquet.write_table(frame, path)
    chosen = DataSettings(path=path, label="y", missing="mean", scale=data.draw(st.sampled_from(["standard", "none"])))
    (source,) = open_sources(chosen)
    expected = fit([frame], ("city", "size"), chosen)
    found = to_dense(vstack(list(source.chunks(data.draw(st.integers(1, 300))))))
    assert source.names == expected.names
    np.testing.assert_allclose(found, to_dense(expected.encode(frame)), rtol=1e-4, atol=1e-5)


def loaded(settings):
    """The encoder of a party's training file, by way of its JSON text."""
    return encoder_from_json(open_sources(settings)[0].encoder.to_json())


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
@pytest.mark.parametrize("new", ["new.parquet", "new.csv", "new.csv.gz"])
def test_new_rows_are_encoded_without_the_training_file(tmp_path, name, new):
    train = write_frame(FRAME.slice(0, 60), tmp_path / name)
    encoder = loaded(DataSettings(path=train, **COLUMNS))
    assert isinstance(encoder, Encoder)
    train.unlink()
    path = write_frame(FRAME.slice(60), tmp_path / new)
    source = open_encoded(DataSettings(path=path, **COLUMNS), encoder)
    assert source.encoder is encoder
    assert (source.count, source.names) == (COUNT - 60, encoder.names)
    found, expected = vstack(list(source.chunks(500))), encoder.encode(FRAME.slice(60))
    np.testing.assert_allclose(to_dense(found), to_dense(expected), rtol=1e-6)
    assert source.ids().texts.to_pylist() == FRAME["user"].to_pylist()[60:]
    assert source.labels().tolist() == FRAME["paid"].to_pylist()[60:]


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_test_file_and_new_rows_are_encoded_to_the_same_bits(tmp_path, name):
    train, test = (write_frame(FRAME.slice(*part), tmp_path / f"{part[0]}-{name}") for part in ((0, 60), (60, 37)))
    settings = DataSettings(path=train, test_path=test, **COLUMNS)
    _, source = open_sources(settings)
    new = open_encoded(settings.model_copy(update={"path": test}), loaded(settings))
    assert to_dense(vstack(list(new.chunks()))).tobytes() == to_dense(vstack(list(source.chunks()))).tobytes()


def test_text_that_looks_like_numbers_in_new_rows_stays_text(tmp_path):
    """In the training file one word says that the column is text; in the new file nothing does."""
    train = write_frame(pa.table({"size": ["01", "1", "XL"], "n": [1, 2, 3]}), tmp_path / "train.csv")
    new = tmp_path / "new.csv"
    new.write_text("size,n\n01,1\n1,2\n")
    source = open_encoded(DataSettings(path=new), loaded(DataSettings(path=train, scale="none")))
    assert source.names == ("size=01", "size=1", "size=XL", "n")
    assert to_dense(vstack(list(source.chunks()))).tolist() == [[1, 0, 0, 1], [0, 1, 0, 2]]


def test_codes_that_were_numbers_in_training_are_found_however_new_rows_are_stored(tmp_path):
    train = write_frame(pa.table({"code": [7, 12]}), tmp_path / "train.parquet")
    encoder = loaded(DataSettings(path=train, categorical="code"))
    for name in ("new.csv", "new.parquet"):
        path = write_frame(pa.table({"code": [12, 99, 7]}), tmp_path / name)
        source = open_encoded(DataSettings(path=path, categorical="code"), encoder)
        assert to_dense(vstack(list(source.chunks()))).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_new_rows_need_neither_labels_nor_weights_nor_columns_that_are_no_features(tmp_path):
    encoder = loaded(DataSettings(path=write_frame(FRAME, tmp_path / "x.csv"), ignore="height", **COLUMNS))
    path = write_frame(FRAME.select(["zip", "city", "user", "age"]), tmp_path / "new.csv")
    source = open_encoded(DataSettings(path=path, **COLUMNS), encoder)
    assert (source.labels(), source.weights()) == (None, None)
    assert to_dense(vstack(list(source.chunks()))).shape == (COUNT, 7)


@pytest.mark.parametrize(("missing", "message"), [("city", "no column 'city'"), ("user", "no id column 'user'")])
def test_new_rows_without_a_column_that_is_needed_are_refused(tmp_path, missing, message):
    encoder = loaded(DataSettings(path=write_frame(FRAME, tmp_path / "x.csv"), **COLUMNS))
    path = write_frame(FRAME.drop_columns([missing]), tmp_path / "new.csv")
    with pytest.raises(DataError, match=f"new.csv: there is {message}"):
        open_encoded(DataSettings(path=path, **COLUMNS), encoder)


@pytest.mark.parametrize(("kind", "name"), MATRIX_KINDS.items())
@pytest.mark.parametrize("rule", ["error", "mean"])
def test_new_rows_of_a_matrix_are_encoded_without_the_training_file(tmp_path, kind, name, rule):
    settings = DataSettings(path=write_matrix(tmp_path / name, kind), missing=rule)
    encoder = loaded(settings)
    assert isinstance(encoder, MatrixEncoder)
    assert (encoder.width, encoder.fills is None) == (9, rule == "error")
    source = open_encoded(settings, encoder)
    assert (source.names, source.count, source.encoder) == (tuple("123456789"), COUNT, encoder)
    np.testing.assert_array_equal(to_dense(vstack(list(source.chunks(200)))), MATRIX)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1 1:5\n", [5, 0, 0, 0]), ("1 3:1 4:2\n", [0, 0, 1, 2]), ("1\n", [0, 0, 0, 0])],
)
def test_features_of_a_new_libsvm_file_have_the_numbers_of_training(tmp_path, text, expected):
    """A file alone does not say how wide training was, nor whether it counted from 0."""
    new = tmp_path / "new.svm"
    new.write_text(text)
    source = open_encoded(DataSettings(path=new), MatrixEncoder(4, None))
    assert to_dense(vstack(list(source.chunks()))).tolist() == [expected]
    counted_from_0 = open_encoded(DataSettings(path=new), MatrixEncoder(5, None, 0))
    assert to_dense(vstack(list(counted_from_0.chunks()))).tolist() == [[0, *expected]]


@pytest.mark.parametrize(("text", "number"), [("1 0:5\n", 0), ("1 5:1\n", 5)])
def test_a_feature_that_training_never_saw_is_named(tmp_path, text, number):
    (tmp_path / "new.svm").write_text(text)
    with pytest.raises(
        DataError, match=rf"new.svm: it has a feature {number}, but training had features 1 to 4; leave"
    ):
        open_encoded(DataSettings(path=tmp_path / "new.svm"), MatrixEncoder(4, None))


def test_a_new_matrix_of_another_width_is_refused(tmp_path):
    np.save(tmp_path / "new.npy", MATRIX[:, :5])
    with pytest.raises(DataError, match=r"new.npy: 5 features, but training has 9; give both the same features"):
        open_encoded(DataSettings(path=tmp_path / "new.npy"), MatrixEncoder(9, None))


def test_new_rows_in_a_form_that_the_encoder_does_not_know_are_refused(tmp_path):
    matrix, table = write_matrix(tmp_path / "x.npy", "npy"), write_frame(FRAME, tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"x.npy: is numpy, but the model was trained on named columns \(CSV, Parquet"):
        open_encoded(DataSettings(path=matrix), Encoder(()))
    with pytest.raises(DataError, match=r"x.csv: is csv, but the model was trained on a matrix \(LIBSVM, numpy\)"):
        open_encoded(DataSettings(path=table), MatrixEncoder(9, None))
