"""Ranking within groups over real processes: a killed label party, figures, the report, evaluation and predictions."""

import json

import numpy as np
import pytest

import fdml
from tests.end_to_end.cluster import RUN, Cluster, Started, running, until
from tests.end_to_end.test_privacy import PRIVATE, prepare

pytestmark = pytest.mark.slow


def ranked(cluster: Cluster) -> Cluster:
    """The run with groups of about 20 rows at the label party."""
    cluster.change('label_party = "ann"\n', 'label_party = "ann"\nloss = "pairwise"\n')
    path = cluster.home / "ann" / "data.csv"
    head, *rows = path.read_text().splitlines()
    at = head.split(",").index("id")
    grouped = [f"{row},shop {int(row.split(',')[at].strip(chr(34))) % 20}" for row in rows]
    path.write_text("\n".join([f"{head},query", *grouped]) + "\n")
    cluster.change('label = "label"\n', 'label = "label"\ngroup = "query"\n', "ann/party.toml")
    return prepare(cluster, PRIVATE)


def test_a_killed_label_party_goes_on_and_all_is_told_by_the_order_within_groups(tmp_path):
    hashes = []
    for name in ("calm", "killed"):
        with running(tmp_path / name, epochs=12) as cluster:
            ranked(cluster).start()
            if name == "killed":
                cluster.await_step(30)
                cluster["ann"].kill()
                until(lambda made=cluster: not made.statuses()["ann"].connected, "ann is away")
                cluster.join("ann")
            cluster.finish()
            hashes.append(cluster.model_hashes())
    assert hashes[0] == hashes[1]
    ann = tmp_path / "killed" / "ann"
    card = json.loads((ann / RUN / "model" / "card.json").read_text())
    assert list(card["figures"]) == ["group_auc", "ndcg"]
    assert card["figures"]["group_auc"] > 0.7
    assert card["metrics"]["test_metric"] == card["figures"]["group_auc"]
    assert card["compared"]["metric"] == "group_auc"
    history = json.loads((ann / RUN / "history.json").read_text())
    assert history[-1]["figures"]["ndcg"] == pytest.approx(card["figures"]["ndcg"])
    made = tmp_path / "report.html"
    Started(tmp_path / "report.log", "report", ann / "party.toml", "--out", made).expect(0)
    assert "AUC within groups" in made.read_text()
    table = fdml.predict(tmp_path / "killed" / "federation.toml", [str(number) for number in range(20)])
    np.testing.assert_array_equal(table["prediction"].to_numpy().astype(float), table["score"].to_numpy())
