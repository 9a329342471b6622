from __future__ import annotations

import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.align.local_join import shared_rows
from fdml.data.archives import read_arrays
from fdml.data.readers import load
from fdml.data.rows import SparseRows, row_count, to_scipy
from fdml.data.samples.app_store.dataset import PARTIES, SHARED_PER_CHUNK, AppStore
from fdml.data.samples.app_store.features import KINDS, View
from fdml.data.samples.app_store.files import ArchiveWriter
from fdml.data.samples.app_store.generator import CHUNK, FACTORS, LINEAR, ROWS_PER_USER, log_odds, people
from fdml.data.sources import open_sources
from fdml.errors import SettingsError
from fdml.experiments.dataset import build_dataset
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import auc
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings
from fdml.settings.data import DataSettings

ROWS = 3000
WIDTHS = {"store": 7000, "browser": 1000, "guard": 700}
ENTRIES = {"store": 48, "browser": 7, "guard": 5}


def same(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def equal(ours, theirs):
    return same(ours.rows[:3], theirs.rows[:3]) and same(ours[1:], theirs[1:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("twin")
    AppStore(ROWS).write(out)
    return out


@pytest.fixture(scope="module")
def parts():
    """All parties' rows of one whole chunk."""
    return {party: AppStore(SHARED_PER_CHUNK).part(party, 0) for party in PARTIES}


def settings_of(folder, party):
    home = folder / party
    return DataSettings(path=home / "train.npz", test_path=home / "test.npz")


def test_the_same_seed_gives_the_same_bytes(folder, tmp_path):
    AppStore(ROWS).write(tmp_path)
    for file in [each.relative_to(folder) for each in folder.rglob("*.npz")]:
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes(), file
    assert len(list(folder.rglob("*"))) == 3 + 6, "nothing else is left behind"


def test_another_seed_gives_other_rows():
    ours, theirs = (AppStore(ROWS, seed).part("guard", 0) for seed in (7, 8))
    assert not np.array_equal(ours.rows.indices[:1000], theirs.rows.indices[:1000])
    assert not np.array_equal(ours.labels, theirs.labels)


@pytest.mark.slow
@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("fewer", [1000, 1001, 2345])
def test_fewer_rows_are_the_first_of_more(party, fewer):
    few, many = AppStore(fewer).part(party, 0), AppStore(ROWS).part(party, 0)
    count = len(few.labels)
    assert equal(few, many.take(np.arange(count)))
    assert few.numbers.max() == fewer - 1


@pytest.mark.parametrize("party", PARTIES)
def test_a_chunk_does_not_depend_on_those_drawn_before(party):
    store = AppStore(2 * SHARED_PER_CHUNK)
    alone = store.part(party, 1)
    store.part(party, 0)
    assert equal(store.part(party, 1), alone)


def test_chunks_continue_each_other():
    store = AppStore(2 * SHARED_PER_CHUNK)
    assert store.chunks == 2
    numbers = np.concatenate([store.part("guard", chunk).numbers for chunk in range(2)])
    assert np.array_equal(numbers[numbers >= 0], np.arange(store.rows))


def test_a_row_is_drawn_alike_for_all_parties(parts):
    store, browser = parts["store"], parts["browser"]
    for name in ("ids", "labels", "tests"):
        ours, theirs = getattr(store, name)[store.numbers >= 0], getattr(browser, name)[browser.numbers >= 0]
        assert np.array_equal(ours, theirs), name


def test_chunks_hold_whole_users_and_whole_rounds():
    assert CHUNK % ROWS_PER_USER == 0
    assert CHUNK * 50 == SHARED_PER_CHUNK * 53


@pytest.mark.parametrize("party", PARTIES)
def test_the_features_are_as_many_and_as_sparse_as_promised(parts, party):
    rows = parts[party].rows
    assert rows.width == WIDTHS[party] == sum(kind.groups * kind.levels for kind in KINDS[party])
    assert len(rows.values) / row_count(rows) == pytest.approx(ENTRIES[party], rel=0.02)
    assert (rows.values == 1.0).mean() > 0.85
    assert rows.values.min() == 1.0
    assert 2 < rows.values.max() < 6, "logarithms of counts"
    assert len(np.unique(rows.indices)) > 0.95 * rows.width


@pytest.mark.parametrize("party", PARTIES)
def test_rows_are_as_the_kernels_want_them(parts, party):
    rows = parts[party].rows
    assert [each.dtype for each in rows[:3]] == [np.int64, np.int32, np.float32]
    steps = np.diff(rows.indices.astype(np.int64))
    steps[rows.indptr[1:-1][np.diff(rows.indptr[1:]) > 0] - 1] = 1
    assert (steps > 0).all(), "features ascend, and none stands twice in a row"


def test_about_one_row_in_43_is_positive():
    labels = np.concatenate([people(seed, 0).labels for seed in range(8)])
    assert labels.mean() == pytest.approx(0.023, rel=0.05)


def test_ids_are_unique_and_of_users_with_a_few_rows_each(parts):
    for part in parts.values():
        assert len(np.unique(part.ids, axis=0)) == len(part.ids)
    users, counts = np.unique(parts["store"].ids[:, 0], return_counts=True)
    assert counts.max() == ROWS_PER_USER
    assert len(users) > 10_000


@pytest.mark.slow
def test_a_fiftieth_of_each_partys_rows_are_its_own(parts):
    own = {party: {tuple(each) for each in part.ids[part.numbers < 0].tolist()} for party, part in parts.items()}
    assert {len(each) for each in own.values()} == {SHARED_PER_CHUNK // 50}
    for party, ids in own.items():
        for other, part in parts.items():
            assert other == party or not ids & {tuple(each) for each in part.ids.tolist()}


@pytest.mark.parametrize("share", [0.001, 0.1, 0.29, 0.5, 0.9])
def test_just_the_test_share_is_for_testing(share):
    part = AppStore(10_000, test_share=share).part("guard", 0)
    shared = part.numbers >= 0
    assert part.tests[shared].sum() == round(10_000 * share)
    assert part.tests[~shared].sum() == 200 * round(1000 * share) // 1000


def test_factors_are_standard_and_apart():
    factors = np.concatenate([people(seed, 0).factors for seed in range(8)])
    assert factors.shape[1] == len(LINEAR) == sum(map(len, FACTORS.values()))
    assert np.abs(factors.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(factors.T) - np.eye(len(LINEAR))).max() < 0.1


def test_the_log_odds_rank_the_labels():
    drawn = people(7, 0)
    odds = log_odds(drawn.factors)
    assert auc(drawn.labels.astype(float), odds, np.ones(CHUNK)) > 0.70


def test_a_party_sees_traces_of_its_own_factors_alone():
    view = View("guard")
    factors = people(7, 0).factors
    before = view.rows(factors, 7, 0)
    others = factors.copy()
    others[:, :6] = 0.0
    assert same(view.rows(others, 7, 0)[:3], before[:3])
    others[:, 6] += 1.0
    assert not np.array_equal(view.rows(others, 7, 0).indices, before.indices)


def test_the_files_open_and_align_to_the_shared_rows(folder):
    data = {party: load(settings_of(folder, party)) for party in PARTIES}
    for name, count in (("train", 2700), ("test", 300)):
        tables = {party: getattr(each, name) for party, each in data.items()}
        assert {len(table) for table in tables.values()} == {count * 51 // 50}
        index = shared_rows(tables)
        assert {len(each) for each in index.values()} == {count}
    assert data["store"].train.labels is not None
    assert data["browser"].train.labels is None
    orders = [data[party].train.ids.tolist() for party in PARTIES]
    assert orders[0] != orders[1] != orders[2]
    assert all("|" in each for each in orders[0]), "two columns make the id"


def test_the_files_hold_the_rows_that_were_drawn(folder):
    store = AppStore(ROWS)
    for party in PARTIES:
        table = load(settings_of(folder, party)).train
        part = store.part(party, 0)
        place = {f"{user}|{app}": at for at, (user, app) in enumerate(part.ids.tolist())}
        drawn = part.take(np.array([place[each] for each in table.ids]))
        assert not drawn.tests.any()
        assert same(drawn.rows[:3], table.rows[:3])
        assert party != "store" or np.array_equal(drawn.labels, table.labels)


def test_parties_have_orders_of_their_own(folder):
    part = AppStore(ROWS).part("store", 0)
    ids = {party: read_arrays(folder / party / "train.npz")["ids"].tolist() for party in PARTIES}
    shared = {tuple(each) for each in part.ids[part.numbers >= 0].tolist()}
    orders = [[each for each in map(tuple, ids[party]) if each in shared] for party in PARTIES]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[0] != orders[1]
    assert orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_scipy_reads_the_files_too(folder):
    matrix = sp.load_npz(folder / "guard" / "test.npz")
    assert matrix.shape == (306, 700)
    assert matrix.has_canonical_format


def test_files_are_mapped_not_read(folder):
    with zipfile.ZipFile(folder / "store" / "train.npz") as archive:
        assert {each.compress_type for each in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    (train, test) = open_sources(settings_of(folder, "store"))
    assert (train.count, test.count, len(train.names)) == (2754, 306, 7000)


def test_progress_is_told_step_by_step(tmp_path):
    told = []
    store = AppStore(1000)
    store.write(tmp_path, lambda: told.append(1))
    assert len(told) == store.steps == 3


@pytest.mark.parametrize("rows", [-1, 0, 999])
def test_too_few_rows_are_refused(rows):
    with pytest.raises(SettingsError, match=f"^{rows} rows are too few .* 1000 or more"):
        AppStore(rows)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_test_share_out_of_range_is_refused(share):
    with pytest.raises(SettingsError, match=f"{share:g}; give a share from 0.001 to 0.9"):
        replace(AppStore(1000), test_share=share)


def some_rows(count):
    return SparseRows(np.arange(count + 1), np.zeros(count, np.int32), np.ones(count, np.float32), 2)


def test_an_archive_of_several_pieces_is_as_one_of_one(tmp_path):
    with ArchiveWriter(tmp_path / "one.npz", 2) as writer:
        writer.add(some_rows(5), ids=np.arange(5))
    with ArchiveWriter(tmp_path / "two.npz", 2) as writer:
        writer.add(some_rows(2), ids=np.arange(2))
        writer.add(some_rows(3), ids=np.arange(2, 5))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert (sp.load_npz(tmp_path / "one.npz") != to_scipy(some_rows(5))).nnz == 0


def test_an_archive_that_fails_leaves_nothing(tmp_path):
    def fail():
        with ArchiveWriter(tmp_path / "one.npz", 2) as writer:
            writer.add(some_rows(2))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_other_parties_help_a_linear_model(tmp_path):
    AppStore(100_000, test_share=0.3).write(tmp_path)
    data = {party: load(settings_of(tmp_path, party)) for party in PARTIES}
    problem = build_dataset(data, "store", "binary", None, 0.5, 7).shuffled(7)
    found = {}
    for name, part in (("alone", problem.only("store")), ("pooled", problem.pooled()), ("joint", problem)):
        training = TrainingSettings(epochs=5, batch_size=100, batches_per_block=256, learning_rate=0.1)
        models = dict.fromkeys(part.train.parts, model_settings(optimizer="sgd", l2=1e-3))
        outcome = train_in_process(Plan(training, models, part.label_party, part.loss, 2), part.train)
        found[name] = auc(part.test.labels, outcome.score(part.test.parts)[:, 0], part.test.weights)
    assert found["pooled"] > found["alone"] + 0.02
    assert found["joint"] > found["alone"] + 0.02
    assert found["alone"] > 0.6
