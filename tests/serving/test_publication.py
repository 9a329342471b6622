"""A published model on disk: written whole, for its owner only, and updated without moving what did not change."""

import json
from dataclasses import replace

import pytest

from fdml.errors import DataError, StateCorrupt
from fdml.privacy.ledger import GradientMechanism, Mechanism
from fdml.serving.column import Column
from fdml.serving.publication import Publication, is_published, read_facts
from fdml.settings_serving import ServingSettings
from tests.serving.published import IDS, codes_of, publication_of, run_of, texts, values_of


@pytest.fixture
def published():
    return publication_of("ann", IDS, values_of()["ann"])


def test_it_comes_back_as_it_was(tmp_path, published):
    published.save(tmp_path / "serving")
    again = Publication.load(tmp_path / "serving")
    assert again.facts == published.facts
    assert (again.column.codes == published.column.codes).all()
    assert again.others == ("bob", "cid")


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": Mechanism("gaussian", 1.5, 0.7)},
        {"gradients": GradientMechanism(1.0, 2.0)},
        {"run": run_of(task="regression", serving=ServingSettings(may_ask=("bob",), absent="calibrated"))},
        {"generation": 4, "computed": 9, "data": "ab", "file": "rows.csv"},
    ],
)
def test_all_facts_come_back(tmp_path, published, changes):
    facts = replace(published.facts, **changes)
    Publication(facts, published.column).save(tmp_path / "serving")
    assert read_facts(tmp_path / "serving") == facts


def test_only_its_owner_can_read_it(tmp_path, published):
    published.save(tmp_path / "serving")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "serving").iterdir()} == {0}
    assert (tmp_path / "serving").stat().st_mode & 0o077 == 0


def test_the_label_party_asks_unless_the_run_says_otherwise(published):
    assert published.facts.askers == ("ann",)
    other = replace(published.facts, run=run_of(serving=ServingSettings(may_ask=("bob", "cid"))))
    assert other.askers == ("bob", "cid")


def test_a_folder_without_a_model_says_how_one_comes(tmp_path):
    assert not is_published(tmp_path / "serving")
    with pytest.raises(DataError, match="fdml join"):
        read_facts(tmp_path / "serving")


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"layout": "another"}'])
def test_damaged_facts_are_named(tmp_path, published, damage):
    published.save(tmp_path / "serving")
    (tmp_path / "serving" / "facts.json").write_bytes(damage)
    with pytest.raises(StateCorrupt, match=r"facts\.json"):
        read_facts(tmp_path / "serving")


def test_no_feature_and_no_parameter_is_in_it(tmp_path, published):
    published.save(tmp_path / "serving")
    facts = json.loads((tmp_path / "serving" / "facts.json").read_text())
    assert set(facts) == {
        *("layout", "run", "party", "version", "bits", "keys", "mechanism", "gradients", "noise"),
        *("data", "file", "generation", "computed", "reading"),
    }


def column_with(published, values):
    codes = codes_of(values)
    return Column.of(published.facts.keys.tokens_of(texts(IDS)), codes, codes)


def test_an_update_without_changes_is_no_new_generation(published):
    again = published.updated(column_with(published, values_of()["ann"]), "new")
    assert (again.facts.generation, again.facts.computed, again.facts.data) == (1, 2, "new")
    assert (again.column.codes == published.column.codes).all()


def test_an_update_with_a_changed_value_is_a_new_generation(published):
    values = values_of()["ann"]
    values[3] += 1.0
    again = published.updated(column_with(published, values), "new")
    assert (again.facts.generation, again.facts.computed) == (2, 2)
    assert (again.column.codes != published.column.codes).sum() == 1


def test_whoever_has_mapped_the_old_column_goes_on_with_it(tmp_path, published):
    published.save(tmp_path / "serving")
    old = Publication.load(tmp_path / "serving")
    before = old.column.codes.copy()
    published.updated(column_with(published, values_of(seed=9)["ann"]), "new").save(tmp_path / "serving")
    assert (old.column.codes == before).all()
    assert (Publication.load(tmp_path / "serving").column.codes != before).any()


def test_a_row_that_goes_and_comes_back_is_counted_once_for_each_noise_that_it_had(published):
    """Else a file that lacks a row every other day would give its noise anew each time, and the ledger would not know."""
    values, seen = values_of()["ann"], published
    tokens = published.facts.keys.tokens_of(texts(IDS))
    left = set()
    for day in range(1, 7):
        rows = slice(1, None) if day % 2 else slice(None)  # the first row is there every other day
        exact = codes_of(values[rows])
        column = Column.of(tokens[rows], exact + day, exact)
        seen = seen.updated(column, f"day {day}")
        place = seen.column.find(tokens[:1])[0]
        left |= {int(seen.column.codes[place, 0])} if place >= 0 else set()
    first = int(published.column.codes[published.column.find(tokens[:1])[0], 0])
    assert len(left | {first}) == 4, "four different values of one row may have left"
    assert seen.facts.generation >= 4
