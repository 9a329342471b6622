"""Processes that end in the middle of a run and are started again: the run goes on, or says why it cannot."""

import json
import shutil
import signal
from contextlib import ExitStack

import pytest

from tests.end_to_end.cluster import RUN, Cluster, running, until

pytestmark = pytest.mark.slow
LONG = 30
"""Epochs of a run that can be caught in the middle."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The model hashes of a run that was left alone."""
    with running(tmp_path_factory.mktemp("calm") / "run", epochs=LONG) as cluster:
        cluster.start()
        cluster.finish()
        return cluster.model_hashes()


@pytest.fixture
def cluster(tmp_path):
    with running(tmp_path / "run", epochs=LONG) as made:
        yield made


def started(cluster: Cluster, step: int = 40) -> Cluster:
    cluster.start()
    cluster.await_step(step)
    return cluster


def bundle_files(cluster: Cluster, party: str) -> dict[str, bytes]:
    """The files of a party's bundle."""
    return {path.name: path.read_bytes() for path in (cluster.home / party / RUN / "model").iterdir()}


def test_a_killed_server_goes_on_with_the_same_command(cluster, calm):
    started(cluster)["server"].kill()
    assert cluster["ann"].code is None
    assert cluster["bob"].code is None
    cluster.serve()
    cluster.finish()
    assert cluster.model_hashes() == calm
    assert "going on with run 'first' of 320 rows" in cluster["server"].text


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_a_killed_party_goes_on_with_the_same_command(cluster, calm, party):
    started(cluster)[party].kill()
    until(lambda: not cluster.statuses()[party].connected, f"{party} is away")
    cluster.join(party)
    cluster.finish()
    assert cluster.model_hashes() == calm


def test_everyone_killed_and_started_again_in_another_order(cluster, calm):
    started(cluster)
    for member in cluster.members.values():
        member.kill()
    for party in reversed(cluster.parties):
        cluster.join(party)
    cluster.serve()
    cluster.finish()
    assert cluster.model_hashes() == calm


def test_few_bits_under_masks_survive_a_kill_of_all(tmp_path):
    """What the server has of each party is only known from what was sent before."""
    chosen = {"epochs": 15, "value_bits": 4}
    hashes = []
    for name in ("calm", "killed"):
        with running(tmp_path / name, **chosen) as cluster:
            cluster.change("[training]", '[privacy]\nserver = "blind"\n[training]')
            cluster.start()
            if name == "killed":
                cluster.await_step(12)
                for member in cluster.members.values():
                    member.kill()
                cluster.start()
            cluster.finish()
            hashes.append(cluster.model_hashes())
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("model", "joint"),
    [
        ('kind = "trees"\ntrees = 45', "sum"),
        ('kind = "trees+mlp"\ntrees = 45', "sum"),
        ('kind = "trees+mlp"\ntrees = 45\naverage = 0.95\ndropout = 0.2', "fm"),
        ('kind = "trees+mlp"\ntrees = 45', "head"),
    ],
    ids=["trees", "trees+mlp", "trees+mlp averaged under fm", "trees+mlp under head"],
)
def test_trees_survive_a_kill_of_all_in_the_middle_of_an_epoch(tmp_path, model, joint):
    """What a party of trees has collected of an epoch is in its checkpoint; the other party has a net."""
    hashes = []
    for name in ("calm", "killed"):
        with running(tmp_path / name, epochs=15) as cluster:
            cluster.change("[training]", f'[training]\njoint = "{joint}"')
            party = cluster.home / "bob" / "party.toml"
            party.write_text(party.read_text() + f"[model]\n{model}\n")
            cluster.start()
            if name == "killed":
                cluster.await_step(40)
                for member in cluster.members.values():
                    member.kill()
                cluster.start()
            cluster.finish()
            hashes.append(cluster.model_hashes())
    assert hashes[0] == hashes[1]


def test_an_older_process_is_shut_out_by_a_newer_start_and_says_so(cluster, calm, tmp_path):
    """The folder was copied to another machine, say, while the old process only seemed to be gone."""
    older = started(cluster)["bob"]
    older.send(signal.SIGSTOP)
    shutil.copytree(cluster.home / "bob", cluster.home / "bob-2")
    newer = cluster.join("bob-2")
    cluster.members["bob"] = newer
    until(lambda: cluster.statuses()["bob"].incarnation == 2, "the newer start joins")
    older.send(signal.SIGCONT)
    older.expect(1, "party 'bob' was started again since; this older process ends here")
    cluster.finish()
    assert cluster.model_hashes() == calm


