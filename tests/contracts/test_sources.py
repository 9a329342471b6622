"""What every source of rows must pass: each format, fitted and with an encoder of before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from fdml.data import csv_files, table_source
from fdml.data.encoders import encoder_from_json
from fdml.data.frame_source import FrameSource
from fdml.data.locations import ENDINGS
from fdml.data.matrix_source import MatrixSource
from fdml.data.rows import row_count, to_dense, vstack, width
from fdml.data.sources import open_encoded, open_sources
from fdml.settings.data import DataSettings

COUNT = 53
RNG = np.random.default_rng(11)
MATRIX = (RNG.integers(-3, 4, (COUNT, 6)) * (RNG.random((COUNT, 6)) < 0.5)).astype(np.float32)
LABELS = RNG.integers(0, 2, COUNT)
TABLE = pa.table(
    {
        "user": [f"u{number}" for number in range(COUNT)],
        "age": [None if number % 9 == 0 else float(number) for number in range(COUNT)],
        "city": RNG.choice(["Paris", "Lima", "", "01"], COUNT),
        "paid": LABELS,
        "share": RNG.random(COUNT) + 0.1,
    }
)
NAMED = {"id": "user", "label": "paid", "weight": "share", "missing": "mean"}


def settings_for(form, folder):
    """Write the rows in this form; the settings that read them."""
    path = folder / {"npy": "x.npy", "libsvm": "x.svm"}.get(
        form, f"x.{form}" if form in ("csv", "parquet") else "x.npz"
    )
    if form == "csv":
        pa.csv.write_csv(TABLE, path)
    elif form == "parquet":
        pa.parquet.write_table(TABLE, path)
    elif form == "npy":
        np.save(path, MATRIX)
    elif form == "npz":
        np.savez(path, X=MATRIX, y=LABELS, ids=np.arange(COUNT), weights=np.ones(COUNT))
    elif form == "packed npz":
        np.savez_compressed(path, X=MATRIX, y=LABELS, ids=np.arange(COUNT))
    elif form == "sparse npz":
        sp.save_npz(path, sp.csr_array(MATRIX))
    else:
        dump_svmlight_file(MATRIX, LABELS, str(path), zero_based=False)
    return DataSettings(path=path, **(NAMED if form in ("csv", "parquet") else {"missing": "zero"}))


FORMS = ["csv", "parquet", "npy", "npz", "packed npz", "sparse npz", "libsvm"]


@pytest.fixture(
    params=[(form, way) for form in FORMS for way in ("fitted", "encoded")], ids=lambda each: " ".join(each)
)
def opened(request, tmp_path, monkeypatch):
    """A source and the settings it was opened with."""
    monkeypatch.setattr(csv_files, "CSV_BLOCK", 300)
    monkeypatch.setattr(table_source, "BATCH_ROWS", 10)
    form, way = request.param
    settings = settings_for(form, tmp_path)
    (source,) = open_sources(settings)
    if way == "encoded":
        source = open_encoded(settings, encoder_from_json(source.encoder.to_json()))
    return source, settings


def test_every_format_is_held_to_this_contract():
    assert set(ENDINGS.values()) == {"csv", "parquet", "numpy", "libsvm"}


def test_a_source_is_one_of_two_classes(opened):
    source, settings = opened
    assert type(source) is (FrameSource if settings.path.suffix in (".csv", ".parquet") else MatrixSource)


def test_count_and_names_fit_the_rows(opened):
    source, _ = opened
    rows = vstack(list(source.chunks()))
    assert (source.count, len(source.names)) == (row_count(rows), width(rows)) == (COUNT, width(rows))
    assert len(set(source.names)) == len(source.names)
    assert source.names == source.encoder.names


@pytest.mark.parametrize("size", [1, 150, 10**7])
def test_rows_do_not_depend_on_the_size_of_a_chunk(opened, size):
    source, _ = opened
    whole = vstack(list(source.chunks()))
    chunks = list(source.chunks(size))
    assert {type(chunk) for chunk in chunks} == {type(whole)}
    assert to_dense(vstack(chunks)).tobytes() == to_dense(whole).tobytes()
    assert len(chunks) > 1 or size > 150


def test_rows_can_be_read_again_and_are_finite(opened):
    source, _ = opened
    once, again = (to_dense(vstack(list(source.chunks(500)))) for _ in range(2))
    assert once.dtype == np.float32
    assert np.isfinite(once).all()
    assert once.tobytes() == again.tobytes()


def test_labels_and_weights_are_one_per_row_or_none(opened):
    source, _ = opened
    labels, weights = source.labels(), source.weights()
    assert labels is None or labels.tolist() == LABELS.tolist()
    assert weights is None or (len(weights) == COUNT and (weights > 0).all())


def test_ids_keep_rows_in_file_order_or_there_are_none(opened):
    source, _ = opened
    ids = source.ids()
    if ids is not None:
        assert ids.rows.tolist() == list(range(COUNT))
        assert len(set(ids.as_objects().tolist())) == COUNT
        assert ids.counts.rows == COUNT


def test_a_file_opened_with_its_own_encoder_gives_the_same_bits(opened):
    source, settings = opened
    again = open_encoded(settings, encoder_from_json(source.encoder.to_json()))
    assert again.names == source.names
    assert to_dense(vstack(list(again.chunks()))).tobytes() == to_dense(vstack(list(source.chunks()))).tobytes()
