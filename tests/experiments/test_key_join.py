"""`fdml compare` of a run with keys of another grain joins the tables as `fdml join` does."""

import numpy as np
import pytest

from fdml.data.rows import to_dense
from fdml.errors import DataError
from fdml.experiments.comparison_input import from_run_file
from fdml.experiments.dataset import build_dataset
from fdml.experiments.key_join import load_parties
from fdml.models.registry import model_settings
from fdml.party.plan import joint_score
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings
from tests.models.random_updates import build

FLIGHTS = "hour,tail,distance,late\n5,N1,10,yes\n6,N2,20,no\n5,N9,30,no\n5,N2,40,yes\n7,N1,50,no\n6,N1,60,yes\n"
WEATHER = "hour,wind\n6,2.0\n5,1.0\n9,100.0\n"
PLANES = "tail,seats\nN1,100\nN2,200\n"
RUN = RunSettings(
    parties=("flights", "weather", "planes"), label_party="flights", keys={"weather": ["hour"], "planes": ["tail"]}
)


def party_of(folder, name, text, test=None, **data):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "data.csv").write_text(text)
    if test is not None:
        (folder / name / "test.csv").write_text(test)
        data["test_path"] = folder / name / "test.csv"
    return PartySettings(party=name, federation=folder, data=DataSettings(path=folder / name / "data.csv", **data))


def parties(folder, test=None, flights=FLIGHTS, weather=WEATHER):
    return {
        "flights": party_of(folder, "flights", flights, test, label="late"),
        "weather": party_of(folder, "weather", weather, id="hour", scale="none"),
        "planes": party_of(folder, "planes", PLANES, id="tail"),
    }


def test_each_row_has_the_rows_that_its_keys_lead_to(tmp_path):
    found = load_parties(RUN, parties(tmp_path))
    assert found["flights"].train.labels.tolist() == ["yes", "no", "yes", "yes"]
    assert to_dense(found["weather"].train.rows)[:, 0].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert found["planes"].train.names == ("seats",)
    seats = np.array([100.0, 200.0, 200.0, 100.0])
    scaled = (seats - seats.mean()) / seats.std()
    np.testing.assert_array_equal(to_dense(found["planes"].train.rows)[:, 0], scaled.astype(np.float32))


def test_test_rows_lead_to_the_same_table(tmp_path):
    found = load_parties(RUN, parties(tmp_path, test="hour,tail,distance,late\n9,N2,1,no\n8,N2,1,no\n6,N1,1,yes\n"))
    assert to_dense(found["weather"].test.rows)[:, 0].tolist() == [100.0, 2.0]
    assert found["flights"].test.labels.tolist() == ["no", "yes"]
    assert len(found["planes"].train) == len(found["flights"].train) == 4


def test_ids_of_the_label_party_are_those_of_all(tmp_path):
    lines = FLIGHTS.splitlines()
    text = "\n".join([f"id,{lines[0]}", *(f"{at},{line}" for at, line in enumerate(lines[1:]))]) + "\n"
    given = parties(tmp_path) | {"flights": party_of(tmp_path, "flights", text, label="late", id="id")}
    found = load_parties(RUN, given)
    assert found["planes"].train.ids.tolist() == found["flights"].train.ids.tolist() == ["0", "1", "3", "5"]


def test_a_run_file_is_compared(tmp_path):
    given = parties(tmp_path)
    (tmp_path / "federation.toml").write_text('parties = ["flights", "weather", "planes"]\n')
    (tmp_path / "run.toml").write_text('label_party = "flights"\n[keys]\nweather = "hour"\nplanes = "tail"\n')
    for name, party in given.items():
        data = party.data
        more = 'label = "late"\n' if name == "flights" else f'id = "{data.id[0]}"\n'
        (tmp_path / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[data]\npath = "data.csv"\n{more}'
        )
    problem, _, _ = from_run_file(tmp_path / "run.toml")
    assert (len(problem.train), len(problem.test)) == (3, 1)
    assert set(problem.train.parts) == {"flights", "weather", "planes"}


