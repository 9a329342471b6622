"""A table looked at before a run: columns in counts, and all faults at once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data.origins import origins_of
from fdml.data.profile import profile_rows, profile_test_rows
from fdml.settings.data import DataSettings

ROWS = 120


def profiled(folder, text, **settings):
    path = folder / "rows.csv"
    path.write_text(text)
    given = DataSettings(path=path, **settings)
    return profile_rows(origins_of(given)[0], given)


def of_table(folder, columns, **settings):
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    given = DataSettings(path=path, **settings)
    return profile_rows(origins_of(given)[0], given)


def by_name(found):
    return {column.name: column for column in found.columns}


def test_every_column_has_kind_counts_and_features(tmp_path):
    lines = [
        f"u{n},{'' if n % 4 == 0 else n / 8},{'red' if n % 3 else 'blue'},2026-01-0{n % 9 + 1},{n % 2}"
        for n in range(ROWS)
    ]
    found = profiled(tmp_path, "\n".join(["id,size,colour,day,bought", *lines]), id="id", label="bought", ignore="day")
    columns = by_name(found)
    assert found.rows == ROWS
    assert {name: column.kind for name, column in columns.items()} == {
        "id": "id",
        "size": "number",
        "colour": "category",
        "day": "ignored",
        "bought": "label",
    }
    size = columns["size"]
    assert (size.missing, size.distinct, size.features) == (30, 90, 2)
    assert "missing numbers are filled in" in size.warnings[0]
    assert (columns["colour"].distinct, columns["colour"].features) == (2, 2)
    assert found.labels.tolist() == [n % 2 for n in range(ROWS)]
    assert found.all_faults == []
    assert len(found.encoder.names) == 4


def test_all_faults_are_found_at_once(tmp_path):
    """A column that is not there twice, a decimal comma, a percent sign, duplicate ids and a missing label."""
    lines = [f"u{n // 2};1,{n:02d};{n}%;{'' if n == 7 else 'yes'}" for n in range(60)]
    text = "\n".join(["id;share;growth;label", *lines])
    found = profiled(
        tmp_path, text, id="id", label="label", delimiter=";", ignore=("nothing", "labell"), hashed="grwth"
    )
    faults = "\n".join(found.all_faults)
    assert len(found.all_faults) == 7
    for words in (
        "data.ignore: there is no column 'nothing'",
        "there is no column 'labell'; did you mean 'label'?",
        "data.hashed: there is no column 'grwth'; did you mean 'growth'?",
        "30 rows with a duplicate id (of 60)",
        "column 'share' holds numbers with a decimal comma, as text",
        "column 'growth' holds numbers with a percent sign",
        "label column 'label' has no value in data row 8",
    ):
        assert words in faults
    assert all(fault.startswith(str(tmp_path / "rows.csv")) for fault in found.all_faults)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": pa.array([[1], [2]])}, "column 'x' holds list<"),
        ({"x": pa.array([1.0, float("inf")])}, "column 'x' is infinite or too large for float32 in data row 2"),
        ({"x": pa.array([b"\xff", b"a"])}, "column 'x' holds bytes"),
    ],
)
def test_a_column_that_cannot_be_used_is_a_fault_and_the_others_go_on(tmp_path, columns, words):
    found = of_table(tmp_path, {**columns, "y": pa.array([1.0, 2.0])})
    assert words in found.all_faults[0]
    assert by_name(found)["x"].kind == "not usable"
    assert by_name(found)["y"].features == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a;b\n1;2\n", "its first line has semicolons and no commas"),
        ("a,b\n", "it has no rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_fault(tmp_path, text, words):
    (fault,) = profiled(tmp_path, text).all_faults
    assert words in fault


def test_a_first_line_that_is_a_row_is_not_printed(tmp_path):
    found = profiled(tmp_path, "0000102080,34512.5,2019-03-04,M\n0000102081,3.5,2019-03-05,F\n", id="customer")
    (fault,) = found.all_faults
    assert "3 of 4 names that look like data" in fault
    assert "102080" not in fault
    assert found.columns == ()


def test_columns_that_are_numbered_are_names(tmp_path):
    assert profiled(tmp_path, "0,1,2\n1.5,2.5,3.5\n").all_faults == []


def test_weights_are_looked_at_as_a_run_would(tmp_path):
    found = profiled(tmp_path, "x,w\n1,2\n2,-1\n", weight="w")
    assert "weight column 'w' is no finite number, zero or more, in data row 2" in found.all_faults[0]


def test_ids_of_a_type_that_cannot_be_one_are_a_fault(tmp_path):
    found = of_table(tmp_path, {"id": pa.array([1.5, 2.5]), "x": pa.array([1.0, 2.0])}, id="id")
    assert "with a fraction" in found.all_faults[0]
    assert by_name(found)["x"].features == 1


def test_test_rows_must_have_the_columns_and_types_of_training(tmp_path):
    train = profiled(tmp_path, "id,x,c\n1,1.5,red\n2,2.5,blue\n", id="id")
    path = tmp_path / "test.csv"
    settings = DataSettings(path=tmp_path / "rows.csv", test_path=path, id="id")

    def tested(text):
        path.write_text(text)
        return profile_test_rows(origins_of(settings)[1], settings, train)

    assert tested("c,x,id\ngreen,3.5,9\n").all_faults == []
    assert "there is no column 'c'" in tested("id,x\n1,1.5\n").all_faults[0]
    wrong = tested("id,x,c\n7,much,red\n7,more,red\n").all_faults
    assert any("column 'x' held numbers in training but holds string here" in fault for fault in wrong)
    assert any("1 rows with a duplicate id" in fault for fault in wrong)
