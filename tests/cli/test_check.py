import json

import pytest

from tests.cli.commands import call, succeed
from tests.federation.folders import write_run
from tests.federation.messy import write_companies


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path).parent


def test_a_party_that_is_ready_ends_with_exit_code_0(run):
    text = succeed("check", run / "ann" / "party.toml", "--plain")
    lines = text.splitlines()
    assert lines[0].endswith("data.csv: 120 rows")
    assert lines[1].split() == ["column", "kind", "missing", "distinct", "features"]
    assert ["x", "number", "0", "120", "1"] in [line.split()[:5] for line in lines]
    for words in (
        "labels: 2 classes, the rarest ",
        "The ids, to compare over the phone:",
        "What finding the shared rows would show of ann:",
        "What training would show of ann:",
        "An estimate, if all rows are shared",
        "ann: ready to join",
    ):
        assert words in text


def test_a_fault_ends_with_exit_code_1_and_all_of_them_in_the_file(tmp_path):
    home = write_companies(tmp_path / "run", ("bank",))
    result = call("check", home / "bank" / "party.toml", "--json", tmp_path / "check.json")
    assert result.exit_code == 1
    assert "bank: not ready, see the faults" in result.stdout
    assert "1 fault:" in result.stdout
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["party"] == "bank"
    assert len(found["faults"]) == 1
    assert {column["name"]: column["kind"] for column in found["data"]["columns"]}["opened"] == "date"
    assert found["estimate"]["epochs"] > 0
    assert found["data"]["ids"]["patterns"][0]["text"] == "10 digits"


def test_markup_and_control_characters_in_names_are_printed_as_they_are(run):
    path = run / "bob" / "data.csv"
    path.write_text(path.read_text().replace("id,x", "id,[bold]x\x1b[2J", 1))
    text = succeed("check", run / "bob" / "party.toml", "--plain")
    assert "[bold]x\\x1b[2J" in text
    assert "\x1b" not in text


def test_a_party_toml_that_is_none_is_a_fault(run):
    result = call("check", run / "run.toml", "--plain")
    assert result.exit_code == 1
    assert "1 fault:" in result.stdout


def test_no_value_of_a_row_is_printed(run):
    """Of a file with one of every kind of trouble: duplicates, a comma for a point, text for a number."""
    canaries = ("Zanzibar-7731", "0088771199", "66613,5", "2031-07-19")
    city, person, amount, when = canaries
    lines = [f'{person},{city},"{amount}",{when},yes'] * 2 + [
        f'{n:010d},x{n},"{n},5",2030-01-01,no' for n in range(150)
    ]
    (run / "ann" / "data.csv").write_text("\n".join(["id,city,amount,when,label", *lines]) + "\n")
    result = call("check", run / "ann" / "party.toml", "--plain")
    assert result.exit_code == 1
    assert "column 'amount' holds numbers with a decimal comma" in " ".join(result.output.split())
    for value in (*canaries, "x77", "0000000077", "2030"):
        assert value not in result.output
