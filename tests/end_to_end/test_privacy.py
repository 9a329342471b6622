"""Guards, masks and private labels in runs of real processes, undisturbed and through `kill -9`."""

import json
from collections import Counter

import numpy as np
import pytest

from fdml.privacy.accounts import AccountFile, Counts
from fdml.privacy.pairwise_masks import PAIRWISE_ID
from fdml.protocol.messages import Gradient, HeldOutPredictions, Labels, Push, SealedMetrics
from fdml.protocol.wire import decode_from_party
from fdml.protocol.wire_pb2 import Record
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal
from tests.end_to_end.cluster import RUN, Cluster, running, until

pytestmark = pytest.mark.slow
LONG = 30
THREE = ("ann", "bob", "cyd")
NOISY = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 4.0\nevaluation = "exact"\n'
BLIND = '[privacy]\nserver = "blind"\n'
PRIVATE = '[privacy]\nlabels = "private"\n'


def prepare(cluster: Cluster, run: str = "", **guards: str) -> Cluster:
    """Add to run.toml and to parties' own files; secrets are given, so that two runs draw the same noise and flips."""
    path = cluster.home / "run.toml"
    path.write_text(path.read_text() + run)
    for party in cluster.parties:
        FolderDisk(cluster.home / party / RUN / "state").replace("noise-key", party.encode().ljust(32, b"."))
        FolderDisk(cluster.home / party / "ledger").replace("label-secret", party.encode().ljust(32, b"."))
        own = cluster.home / party / "party.toml"
        own.write_text(own.read_text() + guards.get(party, ""))
    return cluster


def messages(cluster: Cluster) -> list:
    """All that the server took, as (sender, message)."""
    found = []
    for raw in Journal(FolderDisk(cluster.home / "server" / RUN / "state"), "journal").replay():
        record = Record.FromString(raw)
        found.append((record.sender, decode_from_party(record.message)))
    return found


def whole_run(home, run="", parties=("ann", "bob"), rows=400, training=None, **guards):
    with running(home, parties, rows, **({"epochs": LONG} | (training or {}))) as cluster:
        prepare(cluster, run, **guards)
        cluster.start()
        cluster.finish()
        return cluster


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The model hashes of an unprotected run of three parties."""
    return whole_run(tmp_path_factory.mktemp("calm") / "run", parties=THREE).model_hashes()


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A run in which bob puts noise on what it releases."""
    return whole_run(tmp_path_factory.mktemp("noisy") / "run", bob=NOISY)


def test_a_blind_server_gives_the_same_models_bit_by_bit(tmp_path, calm):
    cluster = whole_run(tmp_path / "run", BLIND, parties=THREE)
    assert cluster.model_hashes() == calm
    pushes = [message.release for _, message in messages(cluster) if isinstance(message, Push | HeldOutPredictions)]
    assert len(pushes) > 100
    assert all(release.mask_id for release in pushes)
    codes = np.concatenate([release.values for release in pushes])
    assert np.abs(codes.astype(np.float64)).mean() > 2.0**61, "a prediction under no mask would be far smaller"


@pytest.mark.parametrize("victim", ["server", "ann", "cyd"])
def test_a_blind_run_that_was_killed_ends_as_an_open_one_and_uses_no_mask_twice(tmp_path, calm, victim):
    with running(tmp_path / "run", THREE, epochs=LONG) as cluster:
        prepare(cluster, BLIND).start()
        cluster.await_step(40)
        cluster[victim].kill()
        cluster.serve() if victim == "server" else cluster.join(victim)
        cluster.finish()
        assert cluster.model_hashes() == calm
        used: dict = {}
        for sender, message in messages(cluster):
            if isinstance(message, Push | HeldOutPredictions):
                number = message.step if isinstance(message, Push) else message.epoch
                place = sender, type(message), number, message.release.mask_id
                assert used.setdefault(place, message.release.values.tobytes()) == message.release.values.tobytes()
        assert {mask_id for _, _, _, mask_id in used} == {PAIRWISE_ID}, "masks of pairs depend on no start"


