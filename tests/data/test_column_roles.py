import pytest

from fdml.data.column_roles import ColumnRoles, check_columns, roles_of
from fdml.errors import DataError
from fdml.settings.data import DataSettings

NAMES = ["user", "age", "city", "income", "share"]


def roles(names=NAMES, **settings):
    return roles_of(names, DataSettings(path="unused", **settings))


def test_every_column_without_another_role_is_a_feature():
    assert roles(id="user", label="income", weight="share") == ColumnRoles(
        ("user",), "income", "share", ("age", "city")
    )


def test_named_columns_alone_are_features_in_the_order_named():
    assert roles(columns=["city", "age"]).features == ("city", "age")
    assert roles(columns=[], label="income").features == ()


def test_an_index_that_pandas_stored_is_a_feature_only_where_it_is_named():
    names = ["age", "__index_level_0__"]
    assert roles(names).features == ("age",)
    assert roles(names, columns=["__index_level_0__"]).features == ("__index_level_0__",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": ["user", "usr"]}, "there is no id column 'usr'; did you mean 'user'"),
        ({"label": "incme"}, "there is no label column 'incme'; did you mean 'income'"),
        ({"weight": "shar"}, "there is no weight column 'shar'; did you mean 'share'"),
        (
            {"columns": ["aeg"]},
            "there is no column 'aeg'; did you mean 'age'. there are: user, age, city, income, share",
        ),
        ({"categorical": "cities"}, "there is no column 'cities'; did you mean 'city'"),
        ({"hashed": "cit"}, "there is no column 'cit'; did you mean 'city'"),
        ({"columns": ["age", "income"], "label": "income"}, "column 'income' is named twice among data.id, data.label"),
        ({"id": "user", "label": "user"}, "column 'user' is named twice"),
        ({"columns": ["age", "age"]}, "column 'age' is named twice"),
        ({"columns": ["age"], "categorical": "city"}, "column 'city' is in data.categorical but is no"),
    ],
)
def test_a_column_that_cannot_have_its_role_is_named(settings, message):
    with pytest.raises(DataError, match=message):
        roles(**settings)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(DataError, match="two columns are named 'age'; rename one"):
        roles(["age", "city", "age"])


def test_another_file_must_have_the_columns_too():
    found = roles(id="user", label="income", weight="share")
    check_columns([*NAMES[::-1], "extra"], found)
    for name, what in (
        ("user", "id column"),
        ("income", "label column"),
        ("share", "weight column"),
        ("age", "column"),
    ):
        with pytest.raises(DataError, match=f"there is no {what} '{name}'"):
            check_columns([other for other in NAMES if other != name], found)


def test_roles_know_all_columns_that_are_read():
    found = roles(id="user", label="income", columns=["age"])
    assert found.others == ("user", "income")
    assert found.named == ("user", "income", "age")
