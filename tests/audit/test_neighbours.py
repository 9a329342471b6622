"""A15 on recorded runs: it finds what one row does through scaling, and passes where settings took its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from benchmarks.neighbours import CASES, PARTY, neighbours
from fdml.audit.neighbours import (
    LONG_AGO,
    OUTLIER,
    STRANGER,
    changed_file,
    check_neighbours,
    single_file,
    tell_apart,
    with_rate,
)
from fdml.audit.recording import PartyFile
from fdml.data.sources import open_sources
from fdml.errors import SettingsError
from fdml.settings import GuardSettings
from fdml.settings.data import DataSettings
from tests.audit.in_process_recording import record_in_process

ROWS = 5000
SCALED = CASES[0]


def recorded(folder, *, former, guard=None):
    """The recording of a run whose party read its rows from a file, prepared as now or by all rows."""
    one, _ = neighbours(SCALED, folder, rows=ROWS, former=former)
    recording = record_in_process(one.plan, one.rows)
    path = folder / "rows.csv"
    data = DataSettings(path=path) if former else SCALED.data(path)
    file = PartyFile(data, guard or one.plan.guards[PARTY], np.arange(ROWS))
    return replace(recording, truth=replace(recording.truth, files={PARTY: file}))


def result_of(recording, runs=50):
    return {result.view: result for result in check_neighbours(recording, runs)}[
        f"whoever sees what party {PARTY!r} releases"
    ]


@pytest.mark.slow
def test_a_run_prepared_by_settings_passes(tmp_path):
    result = result_of(recorded(tmp_path, former=False))
    assert (result.test, result.outcome) == ("A15", "PASS")
    assert result.score <= result.details["claimed"] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_run_of_the_former_kind_fails(tmp_path):
    """Finding 3: its scaling tells of one row through all others."""
    result = result_of(recorded(tmp_path, former=True))
    assert result.outcome == "FAIL"
    assert result.score > result.details["claimed"]
    assert "differ in one row" in result.reason


@pytest.mark.parametrize("guard", [GuardSettings(), GuardSettings(clip=3.0, noise="gaussian", sigma=9.0)])
def test_where_nothing_is_claimed_of_a_record_nothing_is_tried(tmp_path, guard):
    assert {each.outcome for each in check_neighbours(recorded(tmp_path, former=False, guard=guard), 2)} == {
        "NOT APPLICABLE"
    }


def test_a_changed_csv_file_differs_in_one_row(tmp_path):
    (tmp_path / "rows.csv").write_text('id,age,colour\n1,30,red\n2,40,"blue, dark"\n3,50,red\n')
    data = DataSettings(path=tmp_path / "rows.csv", id="id")
    changed = changed_file(data, 1, open_sources(data)[0].encoder, tmp_path)
    lines = changed.path.read_text().splitlines()
    assert lines == ["id,age,colour", "1,30,red", f"2,{OUTLIER:.0f},{STRANGER}", "3,50,red"]


def test_a_changed_parquet_file_keeps_its_types(tmp_path):
    columns = {"age": pa.array([30, 40], pa.int32()), "code": pa.array([1, 2], pa.int16()), "paid": [True, False],
               "word": ["a", None]}  # fmt: skip
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    data = DataSettings(path=tmp_path / "rows.parquet", categorical="code")
    changed = pa.parquet.read_table(changed_file(data, 1, open_sources(data)[0].encoder, tmp_path).path)
    assert changed.schema.types == pa.table(columns).schema.types
    assert changed.to_pylist() == [
        {"age": 30, "code": 1, "paid": True, "word": "a"},
        {"age": int(OUTLIER), "code": 3, "paid": False, "word": STRANGER},
    ]


def test_other_files_have_no_neighbour_here(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(3))
    with pytest.raises(SettingsError, match="only a single CSV or Parquet file has a neighbour here"):
        changed_file(
            DataSettings(path=tmp_path / "rows.npy"),
            0,
            open_sources(DataSettings(path=tmp_path / "rows.npy"))[0].encoder,
            tmp_path,
        )


def changed_lines(data, row):
    folder = data.path.parent
    changed = changed_file(data, row, open_sources(data)[0].encoder, folder)
    assert changed.path != data.path
    assert changed.test_path is None
    return changed.path.read_text(encoding=data.encoding).splitlines()


def test_a_date_becomes_one_of_long_ago(tmp_path):
    (tmp_path / "rows.csv").write_text("day,size\n2020-01-02,1.5\n2021-03-04,2.5\n2022-05-06,3.5\n")
    lines = changed_lines(DataSettings(path=tmp_path / "rows.csv"), 2)
    assert lines == ["day,size", "2020-01-02,1.5", "2021-03-04,2.5", f"{LONG_AGO},{OUTLIER:.0f}"]


def test_a_file_of_another_delimiter_and_encoding_keeps_both(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("größe;farbe\n1.5;grün\n2.5;blau\n", encoding="latin-1")
    lines = changed_lines(DataSettings(path=path, delimiter=";", encoding="latin-1"), 0)
    assert lines == ["größe;farbe", f"{OUTLIER:.0f};{STRANGER}", "2.5;blau"]


def test_a_parquet_column_without_any_value_gets_a_word(tmp_path):
    columns = {"size": [1.0, 2.0], "word": pa.array([None, None], pa.string())}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    data = DataSettings(path=tmp_path / "rows.parquet", categories={"word": ("a", "b")})
    changed = pa.parquet.read_table(changed_file(data, 0, open_sources(data)[0].encoder, tmp_path).path)
    assert changed.to_pylist() == [{"size": OUTLIER, "word": STRANGER}, {"size": 2.0, "word": None}]


def test_only_one_csv_or_parquet_file_counts_as_a_single_one(tmp_path):
    (tmp_path / "rows.csv").write_text("size\n1.5\n")
    (tmp_path / "rows.svm").write_text("1 1:1.5\n")
    assert single_file(DataSettings(path=tmp_path / "rows.csv")) == tmp_path / "rows.csv"
    for path in (tmp_path, tmp_path / "rows.svm", tmp_path / "missing.csv"):
        assert single_file(DataSettings(path=path)) is None


def test_rows_that_are_in_no_single_file_are_not_tried(tmp_path):
    recording = recorded(tmp_path, former=False)
    file = recording.truth.files[PARTY]
    folder = replace(file, data=file.data.model_copy(update={"path": tmp_path}))
    result = result_of(replace(recording, truth=replace(recording.truth, files={PARTY: folder})), 2)
    assert (result.outcome, result.reason) == (
        "NOT APPLICABLE",
        "only a single CSV or Parquet file is changed in one row",
    )


def test_a_file_and_itself_cannot_be_told_apart(tmp_path):
    one, _ = neighbours(SCALED, tmp_path, rows=40)
    told = tell_apart(one, one, PARTY, 10)
    assert told.found == 0.0
    assert told.claimed == pytest.approx(1.0)
    assert told.runs == 10


def test_a_step_size_found_in_the_rows_becomes_a_number_of_that_party_alone(tmp_path):
    one, _ = neighbours(SCALED, tmp_path, rows=40)
    models = {**one.plan.models, PARTY: one.plan.models[PARTY].model_copy(update={"learning_rate": "auto"})}
    found = with_rate(replace(one.plan, models=models), one.rows, PARTY)
    assert found.models[PARTY].learning_rate > 0.0
    others = {name: model for name, model in found.models.items() if name != PARTY}
    assert others == {name: model for name, model in one.plan.models.items() if name != PARTY}