def test_what_left_under_noise_leaves_again_as_it_was_after_a_kill(tmp_path, noisy):
    with running(tmp_path / "run", epochs=LONG) as cluster:
        prepare(cluster, bob=NOISY).start()
        cluster.await_step(40)
        cluster["bob"].kill()
        key = cluster.home / "bob" / RUN / "state" / "noise-key"
        drawn = key.read_bytes()
        key.write_bytes(b"?" * 32)
        cluster.join("bob").expect(1, "belongs to another noise key", "give the run a new name")
        key.write_bytes(drawn)
        cluster.join("bob")
        cluster.finish()
        pushes = Counter((sender, m.step) for sender, m in messages(cluster) if isinstance(m, Push))
        assert set(pushes) == {(party, step) for party in cluster.parties for step in range(16 * LONG)}
        ours, calm = (json.loads((each.home / "bob" / RUN / "privacy.json").read_text()) for each in (cluster, noisy))
        assert ours["spent"] == calm["spent"], "a resend is no new release"
        assert ours["spent"][0]["releases"] == LONG
        before = {m.step: m.release.values.tobytes() for s, m in messages(noisy) if s == "bob" and isinstance(m, Push)}
        after = {m.step: m.release.values.tobytes() for s, m in messages(cluster) if s == "bob" and isinstance(m, Push)}
        assert before == after
        (account,) = AccountFile(FolderDisk(cluster.home / "bob" / "ledger")).read().runs.values()
        assert account.counts == Counts(releases=LONG, exact=1), "counted once each, over both starts"


@pytest.mark.parametrize("victim", ["ann", "bob"])
def test_a_noisy_run_that_was_killed_ends_bit_identical(tmp_path, noisy, victim):
    with running(tmp_path / "run", epochs=LONG) as cluster:
        prepare(cluster, bob=NOISY).start()
        cluster.await_step(40)
        cluster[victim].kill()
        cluster.join(victim)
        cluster.finish()
        assert cluster.model_hashes() == noisy.model_hashes()


def test_a_spent_budget_ends_the_run_for_all_with_the_model_so_far(tmp_path):
    guard = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\nepsilon = 5.0\n'  # 5 releases come to 4.95
    with running(tmp_path / "run", epochs=LONG) as cluster:
        prepare(cluster, bob=guard).start()
        cluster.finish()
        for party in cluster.parties:
            cluster[party].expect(0, "training ended before step 80", "model in")
        cluster["bob"].expect(0, "allows 5 of 30 releases of each row", "one more release of block")
        cluster["ann"].expect(0, "the privacy budget of party 'bob' is spent")
        told = json.loads((cluster.home / "bob" / RUN / "privacy.json").read_text())["spent"][0]
        assert told["releases"] == 5
        assert told["epsilon"] <= 5.0
        assert max(m.step for s, m in messages(cluster) if s == "bob" and isinstance(m, Push)) == 79


def test_a_party_killed_after_its_budget_was_spent_says_so_again(tmp_path):
    guard = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\nepsilon = 5.0\n'
    with running(tmp_path / "run", epochs=LONG) as cluster:
        prepare(cluster, bob=guard)
        cluster.serve()
        cluster.join("bob")
        cluster.join("ann")
        cluster.await_step(60)
        cluster["bob"].kill()
        cluster["server"].kill()
        cluster.serve()
        cluster.join("bob")
        cluster.finish()
        cluster["ann"].expect(0, "the privacy budget of party 'bob' is spent")


def weigh(cluster: Cluster, *weights: float) -> None:
    """Give the label party's rows these weights in turn."""
    path, own = cluster.home / "ann" / "data.csv", cluster.home / "ann" / "party.toml"
    head, *rows = path.read_text().splitlines()
    weighed = [f"{row},{weights[at % len(weights)]}" for at, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},weight", *weighed]) + "\n")
    own.write_text(own.read_text() + 'weight = "weight"\n')


