"""Three tables by three keys, through real processes: to the bit what the same tables are that were joined beforehand."""

import json
from contextlib import contextmanager

import pytest

from tests.end_to_end.keyed import KeyedCluster, nyc_flights, synthetic

TABLES = synthetic()


@contextmanager
def cluster_of(home, tables=TABLES, **options):
    cluster = KeyedCluster(home, tables, **options)
    try:
        yield cluster
    finally:
        cluster.stop()


def hashes(home, tables=TABLES, **options):
    """The models of a run, and its last metrics."""
    with cluster_of(home, tables, **options) as cluster:
        cluster.start()
        cluster.finish()
        epochs = json.loads((home / "flights" / "runs" / "first" / "history.json").read_text())
        return cluster.model_hashes(), {key: epochs[-1][key] for key in ("test_loss", "test_metric")}


@pytest.mark.slow
@pytest.mark.parametrize("unmatched", ["drop", "keep"])
def test_three_tables_by_three_keys_equal_the_same_joined_beforehand(tmp_path, unmatched):
    joined = hashes(tmp_path / "joined", joined=True, unmatched=unmatched)
    assert hashes(tmp_path / "keys", unmatched=unmatched) == joined
    if unmatched == "keep":
        assert joined != hashes(tmp_path / "drop", joined=True), "rows that not all hold make a difference"


@pytest.mark.slow
def test_flights_of_new_york_by_three_keys_equal_the_same_joined_beforehand(tmp_path):
    tables = nyc_flights(every=100)
    joined = hashes(tmp_path / "joined", tables, joined=True, unmatched="keep")
    assert hashes(tmp_path / "keys", tables, unmatched="keep") == joined


@pytest.mark.slow
def test_a_party_with_hidden_layers_keeps_rows_that_it_does_not_hold_at_zero(tmp_path):
    joined = hashes(tmp_path / "joined", joined=True, unmatched="keep", model="mlp")
    assert hashes(tmp_path / "keys", unmatched="keep", model="mlp", align="ecdh") == joined


@pytest.mark.slow
def test_killed_and_started_again_it_ends_as_it_would_have(tmp_path):
    calm = hashes(tmp_path / "calm", unmatched="keep", epochs=30)[0]
    with cluster_of(tmp_path / "killed", unmatched="keep", epochs=30) as cluster:
        cluster.start()
        cluster.await_step(20)
        for member in ("weather", "server", "flights"):
            cluster[member].kill()
        cluster.join("weather")
        cluster.serve()
        cluster.join("flights")
        cluster.finish()
        assert cluster.model_hashes() == calm
        statement = (cluster.home / "flights" / "runs" / "first" / "privacy.md").read_text()
        assert "group sizes" in statement
        assert "exact zeros" in (cluster.home / "planes" / "runs" / "first" / "privacy.md").read_text()
