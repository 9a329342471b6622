"""A table of Parquet files as other processes are told of it: where it is, its types, its pieces."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.cluster.frames import Frame
from fdml.cluster.part_tables import PieceTable, bytes_array, check_unchanged, piece_facts
from fdml.cluster.reading import PartReader
from fdml.cluster.settings import WorkersSettings
from fdml.data.origins import frame_origins, origins_of
from fdml.data.rows import vstack
from fdml.data.sources import open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.cluster.tables import bits, in_files, sample
from tests.cluster.test_reading_jobs import sent

TYPES = {
    "whole": pa.int32(),
    "real": pa.float32(),
    "text": pa.large_string(),
    "coded": pa.dictionary(pa.int8(), pa.string()),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "moment": pa.timestamp("us", "Europe/Paris"),
    "exact": pa.decimal128(10, 2),
    "year": pa.int64(),
}


def table_of(settings):
    (place,) = origins_of(settings)
    found = PieceTable.of(place, place.table(()))
    assert found is not None
    return found


def test_types_travel_as_they_are():
    table = PieceTable("/rows", TYPES, {"year": pa.int64(), "month": pa.string()})
    found = PieceTable.of_frame(sent(Frame({"location": table.location}, table.arrays())))
    assert found == table
    assert list(found.types) == list(TYPES), "in their order"


def test_a_piece_is_told_by_plain_facts(tmp_path):
    settings = in_files(sample(100), tmp_path / "rows", 4)
    table, pieces = table_of(settings)
    assert [piece.count for piece in pieces] == [piece_facts(piece)["count"] for piece in pieces]
    facts = piece_facts(pieces[1])
    path = tmp_path / "rows" / "rows-00001.parquet"
    assert facts == {
        "path": str(path),
        "name": "rows-00001.parquet",
        "values": {},
        "first": pieces[0].count,
        "count": pieces[1].count,
        "groups": None,
        "size and time": [path.stat().st_size, path.stat().st_mtime_ns],
    }
    again = table.piece(sent(Frame(facts)).facts)
    assert (again.first, again.count, again.groups) == (pieces[1].first, pieces[1].count, None)
    assert again.names == pieces[1].names


def test_a_file_that_is_another_now_is_refused_and_the_same_is_not(tmp_path):
    settings = in_files(sample(100), tmp_path / "rows", 4)
    _, (piece, *_) = table_of(settings)
    facts = piece_facts(piece)
    check_unchanged(piece, facts)
    path = tmp_path / "rows" / "rows-00000.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(DataError, match=r"rows-00000\.parquet was changed while it was read"):
        check_unchanged(piece, facts)


@pytest.mark.parametrize("location", ["a folder", "a pattern", "an address", "a relative folder"])
def test_workers_find_files_wherever_a_party_names_them(tmp_path, monkeypatch, location):
    settings = in_files(sample(100), tmp_path / "rows", 4)
    monkeypatch.chdir(tmp_path)
    places = {
        "a folder": settings.path,
        "a pattern": tmp_path / "ro*" / "*.parquet",
        "an address": f"file://{tmp_path}/rows",
        "a relative folder": DataSettings(path="rows").path,
    }
    named = settings.model_copy(update={"path": places[location]})
    table, _ = table_of(named)
    assert table.location.startswith(("/", "file://")), "whoever reads it may work in another folder"
    (many,) = open_sources(named, reader=PartReader(WorkersSettings(files=True), tmp_path / "parts"))
    (one,) = open_sources(settings)
    assert bits(vstack(list(many.chunks()))) == bits(vstack(list(one.chunks())))
    assert list((tmp_path / "parts").glob("*/*"))


def test_a_frame_is_not_for_workers():
    (place,) = frame_origins(sample(100))
    assert PieceTable.of(place, place.table(())) is None


def test_bytes_travel_as_an_array():
    assert bytes_array(b"abc").tobytes() == b"abc"
    assert bytes_array(b"").tobytes() == b""
