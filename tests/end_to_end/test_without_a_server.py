"""Runs without a process for the server: models are those of a run over one, to the bit, through any kill."""

import signal

import pytest

from tests.end_to_end.topologies import PARTIES, topology

pytestmark = pytest.mark.slow
KINDS = ("host", "mesh", "tunnel")


@pytest.mark.parametrize("count", [2, 3, 5])
def test_models_are_those_of_a_run_over_a_server_to_the_bit(tmp_path, count):
    found = {}
    for kind in ("server", *KINDS):
        with topology(tmp_path / kind, kind, PARTIES[:count]) as run:
            found[kind] = run.run()
    assert len(set(found["server"].values())) == count
    for kind in KINDS:
        assert found[kind] == found["server"], kind


@pytest.mark.parametrize(("kind", "victim"), [("host", "ann"), ("mesh", "ann"), ("mesh", "cat"), ("tunnel", "cat")])
def test_a_party_that_is_killed_goes_on_to_the_same_models(tmp_path, kind, victim):
    with topology(tmp_path / "calm", kind, PARTIES[:3], epochs=40) as run:
        calm = run.run()
    with topology(tmp_path / "killed", kind, PARTIES[:3], epochs=40) as run:
        for side in run.sides:
            run.launch(side)
        run.await_step(60)
        run[victim].send(signal.SIGKILL)
        run[victim].wait()
        run.launch(victim)
        for side in run.sides:
            run[side].expect(0)
        assert run.model_hashes() == calm


def test_a_party_that_stays_away_is_named_by_all_others(tmp_path):
    with topology(tmp_path / "run", "mesh", PARTIES[:3], epochs=400, peer_timeout_seconds=3.0) as run:
        for side in run.sides:
            run.launch(side)
        run.await_step(40)
        run["cat"].send(signal.SIGKILL)
        run["cat"].wait()
        for party in ("ann", "bob"):
            run[party].expect(1, "waited 3 s at step", "'cat'", "run the same command again", seconds=30)
