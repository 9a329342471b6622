"""Wrong input of a newcomer: each gets one clear line, names what is wrong and what to write, and shows no data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fdml.errors import FdmlError
from fdml.federation.party_folder import PartyFolder
from fdml.federation.scaffold import scaffold
from tests.cli.commands import call

HEAD = "user_id,age,city,paid\n"
ROWS = HEAD + "".join(f"u{row},{20 + row % 40},c{row % 3},{row % 2}\n" for row in range(120))


@dataclass(frozen=True)
class Wrong:
    """A command, or some rows that a party has, and what is said."""

    said: str
    words: tuple[str, ...] = ()
    rows: str | bytes = ROWS
    usage: bool = False
    """Whether the command line itself is wrong, which ends with code 2."""


COMPARE = ("compare", "data.csv", "--label", "paid", "--epochs", "1", "--models", "linear")
CASES = {
    # Commands.
    "a plot that is no picture": Wrong(r"--plot is 'x.txt'; let its name end in .png, .pdf, .svg", (*COMPARE, "--plot", "x.txt")),
    "no models": Wrong(r"--models is ''; it takes any of linear", ("compare", "data.csv", "--label", "paid", "--models", "")),
    "an unknown model": Wrong(r"--models has 'tree'", ("compare", "data.csv", "--label", "paid", "--models", "tree")),
    "a negative seed": Wrong(r"Invalid value for '--seed'", (*COMPARE, "--seed", "-1"), usage=True),
    "no seeds": Wrong(r"Invalid value for '--seeds'", (*COMPARE, "--seeds", "0"), usage=True),
    "epochs of a run file": Wrong(r"--epochs is for a data file; a run has its settings in run.toml", ("compare", "run/run.toml", "--epochs", "3")),
    "a label of a run file": Wrong(r"--label is for a data file", ("compare", "run/run.toml", "--label", "paid")),
    "a batch size of a run file": Wrong(r"--batch-size is for a data file", ("compare", "run/run.toml", "--batch-size", "7")),
    "a label that is not there": Wrong(r"there is no label column 'piad'; did you mean 'paid'", ("compare", "data.csv", "--label", "piad")),
    "groups that are not there": Wrong(r"there is no feature or column 'town'; there are: user_id, age, city$", (*COMPARE, "--groups", "town; age")),
    "a folder of other files": Wrong(r"empty: no CSV or Parquet file is there; correct data.path", ("compare", "empty", "--label", "paid")),
    "a file that is not there": Wrong(r"there is no file '.*none.csv'; correct data.path", ("compare", "none.csv", "--label", "paid")),
    "a party.toml for a federation.toml": Wrong(r"this is a party.toml; give the federation.toml", ("serve", "run/ann/party.toml", "--plain")),
    "a party.toml to compare": Wrong(r"this is a party.toml; give the run.toml", ("compare", "run/ann/party.toml")),
    "a run.toml for a party.toml": Wrong(r"this is a run.toml; give the party.toml", ("join", "run/run.toml", "--plain")),
    "a folder for a run.toml": Wrong(r"'run' is a folder; name the file in it: federation.toml, run.toml or party.toml", ("serve", "run", "--plain")),
    "a port that is none": Wrong(r"address is '127.0.0.1:99999'; write it as host:port.*up to 65535", ("join", "run/ann/party.toml", "--plain", "--server", "127.0.0.1:99999")),
    "a port that is none to listen at": Wrong(r"address is '127.0.0.1:99999'", ("serve", "run/federation.toml", "--plain", "--listen", "127.0.0.1:99999")),
    "a port that is none of a new run": Wrong(r"address is 'host:99999'", ("new", "other", "--parties", "a,b", "--server", "host:99999")),
    "no port": Wrong(r"address is 'localhost'; write it as host:port", ("join", "run/ann/party.toml", "--plain", "--server", "localhost")),
    "a party called server": Wrong(r"party name 'server' is taken; give the party another name", ("new", "other", "--parties", "server,c")),
    "a party called Müller": Wrong(r"party name 'Müller' cannot name a folder; use at most 64 letters a to z", ("new", "other", "--parties", "Müller,c")),
    # Rows.
    "semicolons": Wrong(r'first line has semicolons and no commas; set data.delimiter = ";"', rows=ROWS.replace(",", ";")),
    "semicolons and decimal commas": Wrong(r'set data.delimiter = ";"', rows=ROWS.replace(",", ";").replace(";2", ";2,5")),
    "tabs": Wrong(r'first line has tabs and no commas; set data.delimiter = "\\t"', rows=ROWS.replace(",", "\t")),
    "Latin-1": Wrong(r'column \'city\' holds bytes that are no UTF-8 text; set data.encoding = "latin-1"', rows=ROWS.replace("c1", "Zürich").encode("latin-1")),
    "UTF-16": Wrong(r'it is written in UTF-16; set data.encoding = "utf-16"', rows=ROWS.encode("utf-16")),
    "a comma too many": Wrong(r"Row #4, Expected 4 columns, got 5|Expected 4 columns, got 5", rows=ROWS.replace("u2,", "u2,secret-cell,")),
    "decimal commas": Wrong(r"column 'age' holds numbers with a decimal comma, as text; set data.decimal", rows=re.sub(r",(2\d|3\d|4\d|5\d),", r',"\1,25",', ROWS)),
    "percent signs": Wrong(r"column 'age' holds numbers with a percent sign, as text; write them without it", rows=re.sub(r",(\d\d),", r",\1.4%,", ROWS)),
    "no rows": Wrong(r"it has no rows; give a file with at least one", rows=HEAD),
    "an id twice": Wrong(r"it has 1 rows with a duplicate id", rows=ROWS + "u7,30,c1,1\n"),
    "no label in a row": Wrong(r"label column 'paid' has no value in data row 121", rows=ROWS + "u900,30,c1,\n"),
    "two columns of one name": Wrong(r"two columns are named 'age'; rename one", rows=ROWS.replace("city", "age", 1)),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A data file, and a run beside it."""
    home = tmp_path_factory.mktemp("newcomer")
    (home / "data.csv").write_text(ROWS)
    (home / "empty").mkdir()
    scaffold(home / "run", ["ann", "bob"], "127.0.0.1:7443")
    return home


