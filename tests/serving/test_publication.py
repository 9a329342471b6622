"""A published model on disk: written whole, for its owner only, and updated without moving what did not change."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import DataError, StateCorrupt
from fdml.privacy.ledger import GradientMechanism, Mechanism
from fdml.serving import column as column_module
from fdml.serving import publication as publication_module
from fdml.serving.column import Column
from fdml.serving.publication import Publication, is_published, read_facts
from fdml.settings.serving import ServingSettings
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
        {"generation": 4, "computed": 9, "rows_left": True, "data": "ab", "file": "rows.csv"},
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
        *("data", "file", "generation", "computed", "rows_left", "reading"),
    }


def column_with(published, values, ids=IDS, noise=0):
    exact = codes_of(values)
    return Column.of(published.facts.keys.tokens_of(texts(ids)), exact + noise, exact)


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


def test_a_row_that_leaves_is_no_release_and_one_that_comes_back_is_a_new_one(tmp_path, published):
    """It has left with other bits before: with other noise, even if its value is the same."""
    values = values_of()["ann"]
    gone = published.updated(column_with(published, values[1:], IDS[1:], noise=5), "without r0")
    assert gone.facts.generation == 1
    gone.save(tmp_path / "serving")  # also after a restart
    again = Publication.load(tmp_path / "serving").updated(column_with(published, values, noise=7), "with r0")
    places = [each.column.find(published.facts.keys.tokens_of(texts(IDS[:1])))[0] for each in (published, again)]
    assert (published.column.codes[places[0]] != again.column.codes[places[1]]).all()
    assert again.facts.generation == 2
    assert again.updated(column_with(published, values, noise=9), "the same").facts.generation == 2


def test_rows_that_come_where_none_has_left_are_no_new_generation(published):
    more = (*IDS, "r-new")
    values = values_of(rows=len(more))["ann"]
    values[: len(IDS)] = values_of()["ann"]
    assert published.updated(column_with(published, values, more), "more").facts.generation == 1


def test_one_generation_pays_for_all_that_had_left_before_it(published):
    """A row that was gone while values changed has fewer releases than the count, and may come back."""
    values = values_of()["ann"]
    gone = published.updated(column_with(published, values[1:], IDS[1:]), "without r0")
    changed = gone.updated(column_with(published, values[1:] + 1.0, IDS[1:]), "changed")
    again = changed.updated(column_with(published, values + 1.0), "with r0")
    assert [each.facts.generation for each in (gone, changed, again)] == [1, 2, 2]


@pytest.mark.parametrize("seed", range(30))
def test_no_row_has_been_released_more_often_than_the_generation_says(published, seed):
    """Rows come, go and change at random, each time with other noise: all bits that a row ever had are counted."""
    random, found, seen = np.random.default_rng(seed), published, {row: set() for row in IDS[:6]}
    for number in range(12):
        held = [row for row in IDS[:6] if random.random() < 0.8]
        values = random.integers(0, 3, (len(held), 1)) if number % 3 == 0 else np.ones((len(held), 1))
        found = found.updated(column_with(published, values, held, noise=1000 * (number + 1)), str(number))
        places = found.column.find(published.facts.keys.tokens_of(texts(held)))
        for row, place in zip(held, places, strict=True):
            seen[row].add(int(found.column.codes[place, 0]))
        assert max(map(len, seen.values())) <= found.facts.generation


def test_whoever_has_mapped_the_old_column_goes_on_with_it(tmp_path, published):
    published.save(tmp_path / "serving")
    old = Publication.load(tmp_path / "serving")
    before = old.column.codes.copy()
    published.updated(column_with(published, values_of(seed=9)["ann"]), "new").save(tmp_path / "serving")
    assert (old.column.codes == before).all()
    assert (Publication.load(tmp_path / "serving").column.codes != before).any()


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_model_that_is_replaced_while_it_is_read_is_one_or_the_other_never_a_mix(
    tmp_path, published, monkeypatch, moment
):
    """Facts of one generation with rows of the next would be released and not counted."""
    other = replace(published.updated(column_with(published, values_of(seed=9)["ann"][1:], IDS[1:]), "new"))
    published.save(tmp_path / "serving")
    reads = []

    def replaced_at(read):
        def reading(*given, **options):
            reads.append(read)
            if len(reads) == moment:
                other.save(tmp_path / "serving")
            return read(*given, **options)

        return reading

    monkeypatch.setattr(column_module.np, "load", replaced_at(np.load))
    monkeypatch.setattr(publication_module, "read_facts", replaced_at(read_facts))
    found = Publication.load(tmp_path / "serving")
    whole = published if found.facts == published.facts else other
    assert found.facts == whole.facts
    assert (found.column.codes == whole.column.codes).all()
    assert (found.column.high == whole.column.high).all()
    assert len(reads) > moment


def test_a_column_that_is_gone_is_an_error_and_not_waited_for(tmp_path, published):
    published.save(tmp_path / "serving")
    (tmp_path / "serving" / "codes.npy").unlink()
    with pytest.raises(StateCorrupt, match="damaged"):
        Publication.load(tmp_path / "serving")


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
