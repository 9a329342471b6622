import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data.frames import Roles, read_csv, read_parquet, roles_of, text_columns
from fdml.errors import DataError
from fdml.settings import DataSettings

FRAME = pa.table({"user": [1], "age": [2], "city": ["x"], "income": [3], "share": [1.0]})


def roles(frame=FRAME, **settings):
    return roles_of(frame, DataSettings(path="unused", **settings))


def test_every_column_without_another_role_is_a_feature():
    assert roles(id="user", label="income", weight="share") == Roles(("user",), "income", "share", ("age", "city"))


def test_named_columns_alone_are_features_in_the_order_named():
    assert roles(columns=["city", "age"]).features == ("city", "age")
    assert roles(columns=[], label="income").features == ()


def test_an_index_that_pandas_stored_is_a_feature_only_where_it_is_named():
    frame = pa.table({"age": [1], "__index_level_0__": [9]})
    assert roles(frame).features == ("age",)
    assert roles(frame, columns=["__index_level_0__"]).features == ("__index_level_0__",)


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
        ({"columns": ["age"], "categorical": "city"}, "column 'city' is in data.categorical or data.hashed but is no"),
    ],
)
def test_a_column_that_cannot_have_its_role_is_named(settings, message):
    with pytest.raises(DataError, match=message):
        roles(**settings)


def test_two_columns_of_one_name_are_refused():
    frame = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"])
    with pytest.raises(DataError, match="two columns are named 'age'; rename one"):
        roles(frame)


def test_csv_columns_are_what_they_look_like_unless_read_as_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("code,size\n007,1\n012,\n", encoding="utf-8")
    assert read_csv(path, ["code", "elsewhere"]).to_pydict() == {"code": ["007", "012"], "size": [1, None]}
    assert read_csv(path, []).to_pydict()["code"] == [7, 12]


def test_a_number_far_down_in_a_csv_file_can_still_be_a_fraction(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 400_000 + "1.5,2\n", encoding="utf-8")
    assert read_csv(path, []).column("a")[-1].as_py() == 1.5


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3\n", b"a\n\xff\n"])
def test_a_broken_csv_file_is_refused(tmp_path, content):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as CSV in UTF-8 with commas"):
        read_csv(tmp_path / "x.csv", ["a"])


def test_a_parquet_file_comes_back_as_it_was_written(tmp_path):
    pq.write_table(FRAME, tmp_path / "x.parquet")
    assert read_parquet(tmp_path / "x.parquet").equals(FRAME)


def test_a_broken_parquet_file_is_refused(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_parquet(tmp_path / "x.parquet")


def test_text_columns_are_found():
    assert text_columns(FRAME) == ["city"]
