"""The smallest whole run of real processes: a server and two parties over TLS, quick enough to run every time."""

import json

import numpy as np

from fdml.models.bundle import Bundle
from tests.end_to_end.cluster import RUN, running


def test_a_server_and_two_parties_train_to_the_end_and_write_their_bundles(tmp_path):
    with running(tmp_path / "run", rows=200, epochs=2) as cluster:
        cluster.serve("--json", str(tmp_path / "run.json"))
        for party in cluster.parties:
            cluster.join(party, "--json", str(tmp_path / f"{party}.json"))
        cluster.finish(seconds=300)
    figures = json.loads((tmp_path / "run.json").read_text())
    assert figures["evaluated"] == [1, 2]
    assert figures["alignment"]["shared_rows"] == 200
    versions = set()
    for party in cluster.parties:
        bundle = Bundle.load(cluster.home / party / RUN / "model")
        assert bundle.card.party == party
        assert all(np.isfinite(array).all() for array in bundle.parameters.values())
        versions.add(bundle.card.version)
        assert json.loads((tmp_path / f"{party}.json").read_text())["model_path"] == str(
            cluster.home / party / RUN / "model"
        )
    assert len(versions) == 1, "one run, one version"
