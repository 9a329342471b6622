"""`fdml tune` between parties that stand by, as real processes, and on one machine."""

import json
import signal

import pytest

from tests.cli.commands import succeed
from tests.end_to_end.cluster import until, write_run
from tests.end_to_end.standing import PARTIES, POLICY, SECONDS, standing

pytestmark = pytest.mark.slow

TUNE = """
name = "rates"
[search]
training.epochs = [2, 4]
training.learning_rate = ["auto", 0.05]
models.ann.l2 = [0.01]
"""


def write_tune(cluster, text=TUNE):
    path = cluster.home / "tune.toml"
    path.write_text(text)
    return path


def test_a_search_at_standing_parties_goes_on_after_a_crash_and_keeps_to_every_policy(tmp_path):
    policies = {"ann": POLICY, "bob": POLICY + "tuning = 10\n", "cid": POLICY + "tuning = 3\n"}
    with standing(tmp_path / "run", policies=policies) as cluster:
        cluster.stand_by()
        tune, party = write_tune(cluster), cluster.home / "ann" / "party.toml"
        first = cluster._start("tune", type(cluster["bob"]), "tune", tune, "--party", party)
        until(lambda: (cluster.home / "ann" / "runs" / "rates-2").exists(), "the second run", SECONDS)
        first.kill()
        before = (cluster.home / "ann" / "runs" / "rates-1" / "model" / "card.json").read_bytes()
        found, plot, best = (tmp_path / name for name in ("found.json", "plot.png", "best.toml"))
        options = ("--wait", "5", "--json", found, "--plot", plot, "--best", best)
        said = cluster.command("tune", tune, *options)
        result = json.loads(found.read_text())
        assert [run["state"] for run in result["runs"]] == ["finished"] * 3 + ["waiting"]
        assert "rates-4: waiting: for a person at cid (policy.tuning)" in said
        assert (cluster.home / "ann" / "runs" / "rates-1" / "model" / "card.json").read_bytes() == before
        finished = {run["name"]: run["figures"]["auc"] for run in result["runs"][:3]}
        assert result["best"] == max(finished, key=finished.get)
        assert f"best by AUC: {result['best']}" in said
        assert "the best of many on the same held-out rows is too good" in said
        assert result["spent"]["ann"] == {"releases": 2 + 2 + 4, "epsilon": None, "delta": 1e-5}
        assert "released each row at most 8 times, without noise" in said
        assert plot.read_bytes().startswith(b"\x89PNG")
        assert "model] of the party.toml of ann: l2 = 0.01" in best.read_text()
        for each in PARTIES:
            assert len(list((cluster.home / each / "alignments").glob("*/generation-*"))) == 1
        cluster.command("runs", "approve", "rates-4", party="cid")
        cluster.command("tune", tune, "--json", found)
        assert [run["state"] for run in json.loads(found.read_text())["runs"]] == ["finished"] * 4
        assert sorted(cluster.states()) == [f"rates-{number}" for number in range(1, 5)]


def test_runs_that_fail_or_are_refused_are_shown_and_do_not_end_the_search(tmp_path):
    take_all = POLICY + "tuning = 10\n"
    limited = POLICY + "tuning = 10\nmax_releases = 3\ntotal_releases = 6\n" + 'otherwise = "refuse"\n'
    policies = {"ann": take_all, "bob": limited, "cid": take_all}
    text = 'name = "wild"\nrun_seconds = 300\n[search]\ntraining.learning_rate = [1e9, 0.1]\ntraining.epochs = [3, 4]\n'
    with standing(tmp_path / "run", policies=policies) as cluster:
        cluster.stand_by()
        found = tmp_path / "found.json"
        said = cluster.command("tune", write_tune(cluster, text), "--json", found)
        result = json.loads(found.read_text())
        assert [run["state"] for run in result["runs"]] == ["failed", "refused", "finished", "refused"]
        assert "learning_rate 1e+09 times l2" in result["runs"][0]["reason"]
        assert cluster.states()["wild-1"] == "stopped"
        assert result["runs"][1]["reason"] == "by bob: rule policy.max_releases"
        assert result["best"] == "wild-3"
        assert "wild-2: refused: by bob: rule policy.max_releases" in said
        for party in PARTIES:
            cluster[party].send(signal.SIGTERM)
            cluster[party].expect(130, "goes on from here")


def test_a_random_search_on_one_machine(tmp_path, warm_starts):
    home = tmp_path / "run"
    write_run(home, 0, ("ann", "bob"), 200, {})
    text = 'name = "draw"\nmethod = "random"\nruns = 2\n[search.training]\nepochs = {low = 1, high = 4}\nlearning_rate = {low = 0.01, high = 1.0, scale = "log"}\n'
    (home / "tune.toml").write_text(text)
    said = succeed("tune", home / "tune.toml", "--simulate", "--json", tmp_path / "found.json")
    result = json.loads((tmp_path / "found.json").read_text())
    assert [run["state"] for run in result["runs"]] == ["finished"] * 2
    assert set(result["spent"]) == {"ann", "bob"}
    assert "draw-1" in said
    assert "training.learning_rate" in said
