"""The sample data sets by name, and Adult's columns among three parties."""

import pytest

from fdml.data.samples.adult import LABEL
from fdml.data.samples.adult_parties import KNOWN_TO, PERSON, adult_parties
from fdml.data.samples.registry import SAMPLES


def test_every_sample_is_known_by_the_name_it_gives_itself():
    assert list(SAMPLES) == ["adult", "nyc-flights", "census-income", "movielens"]
    assert all(callable(load) for load in SAMPLES.values())


@pytest.fixture(scope="module")
def adult():
    return adult_parties()


def test_each_party_has_its_own_columns_and_the_same_people(adult):
    assert list(adult.parties) == list(KNOWN_TO)
    for party, tables in adult.parties.items():
        label = [LABEL] if party == "store" else []
        assert tables.train.column_names == [PERSON, *KNOWN_TO[party], *label] == tables.test.column_names
        assert tables.train.column(PERSON) == adult.parties["store"].train.column(PERSON)
        assert (len(tables.train), len(tables.test)) == (32_561, 16_281)


def test_no_person_is_in_both_files_and_no_column_is_known_to_two(adult):
    store = adult.parties["store"]
    people = [*store.train.column(PERSON).to_pylist(), *store.test.column(PERSON).to_pylist()]
    assert len(set(people)) == len(people)
    columns = [name for known in KNOWN_TO.values() for name in known]
    assert len(set(columns)) == len(columns)


def test_one_party_alone_has_the_label(adult):
    labels = {party: tables.settings.label for party, tables in adult.parties.items()}
    assert labels == {"store": LABEL, "browser": None, "guard": None}
