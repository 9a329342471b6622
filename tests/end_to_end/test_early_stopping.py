"""Early stopping of real processes: wherever one is killed, all keep the same epoch and the same bits."""

import json

import pytest

from tests.end_to_end.cluster import RUN, running, until

pytestmark = pytest.mark.slow
STOP_AFTER, EPOCHS = 12, 60


@pytest.fixture
def runs(tmp_path):
    """Two runs of the same files: a step so large that the held-out loss soon rises."""
    with (
        running(tmp_path / "calm", epochs=EPOCHS, learning_rate=8.0) as calm,
        running(tmp_path / "killed", epochs=EPOCHS, learning_rate=8.0) as killed,
    ):
        for cluster in (calm, killed):
            cluster.change("[training]\n", f"[evaluation]\nstop_after = {STOP_AFTER}\n[training]\n")
        yield calm, killed


def history(cluster):
    return json.loads((cluster.home / "ann" / RUN / "history.json").read_text())


def without_seconds(rows):
    compared = [{**row, "compared": {**(row.get("compared") or {}), "seconds": 0.0}} for row in rows]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in compared]


def test_a_run_that_ends_early_ends_with_the_same_models_whoever_is_killed(runs):
    calm, killed = runs
    calm.start()
    calm.finish()
    (best,) = [row["epoch"] for row in history(calm) if row["chosen"]]
    assert best + STOP_AFTER < EPOCHS
    for party in calm.parties:
        assert f"{party}: keeps the model of epoch {best}" in calm[party].text
    said = " ".join(calm["ann"].text.split())
    assert "the loss of held-out rows falls no more" in said
    assert "have chosen this epoch, so their figures are a little too good" in said
    assert "'yes' is 1, 'no' is 0" in said
    assert f"held-out rows, model of epoch {best}: AUC 0." in said

    killed.start()
    killed.await_step(60)
    killed["ann"].kill()
    until(lambda: not killed.statuses()["ann"].connected, "ann is away")
    killed.join("ann")
    killed.await_step(110)
    killed["server"].kill()
    killed.serve()
    killed.await_step(150, "bob")
    killed["bob"].kill()
    until(lambda: not killed.statuses()["bob"].connected, "bob is away")
    killed.join("bob")
    killed.finish()
    assert killed.model_hashes() == calm.model_hashes()
    assert without_seconds(history(killed)) == without_seconds(history(calm))
