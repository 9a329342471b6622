from pathlib import Path

import pytest

from fdml.data.error_context import LISTED, errors_about, no_such
from fdml.errors import DataError, LabelError


def test_an_unknown_name_is_answered_with_the_nearest_known_one():
    assert str(no_such("column", "incme", ["age", "income"])) == (
        "there is no column 'incme'; did you mean 'income'? there are: age, income"
    )


def test_nothing_is_offered_where_nothing_is_near():
    assert "did you mean" not in str(no_such("column", "zzz", ["age", "income"]))


def test_only_the_first_names_are_listed_and_the_others_counted():
    message = str(no_such("column", "?", [f"c{number}" for number in range(LISTED + 3)]))
    assert message.endswith("c8, c9 and 3 more")


@pytest.mark.parametrize("kind", [DataError, LabelError])
def test_errors_about_a_files_content_name_the_file_and_stay_of_their_kind(kind):
    with pytest.raises(kind, match=r"^data/x\.csv: no rows$") as caught, errors_about(Path("data/x.csv")):
        raise kind("no rows")
    assert type(caught.value) is kind


def test_other_errors_are_passed_on():
    with pytest.raises(KeyError), errors_about(Path("x.csv")):
        raise KeyError("a")
