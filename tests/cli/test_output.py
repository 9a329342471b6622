import json
from dataclasses import replace

import pytest
import typer
from rich.table import Table

from fdml import extras
from fdml.cli.output import (
    check_plot,
    check_writable,
    comparison_json,
    comparison_table,
    echo,
    gain_lines,
    joint_over_pooled,
    resumable,
    run_name,
    stdout,
    write_json,
)
from fdml.errors import MissingExtra, SettingsError
from fdml.monitor.history import EpochRecord, Gain, LearningCurve

CURVES = [
    LearningCurve("LR", "alone", (EpochRecord(1, 0.5, 0.7, 0.6, 0.8),)),
    LearningCurve("LR", "joint", (EpochRecord(1, 0.5, 0.6, 0.5, 0.85), EpochRecord(2, 1.0, 0.5, 0.4, 0.9))),
]


def cells(table):
    return [list(column.cells) for column in table.columns]


def test_the_table_has_the_last_epoch_of_every_curve():
    columns = cells(comparison_table(CURVES, "auc"))
    assert columns == [
        ["LR", "LR"], ["alone", "joint"], ["0.7000", "0.5000"], ["0.6000", "0.4000"], ["0.8000", "0.9000"],
        ["0.50", "1.00"],
    ]  # fmt: skip


def test_words_in_square_brackets_are_printed_as_they_are(capsys):
    table = Table("run", "more")
    table.add_row("first", "not before Monday [/bold] [see mail] :boom:")
    stdout.print(table)
    assert "not before Monday [/bold] [see mail] :boom:" in capsys.readouterr().out


def test_the_paper_s_figures_are_beside_ours_where_it_has_some():
    paper = {("LR", "joint"): EpochRecord(1, 38.0, 0.0, 0.4512, 0.9026)}
    assert cells(comparison_table(CURVES, "auc", paper))[6:] == [["-", "0.4512"], ["-", "0.9026"], ["-", "38"]]


def test_the_json_has_the_last_epochs_as_rows_and_all_as_history():
    found = comparison_json(CURVES, "accuracy", {"seeds": 1})
    assert found["seeds"] == 1
    assert found["rows"][1] == {
        "model": "LR", "scheme": "joint", "train_objective": 0.5, "test_loss": 0.4, "test_accuracy": 0.9, "seconds": 1.0,
        "convergence": None,
    }  # fmt: skip
    assert [(row["scheme"], row["epoch"]) for row in found["history"]] == [("alone", 1), ("joint", 1), ("joint", 2)]


def test_what_joint_training_brings_is_in_words_and_in_the_json():
    joint = replace(CURVES[1], gains={"alone": Gain(0.1, 0.08, 0.12), "late fusion": Gain(0.0, -0.01, 0.01)})
    assert list(gain_lines([CURVES[0], joint], "auc")) == [
        "LR: joint brings +0.100 (0.080 to 0.120) AUC over alone",
        "LR: joint brings no certain gain: +0.000 (-0.010 to 0.010) AUC over late fusion",
    ]
    rows = comparison_json([CURVES[0], joint], "auc", {})["rows"]
    assert rows[1]["gains"]["alone"] == {"value": 0.1, "low": 0.08, "high": 0.12}
    assert "gains" not in rows[0]


def test_joint_seconds_are_told_as_times_those_of_pooled_training_where_there_are_some():
    pooled = LearningCurve("LR", "pooled", (EpochRecord(2, 0.8, 0.6, 0.5, 0.85),))
    assert joint_over_pooled([*CURVES, pooled]) == {"LR": 1.25}
    assert joint_over_pooled(CURVES) == {}


def test_ctrl_c_ends_a_command_with_130_and_one_line_says_how_to_go_on(capsys):
    with pytest.raises(typer.Exit) as ended, resumable("fdml join [ann]/party.toml"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "fdml: stopped; `fdml join [ann]/party.toml` goes on from here\n"


def test_other_errors_pass_through():
    with pytest.raises(SettingsError), resumable("fdml join"):
        raise SettingsError("no")


def test_a_line_is_printed_as_it_is(capsys):
    text = "[guard] " + "x" * 300
    echo(text)
    assert capsys.readouterr().out == text + "\n"


def test_a_file_that_cannot_be_written_is_named_before_the_work(tmp_path):
    check_writable(None, tmp_path / "figures.json")
    with pytest.raises(SettingsError, match=r"there is no folder .*missing'; make it first"):
        check_writable(tmp_path / "missing" / "figures.json")
    with pytest.raises(SettingsError, match="it is a folder; name a file"):
        check_writable(tmp_path)


def test_a_plot_that_could_not_be_drawn_or_written_is_refused_before_the_work(tmp_path, monkeypatch):
    check_plot(tmp_path / "plot.png")
    with pytest.raises(SettingsError, match="there is no folder"):
        check_plot(tmp_path / "missing" / "plot.png")
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    check_plot(None)
    with pytest.raises(MissingExtra, match=r"--plot needs matplotlib; install it with `pip install fdml\[plots\]`"):
        check_plot(tmp_path / "plot.png")


def test_figures_are_written_where_asked_and_nowhere_else(tmp_path, capsys):
    write_json(None, {"a": 1})
    assert capsys.readouterr().err == ""
    write_json(tmp_path / "figures.json", {"a": 1})
    assert json.loads((tmp_path / "figures.json").read_text()) == {"a": 1}
    assert capsys.readouterr().err == f"figures written to {tmp_path / 'figures.json'}\n"


def test_the_name_of_a_run_is_that_of_its_file(tmp_path):
    (tmp_path / "run.toml").write_text('name = "first"\nlabel_party = "ann"\n')
    (tmp_path / "run.json").write_text('{"name": "second"}')
    (tmp_path / "none.toml").write_text("")
    federation = tmp_path / "federation.toml"
    assert run_name(None, federation) == "first"
    assert run_name(tmp_path / "run.json", federation) == "second"
    assert run_name(tmp_path / "none.toml", federation) == ""
