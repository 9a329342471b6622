"""The measurements of joint beside pooled, on few rows: that they measure what they say, not how fast it is."""

import numpy as np
import pytest

from benchmarks import scaling as growth
from benchmarks.cluster import history_of
from benchmarks.scaling import Size, exponent
from benchmarks.sparse_run import write_run
from benchmarks.speed import SPLITS, baselines_for, joint_pass, make_data, pooled_auc, pooled_for, pooled_sample
from fdml.data.rows import width


@pytest.mark.parametrize("split", SPLITS)
def test_every_row_has_its_non_zeros_at_each_party(split):
    data = make_data(500, split)
    assert [part.nnz / 500 for part in data.parts] == list(SPLITS[split])
    assert [len(np.unique(part.indices.reshape(500, -1)[7])) for part in data.parts] == list(SPLITS[split])
    assert 0.3 < data.labels.mean() < 0.7


def test_pooled_training_learns_from_every_row_in_the_time_it_gives():
    pooled = pooled_sample(make_data(3000, "48/7/5"))
    assert width(pooled.parts["pooled"]) == 8700
    assert len(pooled) == 2985
    solo = pooled_for(pooled, "linear")
    assert solo.epoch() > 0
    right = (solo.model.predict(pooled.parts["pooled"])[:, 0] > 0) == pooled.labels
    assert right.mean() > 0.7


def test_the_rivals_are_timed_over_as_many_rows():
    baselines = baselines_for(pooled_sample(make_data(3000, "20/20/20")))
    assert all(0 < work() < 30 for work in baselines.values())


@pytest.mark.slow
def test_a_joint_run_is_aligned_once_and_trained_anew_each_time(tmp_path):
    home = tmp_path / "run"
    write_run(home, make_data(4000, "20/20/20"), "linear", epochs=3, batches_per_block=8, passes=2)
    assert joint_pass(home) > 0
    before = (home / "p1" / "runs" / "first" / "state" / "alignment").stat().st_mtime_ns
    assert joint_pass(home) > 0
    assert (home / "p1" / "runs" / "first" / "state" / "alignment").stat().st_mtime_ns == before
    history = history_of(home)
    assert joint_pass(home) < history[3].seconds, "a part of one epoch, not the whole training"
    assert abs(pooled_auc(home, 6) - history[3].test_metric) < 0.25, "of the same rows, of which few are held out"


def test_the_exponent_is_the_slope_on_log_axes():
    assert exponent([1, 10, 100], [3, 300, 30000]) == pytest.approx(2.0)
    assert exponent([1, 2, 4], [5, 5, 5]) == pytest.approx(0.0)


@pytest.mark.slow
def test_a_point_of_growth_counts_time_memory_and_bytes():
    point = growth.measure(Size(rows=3000, parties=2, entries=5, scores=3, width=50))
    assert point.seconds > 0
    assert 50 < point.party_memory < 2000
    assert 3000 * 3 * 2 < point.sent < 3000 * 3 * 2 * 1.5
