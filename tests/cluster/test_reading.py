"""Parquet files that workers read: the same bits as one process makes of the rows in one file."""

import pyarrow as pa
import pytest

from fdml.cluster.parts import PartedSource
from fdml.cluster.reading import PartReader
from fdml.cluster.settings import WorkersSettings
from fdml.data.frame_source import FrameSource
from fdml.data.rows import vstack
from fdml.data.sources import open_sources
from tests.cluster.tables import bits, in_files, in_one_file, sample

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


@pytest.mark.parametrize("files", [3, 200])
def test_rows_in_many_files_have_the_bits_of_one_file(tmp_path, files):
    table = sample()
    (one,) = open_sources(in_one_file(table, tmp_path / "all.parquet"))
    reader = PartReader(THREADS, tmp_path / "parts")
    (many,) = open_sources(in_files(table, tmp_path / "rows", files), reader=reader)
    assert isinstance(one, FrameSource)
    assert isinstance(many, PartedSource)
    assert facts(many) == facts(one)
