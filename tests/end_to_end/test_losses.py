"""Counts and quantiles over real processes: a killed party, figures, the report and predictions."""

import json

import numpy as np
import pytest

import fdml
from tests.end_to_end.cluster import RUN, Cluster, Started, running, until

pytestmark = pytest.mark.slow
LOSSES = {"poisson": 'loss = "poisson"', "quantile": 'loss = "quantile"\nquantile = 0.4'}
FIGURES = {
    "poisson": ["d2", "poisson_deviance", "mae"],
    "quantile": ["d2", "pinball_loss", "coverage", "mae"],
}
NAMES = {"poisson": "Poisson deviance", "quantile": "pinball loss"}


def counted(cluster: Cluster, loss: str) -> Cluster:
    """The run with counts for labels: 3 or 0."""
    cluster.change('label_party = "ann"\n', f'label_party = "ann"\ntask = "regression"\n{LOSSES[loss]}\n')
    cluster.change(",yes\n", ",3\n", "ann/data.csv")
    cluster.change(",no\n", ",0\n", "ann/data.csv")
    return cluster


@pytest.mark.parametrize("loss", LOSSES)
def test_a_killed_party_goes_on_and_all_is_told_in_the_losses_own_figures(tmp_path, loss):
    hashes = []
    for name in ("calm", "killed"):
        with running(tmp_path / name, epochs=12) as cluster:
            counted(cluster, loss).start()
            if name == "killed":
                cluster.await_step(30)
                cluster["bob"].kill()
                until(lambda made=cluster: not made.statuses()["bob"].connected, "bob is away")
                cluster.join("bob")
            cluster.finish()
            hashes.append(cluster.model_hashes())
    assert hashes[0] == hashes[1]
    card = json.loads((tmp_path / "killed" / "ann" / RUN / "model" / "card.json").read_text())
    assert list(card["figures"]) == FIGURES[loss]
    assert card["figures"]["d2"] > 0.1
    assert card["metrics"]["test_metric"] == card["figures"]["d2"]
    assert card["compared"]["metric"] == "d2"
    made = tmp_path / "report.html"
    Started(tmp_path / "report.log", "report", tmp_path / "killed" / "ann" / "party.toml", "--out", made).expect(0)
    assert NAMES[loss] in made.read_text()
    table = fdml.predict(tmp_path / "killed" / "federation.toml", [str(number) for number in range(20)])
    score, value = table["score"].to_numpy(), table["prediction"].to_numpy().astype(float)
    if loss == "poisson":
        ratio = value / np.exp(score)
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
    else:
        slope = np.diff(value) / np.diff(score)
        np.testing.assert_allclose(slope, slope[0], rtol=1e-9)
