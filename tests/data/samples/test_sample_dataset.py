"""A sample data set in memory: what its rows become is what the files of a run become."""

import numpy as np
import pyarrow as pa
import pytest

from fdml.data.readers import load
from fdml.data.rows import row_count, to_dense
from fdml.data.samples.run_files import TEST, TRAIN, write_run_files
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset
from fdml.errors import SettingsError
from fdml.experiments.comparison_input import from_run_file
from fdml.party.settings import read_party
from fdml.settings.federation import read_run

ROWS = 40


def table(first, rows, **columns):
    ids = pa.array([f"r{first + row:03d}" for row in range(rows)])
    return pa.table({"row": ids, **columns})


def frames(first=0, rows=ROWS):
    random = np.random.default_rng(first)
    one = table(first, rows, size=random.normal(size=rows), good=random.random(rows) < 0.5)
    two = table(first, rows, city=random.choice(["Rome", "Oslo"], rows), code=random.integers(0, 3, rows))
    return one, two


def small(*, tested=True):
    (one, two), (one_test, two_test) = frames(), frames(100, 10)
    return SampleDataset(
        "small",
        "Numbers that were drawn",
        {
            "one": PartyTables(one, one_test if tested else None, {"id": "row", "label": "good"}),
            "two": PartyTables(two, two_test if tested else None, {"id": "row", "categorical": ["code"]}),
        },
    )


def test_the_first_party_holds_the_labels():
    sample = small()
    assert (sample.label_party, sample.rows, sample.has_test_rows) == ("one", ROWS, True)
    encoded = sample.encoded()
    assert encoded["one"].train.labels.dtype == np.bool_
    assert encoded["two"].train.labels is None
    assert encoded["two"].train.names == ("city=Oslo", "city=Rome", "code=0", "code=1", "code=2")


def by_id(party):
    order = np.argsort(party.ids)
    return party.ids[order], to_dense(party.rows)[order], None if party.labels is None else party.labels[order]


@pytest.mark.parametrize("tested", [True, False])
def test_encoded_in_memory_and_through_files_the_rows_are_the_same(tmp_path, tested):
    sample = small(tested=tested)
    write_run_files(tmp_path, sample, seed=7, holdout=0.25)
    for party, tables in sample.encoded().items():
        stored = load(read_party(tmp_path / party / "party.toml").data)
        assert (stored.test is not None) == tested
        for ours, theirs in ((tables.train, stored.train), (tables.test, stored.test)):
            if ours is None:
                assert theirs is None
                continue
            assert ours.names == theirs.names
            for one, other in zip(by_id(ours), by_id(theirs), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("tested", [True, False])
def test_the_run_names_its_parties_and_holds_out_rows_unless_there_are_test_rows(tmp_path, tested):
    done = []
    write_run_files(tmp_path, small(tested=tested), seed=3, holdout=0.25, progress=lambda: done.append(1))
    run = read_run(tmp_path / "run.toml")
    assert (run.federation, run.parties, run.label_party, run.training.seed) == ("small", ("one", "two"), "one", 3)
    assert run.evaluation.holdout == (0.2 if tested else 0.25)
    assert len(done) == 2
    for party in run.parties:
        settings = read_party(tmp_path / party / "party.toml")
        assert settings.data.path == tmp_path / party / TRAIN
        assert settings.data.test_path == (tmp_path / party / TEST if tested else None)
        assert settings.align.max_rows >= ROWS


def test_every_party_has_its_rows_in_an_order_of_its_own(tmp_path):
    write_run_files(tmp_path, small(), seed=7, holdout=0.2)
    orders = [load(read_party(tmp_path / party / "party.toml").data).train.ids.tolist() for party in ("one", "two")]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])


def test_fewer_rows_are_the_same_at_every_party_and_of_the_test_rows_as_many_by_share():
    sample = small().first(20, seed=1)
    one, two = (each.train.column("row").to_pylist() for each in sample.parties.values())
    assert one == two
    assert len(set(one)) == 20
    assert len(sample.parties["one"].test) == 5
    assert small().first(20, seed=1).parties["two"].train == sample.parties["two"].train
    assert small().first(20, seed=2).parties["two"].train != sample.parties["two"].train


@pytest.mark.parametrize("rows", [0, ROWS + 1])
def test_more_rows_than_there_are_cannot_be_had(rows):
    with pytest.raises(SettingsError, match=f"{rows} rows were asked for; small has {ROWS}, give 1 to {ROWS}"):
        small().first(rows, seed=0)


def test_one_test_row_is_left_of_few():
    assert row_count(small().first(1, seed=0).encoded()["one"].test.rows) == 1


# A coarser table


def keyed(*, tested):
    """Rows that lead to cities; one of them to none that is known."""
    people = pa.table({"city": ["Oslo", "Rome"], "people": [7.0, 28.0]})
    one = PartyTables(
        table(0, 4, town=["Rome", "Oslo", "Bonn", "Rome"], good=[True, False, True, False]),
        table(9, 2, town=["Oslo", "Oslo"], good=[True, False]) if tested else None,
        {"id": "row", "label": "good", "columns": ["town"]},
    )
    parties = {"one": one, "cities": PartyTables(people, data={"id": "city", "missing": "zero"})}
    return SampleDataset("keyed", "Towns", parties, {"cities": ("town",)})


@pytest.mark.parametrize("tested", [True, False])
def test_joined_a_coarser_table_has_a_row_for_each_of_the_label_partys(tested):
    found = keyed(tested=tested).joined().parties["cities"]
    assert found.train.to_pydict() == {"row": ["r000", "r001", "r002", "r003"], "people": [28.0, 7.0, None, 28.0]}
    assert (None if found.test is None else found.test.to_pydict()) == (
        {"row": ["r009", "r010"], "people": [7.0, 7.0]} if tested else None
    )
    encoded = keyed(tested=tested).encoded()
    assert encoded["cities"].train.ids.tolist() == encoded["one"].train.ids.tolist()
    assert encoded["one"].train.names == ("town=Bonn", "town=Oslo", "town=Rome")


def test_fewer_rows_leave_a_coarser_table_whole():
    few = keyed(tested=True).first(2, seed=0)
    assert (few.rows, len(few.parties["one"].test), len(few.parties["cities"].train)) == (2, 1, 2)


def test_the_run_says_which_columns_lead_to_a_coarser_table(tmp_path):
    write_run_files(tmp_path, keyed(tested=True), seed=7, holdout=0.25)
    run = read_run(tmp_path / "run.toml")
    assert (run.keys, run.unmatched) == ({"cities": ("town",)}, "drop")
    assert read_party(tmp_path / "cities" / "party.toml").data.id == ("city",)
    problem, _, _ = from_run_file(tmp_path / "run.toml")
    assert (len(problem.train), len(problem.test)) == (3, 2), "nobody knows Bonn"