def test_shared_labels_take_a_byte_a_row_and_weights_travel_only_where_they_differ(tmp_path):
    hashes, sizes = [], []
    for number, weights in enumerate([(), (2.0,), (1.0, 2.0, 0.5)]):
        with running(tmp_path / f"{number}") as cluster:
            if weights:
                weigh(cluster, *weights)
            cluster.start()
            cluster.finish()
            hashes.append(cluster.model_hashes())
            sizes += [len(message.sealed) for _, message in messages(cluster) if isinstance(message, Labels)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert sizes == [Labels.sealed_size("binary", 1, 400, weighted=weighted) for weighted in (False, False, True)]


def test_private_labels_stay_with_the_label_party(tmp_path):
    cluster = whole_run(tmp_path / "run", PRIVATE, parties=("ann", "bob", "cyd"), rows=2000, training={"epochs": 6})
    said = [message for _, message in messages(cluster)]
    assert [message.sealed for message in said if isinstance(message, Labels)] == [b""]
    assert [message.sealed for message in said if isinstance(message, SealedMetrics)] == [b""] * 6
    gradients = [message for message in said if isinstance(message, Gradient)]
    assert len(gradients) == 80 * 6
    assert all(gradient.release.mask_id for gradient in gradients), "the server must not read labels off their signs"
    history = json.loads((cluster.home / "ann" / RUN / "history.json").read_text())
    assert len(history) == 6
    assert history[-1]["test_metric"] > 0.85
    assert not (cluster.home / "bob" / RUN / "history.json").exists()
    statement = (cluster.home / "ann" / RUN / "privacy.md").read_text()
    assert "randomised response, label epsilon 2" in statement


def test_private_labels_survive_a_kill_of_the_label_party(tmp_path):
    calm = whole_run(tmp_path / "calm", PRIVATE)
    with running(tmp_path / "run", epochs=LONG) as cluster:
        prepare(cluster, PRIVATE).start()
        cluster.await_step(40)
        cluster["ann"].kill()
        until(lambda: not cluster.statuses()["ann"].connected, "ann is away")
        cluster.join("ann")
        cluster.finish()
        assert cluster.model_hashes() == calm.model_hashes()


def test_labels_without_randomised_response_are_warned_of(tmp_path):
    cluster = whole_run(tmp_path / "run", PRIVATE + 'label_epsilon = "off"\n', training={"epochs": 1})
    cluster["ann"].expect(0, "warning: label_epsilon is off", "discloses its row's label")


def test_few_exchanges_release_each_row_so_often_and_survive_a_kill(tmp_path):
    few = 'clip = 3.0\nnoise = "gaussian"\nsigma = "auto"\nepsilon = 8.0\nevaluation = "exact"\n'
    hashes = []
    for killed in (False, True):
        with running(tmp_path / f"run-{killed}", epochs=12) as cluster:
            prepare(cluster, bob=f"[guard]\n{few}")
            cluster.change("batches_per_block = 1", "exchanges = 2")
            cluster.serve()
            cluster.join("bob")
            cluster.join("ann")
            if killed:
                until(lambda: cluster.statuses()["bob"].pushed >= 0, "bob has pushed")
                cluster["bob"].kill()
                cluster.join("bob")
            cluster.finish()
            hashes.append(cluster.model_hashes())
            pushed = [message for sender, message in messages(cluster) if sender == "bob" and isinstance(message, Push)]
            assert len({(each.step, each.release.values.tobytes()) for each in pushed}) == 2, "sent again as they were"
            told = json.loads((cluster.home / "bob" / RUN / "privacy.json").read_text())["spent"][0]
            assert (told["releases"], round(told["epsilon"], 3)) == (2, 8.0)
    assert hashes[0] == hashes[1]


def test_noise_in_training_gives_a_record_level_epsilon(tmp_path):
    guard = NOISY + "[guard.training]\nclip = 1.0\nsigma = 20.0\n[data.ranges]\nx = [-3, 3]\ny = [-3, 3]\n"
    cluster = whole_run(tmp_path / "run", training={"epochs": 4, "learning_rate": 0.1}, bob=guard)
    told = json.loads((cluster.home / "bob" / RUN / "privacy.json").read_text())["spent"][0]
    assert told["scope"].startswith("record level")
    assert 0 < told["epsilon"] < 50
    (cluster.home / "bob" / RUN / "privacy.md").read_text().index("record level")
