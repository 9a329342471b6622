"""With [guard.training] nothing that is made of all rows comes before the noise: it follows from settings, or is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fdml.data.readers import load
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, to_dense, width
from fdml.data.sources import open_sources
from fdml.errors import DataError, SettingsError
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, training_task
from fdml.party.record_level import check_encoder, check_rate, check_record_level
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings
from fdml.settings_data import DataSettings

GUARDED = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=20.0))
DIRECT = GuardSettings(clip=3.0, noise="gaussian", sigma=3.0)
RATE = TrainingSettings(learning_rate=0.1)
COLUMNS = {"id": range(6), "age": [30, 41, 55, 28, 39, 62], "colour": ["red", "blue", "red", "red", "blue", "blue"]}


def file_of(folder, columns=COLUMNS, name="rows.csv"):
    path = folder / name
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def data_of(path, **settings):
    return DataSettings(path=path, id="id", **settings)


def check(data, guard=GUARDED, training=RATE, model=None):
    check_record_level(guard, training, model or model_settings(), data)
    check_encoder(guard, data, open_sources(data)[0].encoder)


REFUSED = {
    "scaling": ({"hashed": "colour"}, r"column 'age' is scaled by the mean .* \[data.ranges\] with age = \[lowest, highest\]"),
    "categories": ({"scale": "none"}, r"column 'colour' has the categories that its rows hold.* colour = \[\"one\", \"two\"\], or name"),
    "number codes": (
        {"categorical": "age", "hashed": "colour"},
        r"column 'age' has the categories that its rows hold",
    ),
    "means of missing numbers": (
        {"scale": "none", "hashed": "colour", "missing": "mean"},
        r'data.missing = "mean" takes the mean of all rows.*set data.missing = "zero"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_made_of_all_rows_is_refused_with_what_to_write_instead(tmp_path, case):
    """Finding 3: scaling, categories and step size carried each row to every prediction without noise."""
    settings, message = REFUSED[case]
    data = data_of(file_of(tmp_path), **settings)
    with pytest.raises(SettingsError, match=message + r".*, or leave \[guard.training\] out of party.toml"):
        check(data)
    check(data, guard=DIRECT)
    check(data, guard=GuardSettings())


ALLOWED = {
    "ranges and categories": {"ranges": {"age": (0, 120)}, "categories": {"colour": ["red", "blue"]}},
    "as they are and hashed": {"scale": "none", "hashed": "colour"},
    "zeros": {"ranges": {"age": (0, 120)}, "hashed": "colour", "missing": "zero"},
    "number codes": {"categories": {"age": ["30", "41"], "colour": ["red"]}},
    "columns left out": {"columns": ["age"], "ranges": {"age": (0, 120)}},
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_follows_from_settings_is_allowed(tmp_path, case):
    check(data_of(file_of(tmp_path), **ALLOWED[case]))


@pytest.mark.parametrize("case", ALLOWED)
@pytest.mark.parametrize("change", [{"age": 10**6}, {"age": -5}, {"colour": "ultraviolet"}, {"colour": ""}])
def test_no_row_changes_how_another_is_encoded(tmp_path, case, change):
    """The files differ in one row; all other rows have the same features to the bit, and all as many."""
    columns = {name: [*values[:-1], change.get(name, values[-1])] for name, values in COLUMNS.items()}
    tables = []
    for name, given in (("one.csv", COLUMNS), ("two.csv", columns)):
        data = data_of(file_of(tmp_path, given, name), **ALLOWED[case])
        check(data)
        tables.append(load(data).train.rows)
    assert width(tables[0]) == width(tables[1])
    assert type(tables[0]) is type(tables[1])
    np.testing.assert_array_equal(to_dense(tables[0])[:-1], to_dense(tables[1])[:-1])


def test_text_in_a_column_of_numbers_is_an_error_before_anything_is_made(tmp_path):
    columns = {**COLUMNS, "age": [30, 41, 55, 28, 39, "old"]}
    with pytest.raises(DataError, match=r"column 'age' has data.ranges but holds string"):
        check(data_of(file_of(tmp_path, columns), ranges={"age": (0, 120)}, hashed="colour"))
    with pytest.raises(SettingsError, match=r"column 'age' has the categories"):
        check(data_of(file_of(tmp_path, columns), scale="none", hashed="colour"))


@pytest.mark.parametrize(
    ("training", "model"),
    [
        (TrainingSettings(learning_rate="auto"), model_settings()),
        (TrainingSettings(learning_rate=0.1), model_settings(learning_rate="auto")),
        (TrainingSettings(learning_rate="auto"), model_settings("mlp")),
    ],
)
def test_a_step_size_made_of_rows_is_refused(training, model):
    with pytest.raises(SettingsError, match=r"set model.learning_rate to a number, 0.1 for one, or leave"):
        check_rate(training, model)
    plan = Plan(training, {"p": model}, "p", "logistic", 2)
    rows = RowSet({"p": as_rows(np.eye(4, dtype=np.float32))}, np.arange(4) % 2.0, np.ones(4))
    with pytest.raises(SettingsError, match=r'learning_rate = "auto" is made of the lengths of all rows'):
        training_task(plan, rows, "p", private=True)
    training_task(plan, rows, "p")


def test_a_step_size_of_the_partys_own_is_enough():
    check_rate(TrainingSettings(learning_rate="auto"), model_settings(learning_rate=0.2))


def test_a_libsvm_file_is_refused_as_its_width_follows_from_its_rows(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0.5 7:1\n0 2:1\n")
    with pytest.raises(SettingsError, match=r"a LIBSVM file has as many features as the largest number"):
        check(DataSettings(path=path))
    check(DataSettings(path=path), guard=DIRECT)


def test_a_numpy_file_is_taken_as_it_is(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(3))
    check(DataSettings(path=tmp_path / "rows.npy"))


def test_a_column_whose_name_needs_quotes_is_named_so(tmp_path):
    pa.parquet.write_table(pa.table({"hours per week": [1.0, 2.0]}), tmp_path / "rows.parquet")
    with pytest.raises(SettingsError, match=r'with "hours per week" = \[lowest'):
        check(DataSettings(path=tmp_path / "rows.parquet"))
