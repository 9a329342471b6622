"""Prediction by real processes over mutual TLS: a batch, killed and gone on; parties killed, stopped and back."""

import json
import signal

import pyarrow.csv as pacsv
import pytest

from tests.end_to_end.cluster import until
from tests.end_to_end.standing import SECONDS, standing

pytestmark = pytest.mark.slow
ROWS = 150
ASKED = 150_000
"""Of the batch, three blocks; `python -m benchmarks kill-batch` asks for a million."""


def predicted(cluster, out, *words, code=0):
    """What `fdml predict` of ann says."""
    party, ids = cluster.home / "ann" / "party.toml", cluster.home / "ids.csv"
    started = cluster.start_command("predict", party, "--ids", ids, "--out", out, "--deadline", 5, *words)
    return started.expect(code, seconds=SECONDS)


def scored(cluster, tmp_path):
    """How many rows have a score just now."""
    predicted(cluster, tmp_path / "now.csv", "--json", tmp_path / "now.json")
    return json.loads((tmp_path / "now.json").read_text())["scored"]


def write_ids(cluster, repeats=1):
    lines = (cluster.home / "ann" / "data.csv").read_text().splitlines()
    ids = [line.split(",")[0] for line in lines]
    (cluster.home / "ids.csv").write_text("\n".join([ids[0], *(ids[1:] * repeats)]) + "\n")
    return len(ids) - 1


def test_a_batch_survives_kills_of_its_own_process_the_server_and_a_party(tmp_path):
    with standing(tmp_path / "run", rows=ROWS) as cluster:
        cluster.stand_by()
        cluster.run("one", epochs=2)
        cluster.await_models("one")
        cluster.await_state("one", "finished")
        rows = write_ids(cluster)
        until(lambda: scored(cluster, tmp_path) == rows, "answers of all", SECONDS)

        repeats = ASKED // rows
        write_ids(cluster, repeats)
        predicted(cluster, tmp_path / "whole.csv")
        out = tmp_path / "out.csv"
        words = ("predict", cluster.home / "ann" / "party.toml", "--ids", cluster.home / "ids.csv", "--out", out)
        first = cluster.start_command(*words)
        until(lambda: (tmp_path / ".out.csv.blocks" / "block-000000.parquet").exists() or out.exists(), "a block")
        first.send(signal.SIGKILL)
        first.wait(30)
        assert "blocks were there from an earlier start" in predicted(cluster, out)
        assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
        assert pacsv.read_csv(out).num_rows == rows * repeats
        killed_during(cluster, tmp_path, "bob", lambda: cluster.up("bob"))
        killed_during(cluster, tmp_path, "server", cluster.serve)

        write_ids(cluster)
        cluster["bob"].send(signal.SIGKILL)
        cluster["bob"].wait(30)
        until(lambda: scored(cluster, tmp_path) == 0, "bob to be missed", SECONDS)
        assert set(pacsv.read_csv(tmp_path / "now.csv").column("missing").to_pylist()) == {"bob"}
        cluster.up("bob")
        until(lambda: scored(cluster, tmp_path) == rows, "bob again", SECONDS)

        cluster["cid"].send(signal.SIGSTOP)
        said = predicted(cluster, tmp_path / "now.csv")
        assert "cid: no answer within 5 s" in said
        cluster["cid"].send(signal.SIGCONT)
        until(lambda: scored(cluster, tmp_path) == rows, "cid again", SECONDS)

        cluster["server"].send(signal.SIGKILL)
        cluster["server"].wait(30)
        cluster.serve()
        until(lambda: reached(cluster, tmp_path) == rows, "all again after the server was killed", SECONDS)
        whole = pacsv.read_csv(tmp_path / "whole.csv").slice(0, rows)
        assert pacsv.read_csv(tmp_path / "now.csv").column("score").to_pylist() == whole.column("score").to_pylist()


def killed_during(cluster, tmp_path, victim, restart):
    """Kill one of the others in the middle of a batch and start it again: the output is that of an undisturbed one."""
    out = tmp_path / f"{victim}.csv"
    party, ids = cluster.home / "ann" / "party.toml", cluster.home / "ids.csv"
    words = ("predict", party, "--ids", ids, "--out", out, "--deadline", 5, "--retry", SECONDS)
    batch = cluster.start_command(*words)
    until(lambda: (tmp_path / f".{victim}.csv.blocks" / "block-000000.parquet").exists() or out.exists(), "a block")
    cluster[victim].send(signal.SIGKILL)
    cluster[victim].wait(30)
    restart()
    batch.expect(0, seconds=2 * SECONDS)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def reached(cluster, tmp_path):
    """The same where the server may not be there yet."""
    try:
        return scored(cluster, tmp_path)
    except AssertionError:
        return -1
