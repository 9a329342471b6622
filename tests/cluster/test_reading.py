"""Parquet files that workers read: the same bits as one process makes of the rows in one file."""

import os
import signal
import subprocess
import threading
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fdml.cluster.parts import PartedSource
from fdml.cluster.reading import PartReader
from fdml.cluster.settings import WorkersSettings
from fdml.data import parquet_files
from fdml.data.frame_source import FrameSource
from fdml.data.origins import frame_origins
from fdml.data.rows import SparseRows, vstack
from fdml.data.sources import THIS_PROCESS, open_encoded, open_sources
from fdml.errors import DataError
from tests.cluster.tables import bits, in_files, in_one_file, sample, write_csv_files

THREADS = WorkersSettings(kind="threads", files=True, count=2)
PROCESSES = WorkersSettings(kind="processes", count=2)


def facts(source):
    """All that a source tells, as bytes."""
    ids = source.ids()
    return {
        "encoder": source.encoder.to_json(),
        "rows": bits(vstack(list(source.chunks()))),
        "ids": ids.texts.to_pylist(),
        "kept": ids.rows.tolist(),
        "counts": ids.counts,
        "labels": source.labels().tolist(),
        "weights": source.weights().tolist(),
        "count": source.count,
        "names": source.names,
    }


def of_one(table, folder, **named):
    (source,) = open_sources(in_one_file(table, folder / "all.parquet").model_copy(update=named))
    assert isinstance(source, FrameSource)
    return source


def of_many(table, folder, files=5, workers=THREADS, remark=lambda _: None, **named):
    reader = PartReader(workers, folder / "parts", remark=remark)
    settings = in_files(table, folder / "rows", files).model_copy(update=named)
    (source,) = open_sources(settings, reader=reader)
    assert isinstance(source, PartedSource)
    return source


def part_folders(folder):
    return sorted((folder / "parts").glob("*/*"))


@pytest.mark.parametrize("files", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_rows_in_many_files_have_the_bits_of_one_file(tmp_path, files):
    table = sample()
    assert facts(of_many(table, tmp_path, files)) == facts(of_one(table, tmp_path))


@pytest.mark.slow
def test_processes_give_the_same_bits_also_where_one_is_killed_in_the_middle(tmp_path):
    table, said = sample(), []
    many = of_many(table, tmp_path, 200, PROCESSES, said.append)
    assert said == []
    killer = threading.Thread(target=_kill_one, args=(tmp_path,))
    killer.start()
    found = facts(many)
    killer.join()
    assert found == facts(of_one(table, tmp_path))
    assert any("its task is done again (attempt 1 of 4)" in text for text in said), said
    assert len(part_folders(tmp_path)) == 199


def _kill_one(folder):
    """As soon as a part is there, end one of the processes that make them."""
    deadline = time.monotonic() + 30
    while len(part_folders(folder)) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    words = ["pgrep", "-P", str(os.getpid()), "-f", "worker_process"]
    os.kill(int(subprocess.check_output(words, text=True).split()[0]), signal.SIGKILL)


def test_columns_of_folders_and_columns_of_several_types_are_read_alike(tmp_path):
    tables = [pa.table({"x": pa.array(values, kind)}) for values, kind in (([1, 2], pa.int32()), ([0.5], pa.float64()))]
    for number, table in enumerate(tables):
        place = tmp_path / "rows" / f"year={2025 + number}"
        place.mkdir(parents=True)
        pq.write_table(table, place / "x.parquet")
    settings = in_one_file(tables[0], tmp_path / "x.parquet").model_copy(
        update={"path": tmp_path / "rows", "id": (), "label": None, "weight": None}
    )
    (many,), (one,) = open_sources(settings, reader=PartReader(THREADS, tmp_path / "parts")), open_sources(settings)
    assert isinstance(many, PartedSource)
    assert many.names == one.names == ("x", "year")
    assert many.ids() is None
    assert bits(vstack(list(many.chunks()))) == bits(vstack(list(one.chunks())))


def test_sparse_rows_and_columns_with_too_many_categories_come_out_alike(tmp_path):
    table = sample(400).append_column("code", pa.array([f"c{number}" for number in range(400)]))
    named = {"max_categories": 100, "columns": ("city", "code"), "hash_size": 64}
    one, many = of_one(table, tmp_path, **named), of_many(table, tmp_path, **named)
    assert isinstance(next(iter(many.chunks())), SparseRows)
    assert facts(many) == facts(one)
    assert many.encoder.remarks == one.encoder.remarks != ()


def test_a_large_file_is_read_by_its_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "PIECE_ROWS", 120)
    table = sample(500)
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=50)
    settings = in_one_file(table, tmp_path / "all.parquet").model_copy(update={"path": tmp_path / "x.parquet"})
    (many,) = open_sources(settings, reader=PartReader(THREADS, tmp_path / "parts"))
    assert facts(many) == facts(of_one(table, tmp_path))
    assert len(part_folders(tmp_path)) == 5


