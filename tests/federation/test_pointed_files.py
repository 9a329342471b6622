"""Files of a party that rows of the label party point to, and the label party's keys."""

import numpy as np
import pytest

from fdml.data.encoders import encoder_from_json
from fdml.data.rows import PointedRows, mean_square_norm, plain_rows, row_count, to_dense
from fdml.errors import DataError, SettingsError
from fdml.experiments.in_memory import KEY
from fdml.federation.party_files import PartyFiles
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings

KEYS = {"weather": ["origin", "hour"], "planes": ["tail"]}
WEATHER = "origin,hour,wind,sky\nJFK,5,1.5,clear\nLGA,5,2.25,rain\nJFK,6,-4.125,fog\nEWR,6,100,hail\n"
FLIGHTS = "origin,hour,tail,distance,late\nJFK,5,N1,10,yes\nJFK,6,,20,no\nLGA,5,N2,30,no\nJFK,5,N2,40,yes\n"


def run_of(unmatched="keep", keys=KEYS, parties=("flights", "weather", "planes")):
    return RunSettings(parties=parties, label_party="flights", unmatched=unmatched, keys=keys)


def files_of(folder, party, text, run=None, **data):
    folder.mkdir(exist_ok=True)
    (folder / "data.csv").write_text(text)
    settings = DataSettings(path=folder / "data.csv", **data)
    return PartyFiles(PartySettings(party=party, federation=folder, data=settings), run or run_of(), folder / "state")


def shared_rows(train, held_out, *, tests=False):
    report = AlignmentReport("tokens", {}, len(train) + len(held_out), len(train), len(held_out), 0.0)
    arrays = np.array(train, np.int64), np.array(held_out, np.int64)
    return SharedRows(*arrays, b"d" * 32, KEY, report, has_test_files=tests)


def weather(folder, **data):
    return files_of(folder, "weather", WEATHER, id=["origin", "hour"], **data)


TRAIN, HELD_OUT = [0, 2, 0, 1, 0], [2, 2]


def test_features_are_those_of_the_same_rows_joined_beforehand_to_the_bit(tmp_path):
    found = weather(tmp_path / "coarse")
    rows = found.rows(shared_rows(TRAIN, HELD_OUT))
    lines = WEATHER.splitlines()
    joined = [f"r{at}," + lines[row + 1] for at, row in enumerate([1, 0, 2, 0, 2, 2, 0])]  # the same rows, mixed
    text = "\n".join(["id," + lines[0], *joined]) + "\n"
    run = run_of("drop", {}, ("flights", "weather"))
    plain = files_of(tmp_path / "joined", "weather", text, run, id="id", ignore=["origin", "hour"])
    expected = plain.rows(shared_rows([1, 2, 3, 0, 6], [4, 5]))
    for one, other in ((rows.train, expected.train), (rows.held_out, expected.held_out)):
        assert isinstance(one, PointedRows)
        np.testing.assert_array_equal(to_dense(one), to_dense(other))
        weights = np.ones(row_count(one))
        assert mean_square_norm(one, weights) == mean_square_norm(other, weights)
    assert found.encoder == plain.encoder
    assert "sky=hail" not in found.encoder.names, "the run has no row that points there"


def test_each_row_is_stored_once_and_read_again_by_a_later_start(tmp_path):
    rows = weather(tmp_path).rows(shared_rows([0, 2] * 500, [2] * 100))
    assert row_count(rows.train) == 1000
    assert row_count(rows.train.stored) == 3, "two rows, and one without features"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "state" / "blocks").rglob("*")}
    again = weather(tmp_path).rows(shared_rows([0, 2] * 500, [2] * 100))
    np.testing.assert_array_equal(to_dense(again.train), to_dense(rows.train))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "state" / "blocks").rglob("*")} == before


def test_a_row_that_the_party_does_not_hold_has_no_features(tmp_path):
    rows = weather(tmp_path).rows(shared_rows([0, -1, 2], [-1]))
    assert (to_dense(rows.train)[1] == 0).all()
    assert (to_dense(rows.held_out) == 0).all()
    assert to_dense(rows.train)[2].any()


def test_rows_held_out_by_a_test_file_are_not_fitted_to(tmp_path):
    with_tests = weather(tmp_path / "tests")
    with_tests.rows(shared_rows([0, 1], [2], tests=True))
    split = weather(tmp_path / "split")
    split.rows(shared_rows([0, 1], [2]))
    means = [encoder.features[0].mean for encoder in (with_tests.encoder, split.encoder)]
    assert means == [(1.5 + 2.25) / 2, (1.5 + 2.25 - 4.125) / 3]
    stored = encoder_from_json((tmp_path / "tests" / "state" / "encoder.json").read_bytes())
    assert stored == with_tests.encoder


