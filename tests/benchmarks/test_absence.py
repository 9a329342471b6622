"""The benchmark of absence on few rows: every chance and every party is there."""

import pytest
from sklearn import datasets

from benchmarks import absence
from benchmarks.default_sets import split
from fdml.data.row_set import RowSet
from fdml.errors import FdmlError
from fdml.experiments.dataset import JointDataset

PARTIES = {"p0": "register", "p1": "employer", "p2": "tax-office"}


def small(seed):
    found = split(*datasets.load_breast_cancer(return_X_y=True), "binary", seed, parties=3)
    train, test = (
        RowSet({PARTIES[name]: part for name, part in rows.parts.items()}, rows.labels, rows.weights)
        for rows in (found.train, found.test)
    )
    return JointDataset("register", found.encoding, found.loss, train, test)


@pytest.mark.slow
def test_every_chance_is_scored_with_all_parties_and_without_each_other_one(monkeypatch):
    monkeypatch.setattr(absence, "all_sets", lambda _: {"census-income": small})
    monkeypatch.setattr(absence, "CHANCES", (0.0, 0.3))
    said = []
    report = absence.run(said.append, seeds=1)
    assert said == ["seed 0, absence 0", "seed 0, absence 0.3", "seed 0, trained without employer"]
    rows = {row["contender"]: row for row in report.results}
    who = ("all", "without employer", "without tax-office")
    assert list(rows) == [
        f"absence {chance}, {name} {what}" for chance in ("0", "0.3") for name in who for what in ("AUC", "loss")
    ] + ["never had it, without employer AUC", "never had it, without employer loss"]
    assert {row["unit"] for row in rows.values()} == {"AUC", "loss"}
    assert all(0.8 < row["median"] <= 1.0 for name, row in rows.items() if name.endswith("AUC"))
    found = report.ratios["absence 0.3: AUC without employer"]
    assert found["median"] == rows["absence 0.3, without employer AUC"]["median"]
    assert found["at_least"] == 0.9
    assert report.ratios["absence 0.3: AUC lost with all"]["at_most"] == 0.001


def test_without_the_data_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(absence, "all_sets", lambda _: {})
    with pytest.raises(FdmlError, match="`fdml data census-income` says which package"):
        absence.run(str)