def test_an_encoder_of_rows_as_often_as_they_are_used_is_the_same(tmp_path):
    table = sample(300)
    counts = np.random.default_rng(1).integers(0, 3, 300)
    counts[:100] = 0
    one, many = in_one_file(table, tmp_path / "all.parquet"), in_files(table, tmp_path / "rows", 9)
    (source,) = open_sources(many, counts, reader=PartReader(THREADS, tmp_path / "parts"))
    assert source.encoder == open_sources(one, counts)[0].encoder
    bad = with_value(table, 250, "wide", np.inf)
    one, many = in_one_file(bad, tmp_path / "bad.parquet"), in_files(bad, tmp_path / "bad", 9)
    counts[250], told = 2, []
    for settings in (one, many):
        with pytest.raises(DataError, match="infinite") as error:
            open_sources(settings, counts, reader=PartReader(THREADS, tmp_path / "parts"))
        told.append(str(error.value).partition(": ")[2])
    assert told[0] == told[1]
    with pytest.raises(DataError, match="the run uses none of its rows"):
        open_sources(many, counts * 0, reader=PartReader(THREADS, tmp_path / "parts"))


def test_test_rows_are_read_with_the_encoder_of_the_training_rows(tmp_path):
    train, test = in_files(sample(200), tmp_path / "rows", 4), in_files(sample(90), tmp_path / "test", 5)
    both = train.model_copy(update={"test_path": test.path})
    here, there = open_sources(both), open_sources(both, reader=PartReader(THREADS, tmp_path / "parts"))
    assert [facts(source) for source in there] == [facts(source) for source in here]


@pytest.mark.parametrize(
    ("change", "named", "wanted"),
    [
        ((130, "wide", np.inf), {}, "column 'wide' is infinite or too large for float32 in data row 131"),
        ((130, "wide", None), {"missing": "error"}, r"'wide' has no value in data row 131 \(1 such"),
        ((130, "user", None), {}, r"1 of 200 rows have no id, among them data rows 131"),
    ],
)
def test_errors_name_the_row_as_one_process_does(tmp_path, change, named, wanted):
    table = with_value(sample(200), *change)
    for make in (of_one, of_many):
        with pytest.raises(DataError, match=wanted):
            facts(make(table, tmp_path, **named))


def test_errors_of_new_rows_name_the_row_too(tmp_path):
    encoder, table = of_one(sample(50), tmp_path).encoder, with_value(sample(200), 130, "wide", np.inf)
    one, many = in_one_file(table, tmp_path / "all.parquet"), in_files(table, tmp_path / "rows", 6)
    told = []
    for settings, reader in ((one, THIS_PROCESS), (many, PartReader(THREADS, tmp_path / "parts"))):
        with pytest.raises(DataError, match="'wide' is infinite or too large for float32 in data row 131") as error:
            list(open_encoded(settings, encoder, reader=reader).chunks())
        told.append(str(error.value).partition(": ")[2])
    assert told[0] == told[1]


def with_value(table, row, name, value):
    """The table with one value changed."""
    column = table.column(name).to_pylist()
    column[row] = value
    kind = table.schema.field(name).type
    return table.set_column(table.column_names.index(name), name, pa.array(column, kind))