def test_two_servers_do_not_share_a_port_or_a_state(cluster, tmp_path):
    cluster.serve()
    until(lambda: cluster.status().run == "first", "the server runs")
    before = (cluster.home / "server" / RUN / "run.json").read_bytes()
    with ExitStack() as stack:
        other = stack.enter_context(running(tmp_path / "other"))
        other.change(f":{other.port}", f":{cluster.port}", "federation.toml")
        others = [cluster.serve(), other.serve()]
        for each, words in zip(others, ["in use", f"cannot listen at '127.0.0.1:{cluster.port}'"], strict=True):
            each.expect(1, "fdml: ", words)
    assert (cluster.home / "server" / RUN / "run.json").read_bytes() == before
    assert cluster.status().run == "first", "the first one is still there"


def test_other_settings_are_refused_by_name_and_a_new_name_begins_at_every_side(cluster, calm):
    started(cluster)
    for party in cluster.parties:
        until((cluster.home / party / RUN / "state" / "checkpoint.1").exists, f"{party} has saved its state")
    for member in cluster.members.values():
        member.kill()
    cluster.change("epochs = 30", "epochs = 31")
    cluster.start()
    for side in ("server", *cluster.parties):
        cluster[side].expect(1, "training.epochs is 31 here, 30 when run 'first' began; give it a new name")
    cluster.change("epochs = 31", "epochs = 30")
    cluster.change('name = "first"', 'name = "second"')
    cluster.start()
    cluster.finish()
    assert "going on" not in cluster["server"].text
    assert not any((cluster.home / party / RUN / "model").exists() for party in cluster.parties)
    cluster.change('name = "second"', 'name = "first"')
    cluster.start()
    cluster.finish()
    assert cluster.model_hashes() == calm


def test_state_lost_at_one_side_is_refused_with_what_to_do(tmp_path):
    with running(tmp_path / "run", epochs=5000) as cluster:
        started(cluster)
        until((cluster.home / "bob" / RUN / "state" / "checkpoint.0").exists, "bob has saved its state twice")
        cluster.await_step(cluster.statuses()["bob"].served + 20)
        cluster["bob"].kill()
        cluster.lose_state("bob")
        cluster.join("bob").expect(1, "its state was lost", "a new name")
        cluster["server"].kill()
        cluster.lose_state("server")
        cluster.serve()
        said = "the server was started over or has lost its state; put back the newest state of both, or give the run"
        cluster["ann"].expect(1, said)


def test_a_party_that_means_another_run_is_told_so(cluster):
    other = cluster.home / "bob" / "other.toml"
    other.write_text((cluster.home / "run.toml").read_text().replace("[training]", "[training]\nseed = 9"))
    cluster.serve()
    cluster.join("ann")
    until(lambda: cluster.statuses()["ann"].connected, "ann has joined")
    cluster.join("bob", "--run", str(other)).expect(
        1, "training.seed is 9 at party 'bob', 7 when run 'first' began", "give the run a new name, or put it back"
    )
    assert cluster["ann"].code is None
    assert cluster.status().refused == {"mismatch": 1}


def test_a_finished_run_is_not_trained_again(cluster, calm):
    cluster.start()
    cluster.finish()
    models = {party: bundle_files(cluster, party) for party in cluster.parties}
    cluster.start()
    cluster.finish()
    assert cluster.model_hashes() == calm
    assert "was finished before" in cluster["server"].text
    for party in cluster.parties:
        assert "had finished before" in cluster[party].text
        assert str(cluster.home / party / RUN / "model") in "".join(cluster[party].text.split())
        assert bundle_files(cluster, party) == models[party]


def test_a_party_that_was_cut_off_at_the_very_end_still_learns_that_all_is_stored(cluster, calm):
    """It is killed before it hears that the server has everything, and started again while the server says farewell."""
    cluster.start()
    stored = cluster.home / "bob" / RUN / "state" / "result"
    until(stored.exists, "bob has trained to the end")
    cluster["bob"].kill()
    cluster.join("bob")
    cluster.finish()
    assert cluster.model_hashes() == calm


def test_a_server_started_again_after_the_end_waits_for_a_party_that_does_not_know_yet(cluster, calm):
    """Its last acknowledgement was lost with the server: the party asks until the server is back."""
    cluster.start()
    cluster.finish()
    stored = cluster.home / "bob" / RUN / "state" / "result"
    result = json.loads(stored.read_text())
    assert result["reported"]
    stored.write_text(json.dumps(result | {"reported": False}))
    cluster.join("bob")
    until(lambda: "a new name" in cluster["bob"].text or "aligned" in cluster["bob"].text, "bob has started")
    cluster.serve()
    cluster.finish()
    assert json.loads(stored.read_text())["reported"]
    assert "no longer there" not in cluster["bob"].text
    assert cluster.model_hashes() == calm
