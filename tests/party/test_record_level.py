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
from fdml.experiments.in_memory import RowsInMemory
from fdml.models.registry import model_settings
from fdml.party.member import Member
from fdml.party.plan import Plan, training_task
from fdml.party.record_level import check_encoder, check_rate, check_record_level, check_repeats
from fdml.privacy.noise import NoiseKey
from fdml.settings import GradientGuardSettings, GuardSettings, RunSettings, TrainingSettings
from fdml.settings.data import DataSettings

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
    "a column hashed for its many categories": (
        {"ranges": {"age": (0, 120)}, "max_categories": 1},
        r"column 'colour' is hashed as its rows hold more than 1 categories.*name the column in data.hashed",
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


@pytest.mark.parametrize("more", [{"ranges": {"age": (0, 120)}}, {"scale": "none"}])
def test_an_indicator_is_refused_as_it_follows_from_a_row(tmp_path, more):
    """Without missing numbers the default gives what settings alone give, the fill included."""
    settings = {"hashed": "colour", **more}
    whole = data_of(file_of(tmp_path, name="whole.csv"), **settings)
    check(whole)
    (number, *_) = open_sources(whole)[0].encoder.features
    assert number.fill == (60.0 if "ranges" in more else 0.0)
    missing = data_of(file_of(tmp_path, {**COLUMNS, "age": [30, 41, "", 28, 39, 62]}), **settings)
    with pytest.raises(
        SettingsError, match=r"column 'age' has an indicator of missing numbers.*set data.missing = \"zero\""
    ):
        check(missing)
    check(missing.model_copy(update={"missing": "zero"}))
    check(missing, guard=DIRECT)


def test_an_indicator_of_a_matrix_is_refused_too(tmp_path):
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    with pytest.raises(SettingsError, match=r"feature 2 has an indicator of missing numbers"):
        check(DataSettings(path=tmp_path / "rows.npy"))
    check(DataSettings(path=tmp_path / "rows.npy", missing="zero"))


def test_dates_need_a_range_in_days(tmp_path):
    columns = {**COLUMNS, "joined": [f"2026-11-0{day}" for day in range(1, 7)]}
    settings = {"ranges": {"age": (0, 120)}, "hashed": "colour"}
    with pytest.raises(
        SettingsError,
        match=r"column 'joined' is scaled by the mean .* range in days since 1970 .*joined = \[lowest, highest\]",
    ):
        check(data_of(file_of(tmp_path, columns), **settings))
    ranged = {**settings, "ranges": {"age": (0, 120), "joined": (18_000, 22_000)}}
    check(data_of(file_of(tmp_path, columns), **ranged))


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


# Rows that repeat: one release of the ledger would be many of a row.

KEYED = RunSettings(parties=("flights", "weather"), label_party="flights", keys={"weather": ["hour"]})


@pytest.mark.parametrize("guard", [DIRECT, GUARDED], ids=["noise on predictions", "noise in training"])
def test_noise_at_a_party_whose_rows_repeat_is_refused(guard):
    with pytest.raises(SettingsError, match=r"released with every row that points to it.*take it out of \[keys\]"):
        check_repeats(guard, KEYED, "weather")
    rows = RowsInMemory("weather", RowSet({}, np.zeros(1), np.ones(1)), None, 2)
    with pytest.raises(SettingsError, match="party 'weather' is in"):
        Member(run=KEYED, name="weather", data=rows, noise=NoiseKey(b"secret"), guard=guard)


@pytest.mark.parametrize("party", ["flights", "weather"])
def test_a_clip_and_noise_at_a_party_whose_rows_do_not_repeat_may_stay(party):
    check_repeats(GuardSettings(clip=3.0), KEYED, party)
    check_repeats(DIRECT, KEYED, "flights")
    check_repeats(DIRECT, KEYED.model_copy(update={"keys": {}, "unmatched": "keep"}), party)