@pytest.mark.slow
def test_a_column_that_looks_like_an_id_is_remarked_on(made, monkeypatch):
    monkeypatch.chdir(made)
    result = call(*COMPARE)
    assert result.exit_code == 0, result.output
    assert "column 'user_id' has another text in each of its 120 rows" in result.output
    assert "column 'user_id'" not in call(*COMPARE, "--ignore", "user_id").output


@pytest.mark.slow
def test_groups_that_overlap_are_remarked_on(made, monkeypatch):
    monkeypatch.chdir(made)
    assert "column 'age' is in group 1 and in group 2" in call(*COMPARE, "--groups", "age,city; age").output


def test_a_label_at_another_party_is_refused(made):
    path = made / "run" / "bob" / "party.toml"
    text = path.read_text()
    path.write_text(text.replace('id = "user_id"', 'id = "user_id"\nlabel = "sex"'))
    with pytest.raises(FdmlError, match=r"data.label is set at party 'bob', but the labels are those of 'ann'"):
        PartyFolder(path)
    path.write_text(text)


@pytest.mark.parametrize("case", [name for name, wrong in CASES.items() if wrong.words])
def test_a_wrong_command_gets_one_clear_line(case, made, monkeypatch):
    monkeypatch.chdir(made)
    wrong = CASES[case]
    result = call(*wrong.words)
    if wrong.usage:
        assert result.exit_code == 2
        assert re.search(wrong.said, " ".join(result.output.split())), result.output
        return
    assert result.exit_code == 1, result.output
    check_line(result.exception, wrong.said)


@pytest.mark.parametrize("case", [name for name, wrong in CASES.items() if not wrong.words])
def test_wrong_rows_get_one_clear_line(case, tmp_path):
    wrong = CASES[case]
    content = wrong.rows if isinstance(wrong.rows, bytes) else wrong.rows.encode()
    (tmp_path / "data.csv").write_bytes(content)
    (tmp_path / "federation.toml").write_text('parties = ["ann", "bob"]\n')
    (tmp_path / "run.toml").write_text('label_party = "ann"\n')
    settings = (
        'party = "ann"\nfederation = "federation.toml"\n[data]\npath = "data.csv"\nid = "user_id"\nlabel = "paid"\n'
    )
    (tmp_path / "party.toml").write_text(settings)
    with pytest.raises(FdmlError) as raised:
        PartyFolder(tmp_path / "party.toml").files.row_ids()
    check_line(raised.value, wrong.said)


def check_line(error: BaseException | None, said: str) -> None:
    assert isinstance(error, FdmlError), error
    text = str(error)
    assert re.search(said, text), text
    assert "\n" not in text
    assert "secret-cell" not in text