def test_a_party_that_is_not_in_keys_is_fitted_to_its_file_as_ever(tmp_path):
    run = run_of("keep", {}, ("flights", "staff"))
    text = "id,x\na,1\nb,2\nc,9\n"
    files = files_of(tmp_path, "staff", text, run, id="id")
    rows = files.rows(shared_rows([1, -1], [0]))
    assert files.encoder.features[0].mean == 4.0
    assert plain_rows(rows.train).values.shape == (2, 1)


def test_the_label_partys_keys_are_made_of_the_columns_that_run_toml_names(tmp_path):
    files = files_of(tmp_path, "flights", FLIGHTS, label="late")
    leads = files.row_ids().ids.leads
    assert leads["weather"].train.to_pylist() == ["JFK|5", "JFK|6", "LGA|5", "JFK|5"]
    assert leads["planes"].train.to_pylist() == ["N1", None, "N2", "N2"]
    assert files.sources[0].names == ("distance",), "a key is a feature only where data.columns names it"
    named = files_of(tmp_path, "flights", FLIGHTS, label="late", columns=["origin", "distance"])
    assert named.sources[0].names == ("origin=JFK", "origin=LGA", "distance")
    assert named.row_ids().ids.leads["weather"].train.to_pylist()[0] == "JFK|5"


def test_the_label_party_may_have_other_names_for_them(tmp_path):
    text = FLIGHTS.replace("origin,hour", "from,departs")
    files = files_of(tmp_path, "flights", text, label="late", keys={"weather": ["from", "departs"]})
    assert files.row_ids().ids.leads["weather"].train.to_pylist()[2] == "LGA|5"
    with pytest.raises(DataError, match="key column 'origin'"):
        _ = files_of(tmp_path, "flights", text, label="late").sources


def test_rows_without_an_id_have_no_keys_either(tmp_path):
    text = "id,hour,origin,tail,late\n1,5,JFK,N1,yes\n,6,JFK,N1,no\n3,6,JFK,N3,no\n"
    files = files_of(tmp_path, "flights", text, label="late", id="id", ids={"missing": "drop"})
    found = files.row_ids()
    assert found.ids.leads["planes"].train.to_pylist() == ["N1", "N3"]
    assert found.train_rows.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("party", "text", "data", "expected"),
    [
        ("weather", WEATHER, {"id": ["origin"]}, r"data\.id names 1 columns, and \[keys\].*by 2 \(origin, hour\)"),
        (
            "weather",
            WEATHER,
            {"id": ["origin", "hour"], "keys": {"planes": ["sky"]}},
            "data.keys are the label party's",
        ),
        ("flights", FLIGHTS, {"label": "late", "keys": {"nobody": ["tail"]}}, "names 'nobody', which is not in"),
        ("flights", FLIGHTS, {"label": "late", "keys": {"weather": ["hour"]}}, "names 1 columns, .keys. of run.toml 2"),
    ],
    ids=["too few columns", "not the label party", "not in run.toml", "another number"],
)
def test_keys_that_do_not_fit_are_named(tmp_path, party, text, data, expected):
    with pytest.raises(SettingsError, match=expected):
        files_of(tmp_path, party, text, **data)


def test_the_label_partys_own_ids_are_needed_where_a_party_is_not_in_keys(tmp_path):
    run = run_of(parties=("flights", "weather", "planes", "staff"))
    with pytest.raises(SettingsError, match=r"point to those of 'staff' by their ids; set data\.id"):
        files_of(tmp_path, "flights", FLIGHTS, run, label="late")


def test_the_label_is_no_key(tmp_path):
    run = run_of(keys={"weather": ["origin", "late"], "planes": ["tail"]})
    with pytest.raises(DataError, match="column 'late' is the label and a key to another party"):
        _ = files_of(tmp_path, "flights", FLIGHTS, run, label="late").sources


def test_without_keys_the_fingerprint_is_as_it_was(tmp_path):
    run = run_of("drop", {}, ("flights", "weather"))
    one = files_of(tmp_path, "weather", WEATHER, run, id=["origin", "hour"])
    assert '"keys"' not in one._data.model_dump_json(exclude={"keys"})
    assert one.fingerprint == files_of(tmp_path, "weather", WEATHER, id=["origin", "hour"]).fingerprint