def test_unmatched_rows_may_be_kept_with_a_part_of_exactly_zero(tmp_path):
    found = load_parties(RUN.model_copy(update={"unmatched": "keep"}), parties(tmp_path))
    assert len(found["flights"].train) == len(found["planes"].train) == 6
    assert to_dense(found["weather"].train.rows)[:, 0].tolist() == [1.0, 2.0, 1.0, 1.0, 0.0, 2.0]
    assert found["planes"].train.rows.pointers.tolist() == [0, 1, -1, 1, 0, 0]
    problem = build_dataset(found, "flights", "binary", None, 0.4, 7)
    rows, held = problem.train.parts["weather"], problem.test.parts["weather"]
    assert sorted([*rows.pointers, *held.pointers]) == [-1, 0, 0, 1, 1, 1]
    model = build(model_settings("mlp", hidden=(4,)), 1, 1)
    predicted = joint_score({"weather": model}, {"weather": rows}, problem.objective)[:, 0]
    assert ((predicted == 0.0) == (rows.pointers < 0)).all()


def test_a_party_that_is_not_in_keys_may_lack_rows_too(tmp_path):
    run = RunSettings(parties=("flights", "staff"), label_party="flights", unmatched="keep")
    given = {
        "flights": party_of(tmp_path, "flights", "id,x,late\na,1,yes\nb,2,no\nc,3,no\n", label="late", id="id"),
        "staff": party_of(tmp_path, "staff", "id,z\nc,3\nq,9\na,1\n", id="id", scale="none"),
    }
    found = load_parties(run, given)
    assert to_dense(found["staff"].train.rows)[:, 0].tolist() == [1.0, 0.0, 3.0]
    assert found["staff"].train.ids.tolist() == ["a", "b", "c"]


def test_what_cannot_be_compared_is_named(tmp_path):
    with pytest.raises(DataError, match="no row of 'flights' leads to a row of every other party"):
        load_parties(RUN, parties(tmp_path, weather="hour,wind\n1,2.0\n"))


def test_a_party_of_trees_gets_columns_as_they_are_wherever_its_rows_are(tmp_path):
    found = parties(tmp_path, weather="hour,wind,sky\n6,2.0,rain\n5,,sun\n9,100.0,rain\n")
    trees = {name: each.model_copy(update={"model": model_settings("trees")}) for name, each in found.items()}
    loaded = load_parties(RUN, trees)
    weather = loaded["weather"].train
    assert weather.names == ("wind", "sky")
    assert weather.native.categories == (1,)
    np.testing.assert_array_equal(to_dense(weather.rows), [[np.nan, 1], [2, 0], [np.nan, 1], [2, 0]])
    assert to_dense(loaded["planes"].train.rows)[:, 0].tolist() == [100.0, 200.0, 200.0, 100.0]
    mixed = load_parties(RUN, {**found, "flights": trees["flights"]})
    assert mixed["weather"].train.names == ("wind", "wind is missing", "sky=rain", "sky=sun")


def test_a_run_of_trees_is_compared_with_the_places_of_its_categories(tmp_path):
    (tmp_path / "run.toml").write_text('name = "first"\nlabel_party = "ann"\n')
    (tmp_path / "federation.toml").write_text('name = "two"\nserver = "127.0.0.1:0"\nparties = ["ann", "bob"]\n')
    lines = [f"{row},{'x' if row % 2 else 'y'},{'yes' if row % 3 else 'no'}" for row in range(12)]
    for name, label in (("ann", '\nlabel = "late"'), ("bob", '\nignore = "late"')):
        party_of(tmp_path, name, "\n".join(["id,sky,late", *lines]) + "\n")
        text = f'party = "{name}"\nfederation = "../federation.toml"\n[data]\npath = "data.csv"\nid = "id"{label}\n'
        (tmp_path / name / "party.toml").write_text(f'{text}[model]\nkind = "trees"\n')
    problem, (contender,), _ = from_run_file(tmp_path / "run.toml")
    assert {name: model.categories for name, model in contender.models.items()} == {"ann": (0,), "bob": (0,)}
    assert set(to_dense(problem.train.parts["bob"])[:, 0].tolist()) == {0.0, 1.0}
