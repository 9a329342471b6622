"""What every source of a party's rows must pass: files, arrays in memory, and the rows of the simulator."""

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, row_count, to_dense
from fdml.data.rows import width as width_of
from fdml.experiments.in_memory import RowsInMemory
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.data import PartyData
from simulator.scenarios import Scenario
from tests.contracts.party_folders import party_folder

ROWS = 12
DIGEST, KEY = b"d" * 32, GroupKey(b"k" * 32)


@dataclass
class Source:
    """Some data, its shared rows, and what is to be found there."""

    data: PartyData
    shared: SharedRows
    width: int


def shared_of(train, held_out):
    report = AlignmentReport("tokens", {}, len(train) + len(held_out), len(train), len(held_out), 0.0)
    return SharedRows(np.array(train), np.array(held_out), DIGEST, KEY, report)


def files(tmp_path, train=(5, 0, 7, 2), held_out=(1, 9)):
    folder = party_folder(tmp_path, ROWS)
    return Source(folder.files, shared_of(train, held_out), 2)


def files_with_a_test_file(tmp_path, train=(5, 0, 7, 2), held_out=(1, 3)):
    folder = party_folder(tmp_path, ROWS, test_rows=4)
    return Source(folder.files, shared_of(train, held_out), 2)


def arrays(tmp_path):
    chance = np.random.default_rng(3)
    train, held_out = (
        RowSet(
            {"ann": as_rows(chance.normal(size=(rows, 3)))}, chance.integers(0, 2, rows).astype(float), np.ones(rows)
        )
        for rows in (ROWS, 4)
    )
    data = RowsInMemory("ann", train, held_out, classes=2)
    return Source(data, data.shared(), 3)


def scenario(tmp_path, train=(1, 0), held_out=(2,)):
    drawn = Scenario.draw(Random(5))
    return Source(drawn.member(drawn.settings.label_party, 1).data, shared_of(train, held_out), 2)


SOURCES = {
    "files": files,
    "files with a test file": files_with_a_test_file,
    "arrays in memory": arrays,
    "the simulator's": scenario,
}
REORDERED = {name: make for name, make in SOURCES.items() if make is not arrays}
"""Where rows may be shared in another order than that of the source."""


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def test_features_are_of_the_shared_rows(source):
    rows = source.data.rows(source.shared)
    assert row_count(rows.train) == len(source.shared.train)
    assert row_count(rows.held_out) == len(source.shared.held_out)
    assert width_of(rows.train) == width_of(rows.held_out) == source.width
    assert np.isfinite(to_dense(rows.train)).all()


def test_features_are_the_same_each_time(source):
    first, second = source.data.rows(source.shared), source.data.rows(source.shared)
    np.testing.assert_array_equal(to_dense(first.train), to_dense(second.train))
    np.testing.assert_array_equal(to_dense(first.held_out), to_dense(second.held_out))


def test_labels_and_weights_are_of_the_shared_rows(source):
    labels, _ = source.data.labels(source.shared)
    assert len(labels.train) == len(labels.train_weights) == len(source.shared.train)
    assert len(labels.held_out) == len(labels.held_out_weights) == len(source.shared.held_out)
    assert labels.train.dtype == labels.train_weights.dtype == np.float64
    assert labels.train_weights.mean() == pytest.approx(1.0)


def test_labels_of_classes_are_numbers_of_classes(source):
    labels, _ = source.data.labels(source.shared)
    if labels.classes:
        both = np.concatenate([labels.train, labels.held_out])
        assert set(both) <= set(range(labels.classes))


def test_there_is_an_id_or_a_place_for_every_row(source):
    found = source.data.row_ids()
    given = found.ids.by_position
    rows = len(found.ids.train) if given is None else given.train
    assert rows == len(found.train_rows)
    assert len(set(found.train_rows.tolist())) == rows
    assert set(source.shared.train.tolist()) <= set(found.train_rows.tolist())


def test_weights_are_known_to_be_there_or_not(source):
    assert source.data.weighted is False


@pytest.mark.parametrize("kind", REORDERED)
def test_rows_come_in_the_order_in_which_they_are_shared(kind, tmp_path):
    one = REORDERED[kind](tmp_path / "one", train=(0, 1), held_out=(2,))
    other = REORDERED[kind](tmp_path / "other", train=(1, 0), held_out=(2,))
    first, second = one.data.rows(one.shared), other.data.rows(other.shared)
    np.testing.assert_array_equal(to_dense(first.train), to_dense(second.train)[::-1])
    ours, theirs = one.data.labels(one.shared)[0], other.data.labels(other.shared)[0]
    np.testing.assert_array_equal(ours.train, theirs.train[::-1])


# What only some sources have.


def test_files_have_ids_and_the_label_encoding(tmp_path):
    source = files(tmp_path)
    ids = source.data.row_ids()
    assert ids.ids.train.to_pylist() == [f"r{row}" for row in range(ROWS)]
    assert ids.ids.test is None
    labels, encoding = source.data.labels(source.shared)
    assert encoding.classes[labels.train.astype(int)].tolist() == ["yes", "no", "yes", "yes"]


def test_a_test_file_has_rows_and_ids_of_its_own(tmp_path):
    source = files_with_a_test_file(tmp_path)
    ids = source.data.row_ids()
    assert ids.ids.test.to_pylist() == [f"r{row}" for row in range(ROWS, ROWS + 4)]
    assert ids.test_rows.tolist() == [0, 1, 2, 3]
    labels, encoding = source.data.labels(source.shared)
    assert encoding.classes[labels.held_out.astype(int)].tolist() == ["yes", "no"]


def test_weights_of_a_file_have_mean_one(tmp_path):
    data = party_folder(tmp_path, ROWS, weighted=True).files
    assert data.weighted
    labels, _ = data.labels(shared_of((0, 1, 2), (3,)))
    np.testing.assert_allclose(labels.train_weights, np.array([1, 2, 1]) * 3 / 4)


def test_arrays_without_held_out_rows_have_none_to_evaluate_on():
    train = RowSet({"ann": as_rows(np.ones((3, 2)))}, np.zeros(3), np.array([0.5, 1.0, 1.5]))
    data = RowsInMemory("ann", train, None, classes=2)
    assert data.rows(data.shared()).held_out is None
    assert len(data.labels(data.shared())[0].held_out) == 0
    assert data.weighted