def test_parts_of_an_earlier_start_are_used_again_and_others_removed(tmp_path):
    table = sample(200)
    wanted = facts(of_many(table, tmp_path, 6))
    before = {folder: folder.stat().st_ino for folder in part_folders(tmp_path)}
    settings = in_one_file(table, tmp_path / "all.parquet").model_copy(update={"path": tmp_path / "rows"})
    (again,) = open_sources(settings, reader=PartReader(THREADS, tmp_path / "parts"))
    assert facts(again) == wanted
    assert {folder: folder.stat().st_ino for folder in part_folders(tmp_path)} == before
    changed = tmp_path / "rows" / "rows-00002.parquet"
    pq.write_table(pq.read_table(changed), changed, compression="none")
    source = open_encoded(settings, again.encoder, reader=PartReader(THREADS, tmp_path / "parts"))
    assert bits(vstack(list(source.chunks()))) == wanted["rows"]
    left = part_folders(tmp_path)
    assert len(left) == len(before)
    assert len(set(left) - set(before)) == 1


@pytest.mark.parametrize("fault", ["another byte", "cut", "an array is gone", "the manifest is torn"])
def test_a_damaged_part_is_found_and_made_again(tmp_path, fault):
    table, said = sample(200), []
    many = of_many(table, tmp_path, 6, remark=said.append)
    wanted = facts(many)
    (folder, *_), damaged = part_folders(tmp_path), {"the manifest is torn": "manifest.json"}.get(fault, "values")
    content = bytearray((folder / damaged).read_bytes())
    if fault == "an array is gone":
        (folder / damaged).unlink()
    elif fault == "another byte":
        content[17] ^= 1
        (folder / damaged).write_bytes(content)
    else:
        (folder / damaged).write_bytes(content[:-9])
    assert said == []
    assert facts(many) == wanted
    (text,) = said
    assert text.startswith(f"part {folder.name!r} of ")
    assert text.endswith("it is made again")
    assert facts(many) == wanted
    assert len(said) == 1


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path):
    many = of_many(sample(200), tmp_path, 6)
    path = tmp_path / "rows" / "rows-00003.parquet"
    pq.write_table(pq.read_table(path), path, compression="none")
    with pytest.raises(DataError, match=r"rows-00003\.parquet was changed while it was read; run the same command"):
        many.ids()


def test_what_no_worker_can_read_this_process_reads(tmp_path):
    table = sample(100)
    one, csv = in_one_file(table, tmp_path / "all.parquet"), write_csv_files(table, tmp_path / "csv")
    many = in_files(table, tmp_path / "rows", 4)
    reader = PartReader(PROCESSES, tmp_path / "parts")
    assert isinstance(open_sources(one, reader=reader)[0], FrameSource)
    assert isinstance(open_sources(csv, reader=reader)[0], FrameSource)
    frames = open_sources(one.model_copy(update={"path": None}), origins=frame_origins(table), reader=reader)
    assert isinstance(frames[0], FrameSource)
    for settings in (WorkersSettings(count=2), WorkersSettings(kind="processes", files=False)):
        assert isinstance(open_sources(many, reader=PartReader(settings, tmp_path / "p"))[0], FrameSource)
    assert not (tmp_path / "parts").exists()


def test_a_party_with_labels_alone_has_its_ids_in_parts(tmp_path):
    table = sample(100)
    assert facts(of_many(table, tmp_path, columns=())) == facts(of_one(table, tmp_path, columns=()))


def test_clearing_removes_all_parts(tmp_path):
    settings = in_files(sample(100), tmp_path / "rows", 4)
    reader = PartReader(THREADS, tmp_path / "parts")
    reader.clear()
    (source,) = open_sources(settings, reader=reader)
    wanted = facts(source)
    assert (tmp_path / "parts").stat().st_mode & 0o777 == 0o700
    reader.clear()
    assert not (tmp_path / "parts").exists()
    assert facts(source) == wanted, "they are made again"


@hypothesis_settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 119), min_size=1, max_size=12), st.integers(1, 40), st.booleans())
def test_rows_have_the_same_bits_wherever_files_and_row_groups_end(tmp_path_factory, cuts, group_rows, sparse):
    folder, table = tmp_path_factory.mktemp("cut"), sample(120)
    (folder / "rows").mkdir()
    for start, stop in pairwise([0, *sorted(set(cuts)), 120]):
        path = folder / "rows" / f"{start:05d}.parquet"
        pq.write_table(table.slice(start, stop - start), path, row_group_size=group_rows)
    named = {"columns": ("city",)} if sparse else {}
    reader = PartReader(THREADS, folder / "parts")
    data = in_one_file(table, folder / "all.parquet").model_copy(update={"path": folder / "rows", **named})
    (many,) = open_sources(data, reader=reader)
    assert facts(many) == facts(of_one(table, folder, **named))
