import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.kernels import (  # noqa: E402
    KINDS,
    TARGETS,
    Sizes,
    model_of,
    run,
    schedule_of,
    sparse_dataset,
    trainer_of,
    updates_of,
)
from benchmarks.torch_baselines import batches_of, one_thread  # noqa: E402

TINY = Sizes(
    rows=250, width=40, entries=6, batch_size=20, batches_per_block=4, factors=3, hidden=5, torch_batches=3, rounds=2
)


def test_rows_have_distinct_features_in_range():
    rows, labels = sparse_dataset(TINY)
    indices = rows.indices.reshape(TINY.rows, TINY.entries)
    assert np.all(np.diff(indices, axis=1) > 0)
    assert indices.min() >= 0
    assert indices.max() < TINY.width
    assert 0.3 < labels.mean() < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fdml_and_torch_do_the_same_work(kind):
    rows, labels = sparse_dataset(TINY)
    updates = updates_of(schedule_of(TINY), labels)
    model = model_of(kind, TINY)
    twin = trainer_of(model, kind, TINY, sparse=False)
    batches = batches_of(rows, updates)
    for update in updates:
        model.learn(rows, *update)
    twin.learn(batches)
    chosen = updates[0][0].start + updates[0][0].batch(0)
    np.testing.assert_allclose(twin.predict(batches[0]), model.predict(rows)[chosen, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_gradients_differ_from_dense_ones_by_the_l2_alone(kind):
    rows, labels = sparse_dataset(TINY)
    batches = batches_of(rows, updates_of(schedule_of(TINY), labels))
    model = model_of(kind, TINY)
    sparse, dense = (trainer_of(model, kind, TINY, sparse=sparse) for sparse in (True, False))
    sparse.learn(batches)
    dense.learn(batches)
    np.testing.assert_allclose(sparse.predict(batches[0]), dense.predict(batches[0]), rtol=1e-2, atol=1e-3)


def test_a_whole_epoch_is_cut_into_batches_for_torch():
    rows, labels = sparse_dataset(TINY)
    schedule = schedule_of(TINY)
    batches = batches_of(rows, updates_of(schedule, labels))
    assert len(batches) == schedule.updates
    assert sum(len(batch.labels) for batch in batches) == TINY.rows


@pytest.mark.slow
def test_the_report_has_every_contender_and_ratio():
    heard: list[str] = []
    report = run(heard.append, TINY)
    read = json.loads(json.dumps(report.as_json()))
    assert heard[-1] == "round 2 of 2"
    names = [row["contender"] for row in read["results"]]
    assert {
        "fdml linear",
        "fdml fm",
        "fdml mlp",
        "torch mlp, sparse gradients",
        "scikit-learn linear, in order",
    } <= set(names)
    assert len(names) == len(set(names)) == 12
    assert all(0 < row["min"] <= row["median"] <= row["max"] for row in read["results"])
    assert {row["unit"] for row in read["results"]} == {"us per batch"}
    assert set(TARGETS) <= set(read["ratios"])
    for name, found in read["ratios"].items():
        assert 0 < found["min"] <= found["median"] <= found["max"]
        assert found.get("target") == TARGETS.get(name)
        assert found["baseline"] in names


def test_torch_gets_its_threads_back():
    before = torch.get_num_threads()
    with one_thread():
        inside = torch.get_num_threads()
    assert (inside, torch.get_num_threads()) == (1, before)


def test_torch_gets_its_threads_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    assert torch.get_num_threads() == before
