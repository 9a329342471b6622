"""Month by month, as real processes: one command at one party trains on new files, tests out of time, and promotes."""

import json
import os
import signal

import numpy as np
import pytest

from tests.end_to_end.cluster import until, write_csv
from tests.end_to_end.standing import PARTIES, SECONDS, standing

pytestmark = pytest.mark.slow


def put_month(cluster, month):
    """New files in place at every party: a month that no training has seen, as its test rows."""
    random = np.random.default_rng(month)
    X = random.normal(size=(120, 2 * len(PARTIES)))
    labels = np.where(X.sum(axis=1) + random.normal(size=120) > 0, "yes", "no")
    for number, party in enumerate(PARTIES):
        columns = {"id": 1000 * month + np.arange(120), "x": X[:, 2 * number], "y": X[:, 2 * number + 1]}
        if number == 0:
            columns["label"] = labels
        write_csv(cluster.home / party / f"{month}.csv", columns, random.permutation(120))
        path = cluster.home / party / "party.toml"
        kept = [line for line in path.read_text().splitlines() if not line.startswith("test_path")]
        place = kept.index('path = "data.csv"') + 1
        path.write_text("\n".join([*kept[:place], f'test_path = "{month}.csv"', *kept[place:]]) + "\n")


def write_run(cluster, *, at_least, epochs=4):
    """The run.toml of every month: it goes on from what is promoted."""
    text = cluster.run_toml("monthly", epochs=epochs, batch_size=10)
    path = cluster.home / "monthly.toml"
    head, _, tail = text.partition("[training]")
    path.write_text(f'{head}from = "promoted"\n[promotion]\nat_least = {at_least}\n[training]{tail}')
    return path


def promoted(cluster):
    """The promoted version at every party."""
    files = [json.loads((cluster.home / party / "promoted.json").read_text()) for party in PARTIES]
    return [(each["promotions"][-1]["run"], each["promotions"][-1]["version"]) for each in files]


def version(cluster, name):
    cards = [
        json.loads((cluster.home / party / "runs" / name / "model" / "card.json").read_text()) for party in PARTIES
    ]
    (found,) = {card["version"] for card in cards}
    return found


def test_one_command_a_month_trains_compares_and_promotes_at_every_party(tmp_path):
    with standing(tmp_path / "run", rows=150) as cluster:
        cluster.stand_by()
        cluster.run("2026-10", epochs=2)
        cluster.await_models("2026-10")
        monthly = write_run(cluster, at_least=-1.0)
        said = cluster.command("run", monthly, "--name", "2026-11", code=1)
        assert "from is 'promoted', and nothing is promoted" in said
        for party in PARTIES:
            cluster.command("runs", "promote", "2026-10", party=party)
        put_month(cluster, 11)
        cluster.command("run", monthly, "--name", "2026-11", "--wait")
        cluster.await_models("2026-11")
        until(lambda: promoted(cluster) == [("2026-11", version(cluster, "2026-11"))] * 3, "the promotion")
        compared = cluster.command("runs", "compare")
        assert "2026-11: joint " in compared
        assert f"over version {version(cluster, '2026-10')[:8]} (run 2026-10)" in compared
        put_month(cluster, 12)
        cluster.command("run", write_run(cluster, at_least=0.9), "--name", "2026-12", "--wait")
        cluster.await_models("2026-12")
        assert promoted(cluster) == [("2026-11", version(cluster, "2026-11"))] * 3, "the rule keeps the version before"
        card = json.loads((cluster.home / "ann" / "runs" / "2026-12" / "model" / "card.json").read_text())
        assert card["earlier"]["promoted"] is False
        assert card["earlier"]["version"] == version(cluster, "2026-11")
        assert card["earlier"]["rows"] == 120
        rolled = cluster.command("runs", "promote", "2026-10", "--reason", "complaints")
        assert "of run '2026-10' is promoted" in rolled
        listed = cluster.command("runs", "versions")
        assert "2026-11 (" in listed
        assert "was promoted by rule" in listed
        assert "was promoted by person: complaints" in listed


def test_killed_parties_end_a_warm_start_with_the_models_of_an_undisturbed_one(tmp_path):
    with standing(tmp_path / "run", rows=150, batch_size=10) as cluster:
        cluster.stand_by()
        cluster.run("first", epochs=2)
        cluster.await_models("first")
        for party in PARTIES:
            cluster.command("runs", "promote", "first", party=party)
        put_month(cluster, 11)
        monthly = write_run(cluster, at_least=-1.0, epochs=30)
        cluster.command("run", monthly, "--name", "calm", "--wait")
        cluster.await_models("calm")
        for party in PARTIES:
            cluster.command("runs", "promote", "first", party=party)
        cluster.command("run", monthly, "--name", "rough")
        cluster.await_run_step("rough", 10)
        for party in PARTIES:
            if (child := cluster.child(party, "rough")) is not None:
                os.kill(child, signal.SIGKILL)
        cluster.await_models("rough")
        assert cluster.models("rough") == cluster.models("calm")
        assert promoted(cluster) == [("rough", version(cluster, "rough"))] * 3
        cards = [
            json.loads((cluster.home / "ann" / "runs" / name / "model" / "card.json").read_text())["earlier"]
            for name in ("calm", "rough")
        ]
        assert cards[0] == cards[1]


def test_a_party_that_does_not_hold_the_version_refuses_with_its_name(tmp_path):
    with standing(tmp_path / "run", rows=150) as cluster:
        cluster.stand_by()
        cluster.run("first", epochs=2)
        cluster.await_models("first")
        cluster.await_state("first", "finished")
        until(lambda: "run 'first' is done" in cluster["cid"].text, "cid's process of the run to end", SECONDS)
        wanted = version(cluster, "first")
        for path in sorted((cluster.home / "cid" / "runs" / "first").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        path = cluster.home / "next.toml"
        path.write_text('from = "first"\n' + cluster.run_toml("next", epochs=2))
        said = cluster.command("run", path, "--wait", code=1)
        assert f"was refused by cid (rule from.{wanted})" in said
        assert not (cluster.home / "bob" / "runs" / "next" / "state").exists()
