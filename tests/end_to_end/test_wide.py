"""A party in column groups in real runs of two parties: the same models whoever works, and one bundle that predicts."""

import csv

import numpy as np
import pyarrow as pa
import pytest

from fdml.models.bundle import Bundle
from fdml.models.bundle_model import bundle_model
from fdml.models.column_groups import GroupedModel
from tests.end_to_end.cluster import RUN, running
from tests.end_to_end.test_shards import finish_with_kills

pytestmark = pytest.mark.slow
GROUPS = (
    '[model]\nkind = "mlp"\nhidden = [4]\n[model.column_groups]\nfirst = ["x"]\nsecond = ["y"]\n'
    '[workers]\nkind = "{}"\ncount = 2\n'
)


def begin(cluster, groups):
    cluster.change("[align]", groups + "[align]", "ann/party.toml")
    cluster.start()


def test_a_wide_party_ends_with_the_same_model_whoever_works_and_is_killed_and_its_bundle_predicts(tmp_path):
    with running(tmp_path / "threads", epochs=12, batches_per_block=4) as cluster:
        begin(cluster, GROUPS.format("threads"))
        cluster.finish()
        expected = cluster.model_hashes()
    with running(tmp_path / "processes", epochs=12, batches_per_block=4) as cluster:
        begin(cluster, GROUPS.format("processes"))
        finish_with_kills(cluster)
        assert cluster.model_hashes() == expected
        assert_the_bundle_predicts(cluster)


def assert_the_bundle_predicts(cluster):
    """One bundle, by whose encoder and model any row of the table is predicted: the sum of both groups."""
    bundle = Bundle.load(cluster.home / "ann" / RUN / "model")
    model = bundle_model(bundle, 1)
    assert isinstance(model, GroupedModel)
    assert [len(each) for each in model.features] == [1, 1]
    with (cluster.home / "ann" / "data.csv").open() as file:
        table = list(csv.DictReader(file))[:5]
    frame = pa.table({name: [float(row[name]) for row in table] for name in ("x", "y")})
    found = model.predict(bundle.encoder.encode(frame))
    assert found.shape == (5, 1)
    assert np.isfinite(found).all()
    assert np.ptp(found) > 0.0
