"""A server and parties that stand by: runs started from one party, decided by policy or a person, killed and gone on."""

import json
import os
import signal

import pytest

from fdml.privacy.ledger import Mechanism, epsilon_of
from tests.end_to_end.cluster import until
from tests.end_to_end.standing import PARTIES, POLICY, SECONDS, one_shot_models, standing

pytestmark = pytest.mark.slow

FIVE = {
    "one": {"epochs": 2},
    "two": {"epochs": 3},
    "three": {"epochs": 2, "batch_size": 10},
    "four": {"epochs": 2, "learning_rate": 0.05},
    "five": {"epochs": 2, "seed": 8},
}
SPENDING = '[guard]\nclip = 1.0\nnoise = "gaussian"\nsigma = 4.0\ntotal_epsilon = {total}\n'


def worth(releases):
    return epsilon_of(Mechanism("gaussian", 1.0, 4.0), releases, 1e-5)


def test_five_runs_started_from_one_party_and_nobody_else_types_anything(tmp_path):
    with standing(tmp_path / "run") as cluster:
        cluster.stand_by()
        printed = [cluster.run(name, **settings) for name, settings in FIVE.items()]
        assert all("of ann" in text for text in printed)
        cluster.await_models(*FIVE)
        until(lambda: set(cluster.states().values()) == {"finished"}, "the end of all runs")
        assert list(cluster.states()) == list(FIVE)
        models = {name: cluster.model("bob", name)["parameters.npz"] for name in FIVE}
        assert len(set(models.values())) == 5
        for party in PARTIES:
            chosen = [(each["run"], each["choice"]) for each in cluster.decisions(party)]
            assert chosen == [(name, "accepted") for name in FIVE]
            assert len(list((cluster.home / party / "alignments").glob("*/generation-*"))) == 1
        assert len(list((cluster.home / "server" / "alignments").glob("*/*-tokens-*"))) == len(PARTIES)
        compared = tmp_path / "compared.json"
        cluster.command("runs", "compare", "--json", compared)
        assert {each["name"] for each in json.loads(compared.read_text())["runs"]} == set(FIVE)
        for party in PARTIES:
            cluster[party].send(signal.SIGTERM)
            cluster[party].expect(130, "goes on from here")
        run_toml = cluster.run_toml("three", **FIVE["three"])
        assert one_shot_models(tmp_path / "alone", 150, run_toml, "three") == cluster.models("three")


def test_runs_outside_the_policy_wait_are_approved_or_refused_and_overspending_is_refused(tmp_path):
    limited = POLICY + "max_releases = 3\n"
    policies = {"ann": POLICY, "bob": SPENDING.format(total=worth(11)) + limited, "cid": limited}
    with standing(tmp_path / "run", policies=policies) as cluster:
        cluster.stand_by()
        cluster.run("small", epochs=3)
        cluster.await_models("small")
        for name in ("long", "longer"):
            cluster.run(name, epochs=4)
        until(lambda: [len(cluster.decisions(party)) for party in PARTIES] == [3, 3, 3], "decisions on both")
        assert cluster.states() == {"small": "finished", "long": "waiting", "longer": "waiting"}
        assert {each["rule"] for each in cluster.decisions("bob")[1:]} == {"policy.max_releases"}
        assert "a person at bob (policy.max_releases)" in cluster.command("runs", "show", "long")
        refused = cluster.command("runs", "refuse", "longer", "--reason", "too long", party="bob")
        assert "was refused by bob (too long)" in refused
        cluster.command("runs", "approve", "long", party="bob")
        assert cluster.states()["long"] == "waiting"
        cluster.command("runs", "approve", "long", party="cid")
        cluster.await_models("long")
        assert not (cluster.home / "bob" / "runs" / "longer").exists()
        cluster.run("last", epochs=3)
        cluster.await_models("last")
        spent = (cluster.home / "bob" / "ledger" / "accounts.json").read_text()
        cluster.run("over", epochs=3)
        cluster.await_state("over", "refused")
        assert "was refused by bob (rule guard.total_epsilon)" in cluster.command("runs", "show", "over")
        assert (cluster.home / "bob" / "ledger" / "accounts.json").read_text() == spent
        assert not (cluster.home / "bob" / "runs" / "over").exists()
        assert not (cluster.home / "server" / "runs" / "over" / "state").exists()
        assert "7 decisions, every line holds" in cluster.command("runs", "decisions", party="bob")


def test_whatever_is_killed_two_runs_at_once_end_with_the_models_of_one_shot_runs(tmp_path):
    runs = {"left": {"epochs": 40}, "right": {"epochs": 40, "seed": 8}}
    with standing(tmp_path / "run", batch_size=10) as cluster:
        cluster.stand_by()
        cluster.run("before", epochs=2)
        cluster.await_models("before")
        before = cluster.models("before")
        for name, settings in runs.items():
            cluster.run(name, **settings)
        for name in runs:
            until(lambda: cluster.child("bob", name) is not None, "bob's process")  # noqa: B023
            cluster.await_run_step(name, 10)
        cluster["server"].kill()
        cluster["bob"].kill()
        outlived = cluster.child("bob", "right")
        assert outlived is not None
        if (child := cluster.child("cid", "left")) is not None:
            os.kill(child, signal.SIGKILL)
        cluster.serve()
        cluster.up("bob")
        cluster.await_models(*runs)
        until(lambda: set(cluster.states().values()) == {"finished"}, "the end of all runs")
        for name, settings in runs.items():
            calm = one_shot_models(tmp_path / name, 150, cluster.run_toml(name, **settings), name)
            assert calm == cluster.models(name)
        assert cluster.models("before") == before


def test_a_run_that_is_stopped_ends_everywhere_and_the_next_one_runs(tmp_path):
    with standing(tmp_path / "run", batch_size=10) as cluster:
        cluster.stand_by()
        cluster.run("endless", epochs=2000)
        cluster.await_run_step("endless", 10)
        cluster.command("runs", "stop", "endless", "--reason", "wrong file", party="cid")
        assert cluster.states() == {"endless": "stopped"}
        until(lambda: not any(cluster.child(party, "endless") for party in PARTIES), "the end of its processes")
        cluster.run("next", epochs=2)
        cluster.await_models("next")
        assert cluster.states() == {"endless": "stopped", "next": "finished"}
        assert "give the run a new name" in cluster.command("run", cluster.home / "endless.toml", code=1)


def test_one_shot_parties_join_a_standing_server(tmp_path):
    with standing(tmp_path / "run", epochs=2) as cluster:
        cluster.serve()
        for party in PARTIES:
            cluster.join(party)
        for party in PARTIES:
            cluster[party].expect(0, seconds=SECONDS)
        until(lambda: cluster.states() == {"first": "finished"}, "the end of the run")
        cluster["server"].send(signal.SIGTERM)
        cluster["server"].expect(130, "goes on from here")
