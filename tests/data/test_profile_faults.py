"""Tables that a run would refuse, looked at before it: each fault is named once, and what does not depend on it too."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples

from fdml.data.origins import frame_origins, origins_of
from fdml.data.profile import profile_matrices, profile_rows, profile_test_rows
from fdml.data.sources import open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.data.frames import data_settings, tables


def of_frame(table, **settings):
    return profile_rows(frame_origins(pa.table(table))[0], DataSettings(**settings))


def of_text(folder, text, name="rows.csv", **settings):
    (folder / name).write_text(text)
    given = DataSettings(path=folder / name, **settings)
    return profile_rows(origins_of(given)[0], given)


def kinds(found):
    return {column.name: column.kind for column in found.columns}


def test_a_table_without_rows_is_one_fault_with_ids_too(tmp_path):
    (fault,) = of_text(tmp_path, "id,x\n", id="id").all_faults
    assert "it has no rows" in fault
    (fault,) = of_frame({"id": pa.array([], pa.string()), "x": pa.array([], pa.float64())}, id="id").all_faults
    assert "it has no rows" in fault


@pytest.mark.parametrize("setting", [{"hashed": "x"}, {"categories": {"x": ("1", "2")}}, {"categorical": "x"}])
@pytest.mark.parametrize("column", [[[1], [2]], [b"\xff", b"a"], [{"a": 1}, {"a": 2}]], ids=["list", "bytes", "struct"])
def test_a_column_that_no_category_can_be_is_a_fault_whatever_settings_say_of_it(column, setting):
    found = of_frame({"x": column, "y": [1.0, 2.0]}, **setting)
    (fault,) = found.all_faults
    assert "column 'x' holds" in fault
    assert kinds(found) == {"x": "not usable", "y": "number"}


def test_categories_that_are_set_are_the_features_and_others_are_no_fault():
    found = of_frame({"colour": ["red", "green", None]}, categories={"colour": ("red", "blue")})
    assert found.all_faults == []
    assert found.encoder.names == ("colour=red", "colour=blue")
    assert (found.columns[0].kind, found.columns[0].distinct, found.columns[0].missing) == ("category", 2, 1)


def test_hashed_columns_have_the_size_that_is_set():
    found = of_frame({"city": ["Bern", "Rome"]}, hashed="city", hash_size=8)
    assert (found.columns[0].kind, found.columns[0].features) == ("hashed", 8)


def test_dates_say_what_becomes_of_them():
    found = of_frame({"day": [datetime.date(2026, 11, 15), datetime.date(2026, 11, 16)]})
    (day,) = found.columns
    assert (day.kind, day.features) == ("date", 20)
    assert "dates become days and their parts" in day.warnings[0]


def test_missing_numbers_are_a_fault_where_settings_refuse_them():
    found = of_frame({"x": [1.0, None, None], "y": [1, 2, 3]}, missing="error")
    (fault,) = found.all_faults
    assert "column 'x' has no value in data row 2 (2 such rows)" in fault
    assert kinds(found) == {"x": "not usable", "y": "number"}


def test_a_range_of_a_column_of_text_is_a_fault():
    (fault,) = of_frame({"x": ["a", "b"]}, ranges={"x": (0.0, 1.0)}).all_faults
    assert "column 'x' has data.ranges but holds string" in fault


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"label": "lable"}, "label"),
        ({"weight": "lable"}, "weight"),
        ({"id": "lable"}, "id"),
        ({"columns": ("x", "lable")}, "columns"),
        ({"categorical": "lable"}, "categorical"),
        ({"ranges": {"lable": (0, 1)}}, "ranges"),
        ({"categories": {"lable": ("a",)}}, "categories"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_column_that_is_not_there_is_named_with_its_setting_and_the_nearest_name(settings, setting):
    found = of_frame({"x": [1.0, 2.0], "label": [0, 1]}, **settings)
    (fault,) = found.all_faults
    assert f"data.{setting}: there is no column 'lable'; did you mean 'label'?" in fault
    assert kinds(found)["x"] == "number"


def test_two_roles_of_one_column_are_a_fault_of_the_table():
    (fault,) = of_frame({"x": [1, 2], "y": [0, 1]}, label="y", weight="y").all_faults
    assert "column 'y' is named twice among" in fault


def test_keys_to_other_parties_are_keys_and_no_features():
    found = of_frame({"account": [7, 8], "x": [1.0, 2.0]}, keys={"bank": "account"})
    assert kinds(found) == {"account": "key", "x": "number"}
    assert found.encoder.names == ("x",)


def test_labels_and_weights_that_are_text_dates_or_all_zero():
    days = [datetime.date(2026, 1, 1)] * 2
    assert "label column 'd' holds date32[day]" in of_frame({"d": days, "x": [1, 2]}, label="d").all_faults[0]
    assert "holds string; weights are numbers" in of_frame({"w": ["a", "b"], "x": [1, 2]}, weight="w").all_faults[0]
    assert "is zero in every row" in of_frame({"w": [0, 0], "x": [1, 2]}, weight="w").all_faults[0]


def test_a_fault_of_the_weight_leaves_the_labels(tmp_path):
    found = of_text(tmp_path, "x,w,y\n1,-1,a\n2,1,b\n", weight="w", label="y")
    assert found.labels.tolist() == ["a", "b"]
    assert kinds(found) == {"x": "number", "w": "weight", "y": "label"}


@pytest.mark.parametrize(
    "head",
    ["2026-01-01,x", "a@b.example,x", "1.5,x", ",x", "12%,x"],
)
def test_names_that_look_like_cells_are_a_fault_that_does_not_repeat_them(tmp_path, head):
    (fault,) = of_text(tmp_path, f"{head}\n1,2\n").all_faults
    assert "1 of 2 names that look like data" in fault
    assert head.split(",")[0] not in fault or head.startswith(",")


def test_one_odd_name_among_many_is_a_name(tmp_path):
    assert of_text(tmp_path, "2020,b,c\n1,2,3\n2,3,4\n").all_faults == []


def test_test_rows_are_not_blamed_for_training_rows_that_cannot_be_read(tmp_path):
    train = of_text(tmp_path, "1,2\n3,4\n")
    (tmp_path / "test.csv").write_text("a,b\n1,2\n")
    settings = DataSettings(path=tmp_path / "rows.csv", test_path=tmp_path / "test.csv")
    found = profile_test_rows(origins_of(settings)[1], settings, train)
    assert len(train.all_faults) == 1
    assert found.all_faults == []
    assert found.columns == ()


def test_test_rows_without_rows_or_label_are_faults(tmp_path):
    settings = DataSettings(path=tmp_path / "rows.csv", test_path=tmp_path / "test.csv", label="y")
    train = of_text(tmp_path, "x,y\n1,0\n2,1\n", label="y")
    for text, words in (("x,y\n", "it has no rows"), ("x\n1\n", "there is no label column 'y'")):
        (tmp_path / "test.csv").write_text(text)
        (fault,) = profile_test_rows(origins_of(settings)[1], settings, train).all_faults
        assert words in fault


@examples(suppress_health_check=[HealthCheck.too_slow], max_examples=15)
@given(tables())
def test_a_table_without_a_fault_is_one_that_a_run_takes_with_the_same_features(table):
    settings = data_settings().model_copy(update={"path": None})
    found = profile_rows(frame_origins(table)[0], settings)
    try:
        (source,) = open_sources(settings, origins=frame_origins(table))
        names = source.encoder.names
        for _ in source.chunks():
            pass
    except DataError:
        assert found.all_faults
    else:
        assert found.all_faults == []
        assert found.encoder.names == names
        assert found.rows == len(table)


def test_files_of_numbered_features_have_counts_and_no_columns(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n-1 2:1\n1 1:1\n")
    settings = DataSettings(path=tmp_path / "a.svm", format="libsvm")
    (found,) = profile_matrices(origins_of(settings), settings)
    assert (found.rows, found.columns, found.has_ids, found.all_faults) == (3, (), False, [])
    assert found.entries == pytest.approx(4 / 3)
    assert found.labels.tolist() == [1, -1, 1]


def test_a_matrix_that_cannot_be_read_is_an_error(tmp_path):
    np.save(tmp_path / "x.npy", np.array([["a"]]))
    settings = DataSettings(path=tmp_path / "x.npy")
    with pytest.raises(DataError):
        profile_matrices(origins_of(settings), settings)
