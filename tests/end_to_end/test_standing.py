"""A server and parties that stand by: runs started from one party, decided by policy or a person, killed and gone on."""

import json
import os
import random
import signal
import time

import pytest

from fdml.privacy.ledger import Mechanism, epsilon_of
from tests.end_to_end.cluster import Terminal, until
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
        found = {each["name"]: each for each in json.loads(compared.read_text())["runs"]}
        assert set(found) == set(FIVE)
        assert all(each["gain"] is not None for each in found.values()), "what it brings over ann alone"
        assert all(f"run {name!r}, bob: joined" in cluster["server"].text for name in FIVE)
        for party in PARTIES:
            cluster[party].send(signal.SIGTERM)
            cluster[party].expect(130, "goes on from here")
        for name, settings in FIVE.items():
            alone = one_shot_models(tmp_path / name, 150, cluster.run_toml(name, **settings), name)
            assert alone == cluster.models(name)


def test_of_ten_percent_new_rows_only_their_tokens_travel_and_old_rows_keep_order_and_split(tmp_path):
    with standing(tmp_path / "run", epochs=2) as cluster:
        cluster.stand_by(kind=Terminal)  # as a user starts them
        cluster.run("before")
        cluster.await_models("before")
        splits, tokens = {party: cluster.split(party, "before") for party in PARTIES}, cluster.tokens()
        cluster.add_rows(1000, 15)
        cluster.run("after")
        cluster.await_models("after")
        for party in PARTIES:
            train, held_out = cluster.split(party, "after")
            assert train[: len(splits[party][0])] == splits[party][0], "old rows keep their order"
            assert held_out[: len(splits[party][1])] == splits[party][1], "held-out rows stay held out"
            assert {*train, *held_out} == {*splits[party][0], *splits[party][1], *map(str, range(1000, 1015))}
        new = cluster.tokens() - tokens
        assert abs(tokens - new - len(PARTIES) * 16 * (150 - 15)) < 100, "16 bytes for each new row alone"
        said = (cluster.home / "bob" / "runs" / "after" / "join.log").read_text()
        assert "15 new rows, 0 gone; the others keep their order and split" in said


def test_runs_outside_the_policy_wait_are_approved_or_refused_and_overspending_is_refused(tmp_path):
    limited = POLICY + "max_releases = 3\n"
    policies = {"ann": POLICY, "bob": SPENDING.format(total=worth(17)) + limited, "cid": limited}
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
        for name in ("third", "fourth", "fifth"):
            cluster.run(name, epochs=3)
        cluster.await_models("third", "fourth", "fifth")
        budget = cluster.budget("bob")
        runs = {run["run"]: run["releases"] for account in budget["accounts"] for run in account["runs"]}
        assert runs == {"small": 3, "long": 4, "third": 3, "fourth": 3, "fifth": 3}
        assert budget["spent"]["direct"] == pytest.approx(worth(16), rel=1e-9), "the accounts add up"
        assert budget["left"] == pytest.approx(worth(17) - worth(16), rel=1e-6)
        spent = (cluster.home / "bob" / "ledger" / "accounts.json").read_text()
        over = cluster.command("run", cluster.write_run_toml("over", epochs=3), code=1)
        assert "run 'over' of ann was refused by bob (rule guard.total_epsilon)" in over
        assert "was refused by bob (rule guard.total_epsilon)" in cluster.command("runs", "show", "over")
        assert (cluster.home / "bob" / "ledger" / "accounts.json").read_text() == spent
        assert not (cluster.home / "bob" / "runs" / "over").exists()
        assert not (cluster.home / "server" / "runs" / "over" / "state").exists()
        assert "9 decisions, every line holds" in cluster.command("runs", "decisions", party="bob")


def kill_something(cluster, chance, runs):
    """`kill -9` of a standing process, which is started again, or of a run's process, which is started again for us."""
    victim = chance.choice(("server", *PARTIES, "run", "run"))
    if victim == "run":
        child = cluster.child(chance.choice(PARTIES), chance.choice(sorted(runs)))
        if child is not None:
            os.kill(child, signal.SIGKILL)
        return
    cluster[victim].kill()
    cluster.serve() if victim == "server" else cluster.up(victim)


def test_runs_that_are_killed_at_random_from_their_start_on_end_with_the_models_of_one_shot_runs(tmp_path):
    runs, chance = {"left": {"epochs": 20}, "right": {"epochs": 20, "seed": 8}}, random.Random(15)
    with standing(tmp_path / "run", batch_size=10) as cluster:
        cluster.stand_by()
        cluster.run("before", epochs=2)
        cluster.await_models("before")
        before = cluster.models("before")
        for name, settings in runs.items():
            cluster.run(name, **settings)
            for _ in range(4):
                kill_something(cluster, chance, runs)
                time.sleep(chance.uniform(0.1, 1.0))
        cluster.await_models(*runs)
        for name, settings in runs.items():
            calm = one_shot_models(tmp_path / name, 150, cluster.run_toml(name, **settings), name)
            assert calm == cluster.models(name)
        assert cluster.models("before") == before, "old runs are still there"
        until(lambda: list(cluster.states().values()) == ["finished"] * 3, "the end of all runs", SECONDS)


def test_whatever_is_killed_two_runs_at_once_end_with_the_models_of_one_shot_runs(tmp_path):
    runs = {"left": {"epochs": 40}, "right": {"epochs": 40, "seed": 8}}
    with standing(tmp_path / "run", batch_size=10) as cluster:
        cluster.stand_by()
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
