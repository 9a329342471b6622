"""A party whose workers read 200 Parquet files, in real runs: the bits of one file, also after kills while it reads."""

import os
import signal
from contextlib import contextmanager

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.cluster import RUN, running, until
from tests.end_to_end.test_shards import workers_of

pytestmark = pytest.mark.slow
FILES = 200
WORKERS = '[workers]\nkind = "processes"\ncount = 2\n'


@contextmanager
def started(home, *, files):
    """Two parties, ann with her rows in so many Parquet files."""
    with running(home, rows=1000) as cluster:
        into_parquet(cluster, files)
        cluster.change("[align]", f"{WORKERS}[align]", "ann/party.toml")
        cluster.start()
        yield cluster


def into_parquet(cluster, files):
    """Have ann's rows in so many Parquet files."""
    table, folder = pacsv.read_csv(cluster.home / "ann" / "data.csv"), cluster.home / "ann" / "rows"
    folder.mkdir()
    for number in range(files):
        step = len(table) // files
        pq.write_table(table.slice(number * step, step), folder / f"{number:05d}.parquet")
    cluster.change('path = "data.csv"', 'path = "rows"', "ann/party.toml")


def kept(home):
    """What ann has in the end: her block store, her model and her column of predictions, all but their tokens."""
    run = home / "ann" / RUN
    blocks = {path.name: path.read_bytes() for path in sorted((run / "state" / "blocks").glob("*/*"))}
    assert {"facts.json", "values"} <= set(blocks)
    codes = np.sort(np.load(run / "serving" / "exact.npy"), axis=None)
    return blocks, (run / "model" / "encoder.json").read_bytes(), codes.tobytes()


def parts(home):
    return len(list((home / "ann" / RUN / "state" / "parts").glob("*/*/manifest.json")))


def test_a_run_over_many_files_is_the_run_over_one_also_after_kills(tmp_path):
    with started(tmp_path / "one", files=1) as cluster:
        cluster.finish()
        expected = cluster.model_hashes()
    with started(tmp_path / "many", files=FILES) as cluster:
        until(lambda: parts(cluster.home) >= 10, "some parts are there")
        os.kill(workers_of(cluster["ann"].pid)[0], signal.SIGKILL)
        until(lambda: "its task is done again" in cluster["ann"].text or parts(cluster.home) >= 60, "more parts")
        cluster["ann"].kill()
        left = parts(cluster.home)
        assert 10 <= left <= FILES
        cluster.join("ann")
        cluster.finish()
        assert cluster.model_hashes() == expected
        assert not (cluster.home / "ann" / RUN / "state" / "parts").exists()
        assert not list((cluster.home / "ann" / RUN).glob(".serving.parts"))
    assert kept(tmp_path / "many") == kept(tmp_path / "one")
