"""A party looked at home: all faults at once, what a run would show and cost, and no value of any row."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from fdml import extras
from fdml.errors import MissingExtra
from fdml.federation.check import as_json, check
from fdml.federation.estimate import estimate_for
from fdml.federation.join import join
from fdml.models.registry import model_settings
from fdml.privacy.disclosures import DISCLOSURES
from fdml.settings import RunSettings
from tests.federation.folders import write_run
from tests.federation.messy import GENDERS, write_companies


@pytest.fixture(scope="module")
def companies(tmp_path_factory):
    home = write_companies(tmp_path_factory.mktemp("messy"))
    return {party: check(home / party / "party.toml") for party in ("bank", "telco", "shop")}


def all_text(report):
    return "\n".join([*report.faults, *report.warnings])


def test_all_six_of_the_bank_s_faults_are_found_in_one_go(companies):
    report = companies["bank"]
    text = all_text(report)
    for words in (
        "ids begin with a zero",
        "15 rows with a duplicate id",
        "column 'income': missing numbers are filled in",
        "column 'product_code': whole numbers of 3 digits that repeat",
        "column 'opened': dates become days and their parts",
        "column 'gender': 5 categories, 4 if case and white space are left out",
    ):
        assert words in text
    assert len(report.faults) == 1, "the duplicates alone would stop the run"


def test_the_telco_s_and_the_shop_s_are_found_too(companies):
    telco, shop = all_text(companies["telco"]), all_text(companies["shop"])
    assert "ids have white space around them, which is taken off" in telco
    assert "column 'plan_text': 1,7" in telco
    assert "a feature each: name it in data.hashed" in telco
    assert "30 rows with a duplicate id" in telco
    assert {column.name for column in companies["telco"].data.columns if column.missing} == {
        f"usage_{number}" for number in (0, 3, 6, 9)
    }
    assert "the ids are stored as numbers, so have no leading zeros" in shop
    assert "4 rows with a duplicate id" in shop


def test_what_the_phone_would_tell_apart(companies):
    patterns = {party: report.data.ids.patterns[0].text for party, report in companies.items()}
    assert patterns == {"bank": "10 digits", "telco": "6 digits", "shop": "6 digits"}


def test_a_party_whose_files_are_mended_is_ready(tmp_path):
    home = write_companies(tmp_path, ("bank",))
    settings = home / "bank" / "party.toml"
    settings.write_text(
        settings.read_text().replace("[data]", '[data.ids]\nduplicates = "first"\nnumbers = "all"\n[data]')
    )
    report = check(settings)
    assert report.faults == []
    assert report.data.ids.leading_zeros == 0
    assert report.classes.count == 2


def test_what_would_be_shown_is_the_privacy_statement_s_own(companies):
    report = companies["bank"]
    assert report.shows == DISCLOSURES["tokens"]
    seen = {(each.role, each.saw) for each in report.statement.exposures}
    assert ("every other party", "the labels of all rows") in seen
    assert ("server", "its predictions of every row") in seen
    labels = {each.saw for each in companies["telco"].statement.exposures}
    assert "the labels of all rows" not in labels


def test_nothing_is_written(tmp_path):
    home = write_companies(tmp_path, ("bank",))
    before = sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*"))
    check(home / "bank" / "party.toml")
    assert sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*")) == before


def test_faults_of_settings_keys_and_data_come_together(tmp_path):
    write_run(tmp_path)
    party = tmp_path / "bob" / "party.toml"
    party.write_text(
        party.read_text()
        .replace('id = "id"', 'id = "idd"\nlabel = "x"\nignore = "nothing"')
        .replace("threads = 1", 'threads = 1\nserver = "nowhere"')
    )
    text = "\n".join(check(party).faults)
    for words in (
        "data.label is set at party 'bob', but the labels are those of 'ann'",
        "the server's address is 'nowhere'",
        "keys",
        "data.id: there is no column 'idd'; did you mean 'id'?",
        "data.ignore: there is no column 'nothing'",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('party = "ann"', 'party = "eve"', "party 'eve' is not among the parties ann, bob"),
        ('label = "label"', "", "label party 'ann' has no labels"),
        ('path = "data.csv"', 'path = "none.csv"', "none.csv"),
        ('label = "label"', 'label = "x"\nignore = "label"', 'task "binary" takes two classes'),
        ("[data]", '[guard]\nclip = 1.0\nnoise = "gaussian"\nsigma = 0.1\nepsilon = 0.001\n[data]', "guard.epsilon"),
        ("[data]", "[guard.training]\nclip = 1.0\nsigma = 1.0\n[data]", 'learning_rate = "auto"'),
        ("[data]", '[model.column_groups]\nweb = ["y"]\n[data]', "names column 'y', which is no feature of this party"),
        ("[data]", '[model.column_groups]\na = ["x"]\nb = ["x"]\n[data]', "has column 'x' twice; a column is in one"),
    ],
)
def test_each_of_these_is_a_fault(tmp_path, old, new, words):
    write_run(tmp_path)
    party = tmp_path / "ann" / "party.toml"
    text = party.read_text()
    assert old in text
    party.write_text(text.replace(old, new))
    assert words in "\n".join(check(party, plain=True).faults)


def test_a_party_without_faults_has_none_and_is_planned(tmp_path):
    write_run(tmp_path)
    report = check(tmp_path / "ann" / "party.toml", plain=True)
    assert report.faults == []
    found = report.estimate
    assert (found.train_rows, found.held_out_rows, found.epochs, found.batch_size) == (96, 24, 2, 8)
    assert found.exchanges == 2 * 6
    assert found.features == 1


def test_a_run_that_cannot_be_read_leaves_the_data_to_be_looked_at(tmp_path):
    write_run(tmp_path)
    report = check(tmp_path / "ann" / "party.toml", tmp_path / "other.toml", plain=True)
    assert "other.toml" in report.faults[0]
    assert report.data.rows == 120
    assert report.estimate is None


def test_a_numpy_file_is_looked_at_as_a_whole(tmp_path):
    write_run(tmp_path)
    np.save(tmp_path / "bob" / "data.npy", np.ones((50, 3), np.float32))
    party = tmp_path / "bob" / "party.toml"
    party.write_text(party.read_text().replace("data.csv", "data.npy").replace('id = "id"\n', ""))
    report = check(party, plain=True)
    assert report.faults == []
    assert report.data.rows == 50
    assert report.estimate.features == 3


CANARIES = ("Zanzibar-7731", "0088771199", "66613.5", "2031-07-19", "canary@example.org")


@pytest.mark.parametrize("id_column", ["id", "nothing", "city"])
@pytest.mark.parametrize("label", ["label", "when", "city"])
def test_no_value_of_a_row_is_in_anything_that_a_check_gives(tmp_path, id_column, label):
    """Ids, texts, numbers, dates and labels of one person, whatever else is wrong."""
    write_run(tmp_path)
    city, person, amount, when, mail = CANARIES
    lines = [f"{person},{city},{amount},{when},{mail},{'' if n == 3 else mail}" for n in range(3)]
    lines += [f"{n:010d},town,{n}.5,2030-01-01,{n}@x.org,no" for n in range(40)]
    (tmp_path / "ann" / "data.csv").write_text("\n".join(["id,city,amount,when,mail,label", *lines]) + "\n")
    party = tmp_path / "ann" / "party.toml"
    party.write_text(
        party.read_text().replace('id = "id"', f'id = "{id_column}"').replace('label = "label"', f'label = "{label}"')
    )
    report = check(party, plain=True)
    given = json.dumps(as_json(report))
    assert report.faults
    for value in (*CANARIES, "town"):
        assert value not in given


def test_the_messy_files_give_no_value_away(companies):
    for report in companies.values():
        given = json.dumps(as_json(report))
        for value in (*GENDERS, "level 1"):
            assert f'"{value}"' not in given
        assert "labels" not in as_json(report)["data"]


def test_an_estimate_grows_with_rows_and_falls_with_bits():
    def of(rows, **training):
        run = RunSettings(federation="f", parties=("a", "b"), label_party="a", training=training)
        known = {"features": 20, "entries": 20.0, "test_rows": None, "width": 1, "pass_seconds": 1.0}
        return asdict(estimate_for(run, model_settings(), rows=rows, **known)[0])

    small, large = (of(rows, epochs=10, batches_per_block=64) for rows in (10_000, 1_000_000))
    for name in ("train_seconds", "memory_bytes", "disk_bytes", "sent_bytes", "received_bytes"):
        assert small[name] < large[name]
    assert of(10_000, value_bits=16)["sent_bytes"] < of(10_000, value_bits=64)["sent_bytes"]
    assert large["disk_bytes"] == 1_000_000 * 20 * 4


def test_workers_over_ray_that_is_not_installed_are_a_fault_and_nobody_waits_for_them(tmp_path, monkeypatch):
    write_run(tmp_path)
    path = tmp_path / "ann" / "party.toml"
    path.write_text(path.read_text() + '\n[workers]\nkind = "ray"\naddress = "10.0.0.1:6379"\n')
    assert not [each for each in check(path, plain=True).faults if "workers" in each]
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "ray" else name)
    assert [each for each in check(path, plain=True).faults if 'workers.kind = "ray" needs Ray' in each]
    with pytest.raises(MissingExtra, match=r"fdml\[cluster\]"):
        join(path, plain=True)
