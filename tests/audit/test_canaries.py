"""What must stay at home is found wherever it is planted, in whatever form, and nothing is found where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.audit.canaries import Canary, attacks, canaries_of, distinct, find_canaries, forms, search, search_places
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.rows import as_rows
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import HeldOutPredictions, Push, Release
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings
from tests.models.random_updates import build

ROWS = 400
PARTIES = ("ann", "bob")


def trained(chance, inputs, precision="single"):
    """A model with parameters that are no round numbers."""
    model = build(model_settings(precision=precision), inputs, 1)
    state = dict(model.state())
    state["theta"] = chance.normal(size=state["theta"].shape)
    model.restore(state)
    return model


def record(features="real", models=True, precision="single", task="binary"):
    chance = np.random.default_rng(2)
    made = {
        "real": lambda: chance.normal(size=(ROWS, 5)),
        "sparse": lambda: sp.random_array((ROWS, 30), density=0.1, rng=chance, dtype=np.float64),
        "one-hot": lambda: np.eye(5)[chance.integers(0, 5, ROWS)],
        "scaled one-hot": lambda: (np.eye(5)[chance.integers(0, 5, ROWS)] - 0.2) / 0.4,
    }[features]
    x = {party: as_rows(made()) for party in PARTIES}
    inputs = 30 if features == "sparse" else 5
    schedule = schedule_for(ROWS, 50, 2, 1, 2, 3)
    weights = {party: trained(chance, inputs, precision) for party in PARTIES}
    pushes = {
        party: {
            step: Push(step, Release(encode(chance.normal(size=schedule.visit(step).size))))
            for step in range(schedule.steps)
        }
        for party in PARTIES
    }
    labels = chance.normal(size=ROWS) if task == "regression" else chance.integers(0, 2, ROWS).astype(float)
    return Recording(
        run=RunSettings(parties=PARTIES, label_party="ann", task=task),
        schedule=schedule,
        objective=objective_for("squared" if task == "regression" else "logistic", 0 if task == "regression" else 2),
        echo=2.0,
        pushes=pushes,
        plain={party: {} for party in PARTIES},
        held_out={party: {} for party in PARTIES},
        gradients={},
        mechanisms={},
        truth=GroundTruth(x, labels, labels, models=weights if models else {}),
    )


def result_of(recording, **more):
    (result,) = find_canaries(recording, **more)
    return result


def planted(recording, codes):
    """The same recording with one more push, of these codes."""
    push = Push(0, Release(np.ascontiguousarray(codes, np.int64).ravel()))
    sent = [(party, each) for party in PARTIES for each in recording.pushes[party].values()]
    return replace(recording, repeated=(*sent, ("bob", push)))


def as_codes(values):
    """Bytes of floats passed off as codes."""
    raw = np.ascontiguousarray(values).tobytes()
    return np.frombuffer(raw + bytes(-len(raw) % 8), "<i8")


@pytest.mark.parametrize("features", ["real", "sparse", "one-hot", "scaled one-hot"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_predictions_alone_hold_no_canary(features, precision):
    result = result_of(record(features, precision=precision))
    assert result.outcome == "PASS"
    assert result.score == 0
    assert result.details["forms"] > 20


@pytest.mark.parametrize("features", ["real", "sparse"])
@pytest.mark.parametrize("form", [encode, as_codes, lambda values: as_codes(values.astype("<f8"))])
def test_features_in_a_push_are_found(features, form):
    recording = record(features)
    values = recording.truth.features["ann"].values.ravel()
    result = result_of(planted(recording, form(values)))
    assert result.outcome == "FAIL"
    assert result.score >= 20
    assert "rows of the features of 'ann'" in result.reason


@pytest.mark.parametrize("cut", [np.s_[0], np.s_[:, 2]], ids=["row", "column"])
def test_one_row_or_column_alone_is_found_if_it_is_looked_for(cut):
    recording = record()
    part = recording.truth.features["ann"].values[cut]
    assert result_of(planted(recording, encode(part))).outcome == "FAIL"
    assert result_of(planted(recording, encode(part + 0.001))).outcome == "PASS"


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("form", [encode, as_codes])
def test_parameters_in_a_push_are_found(precision, form):
    recording = record("one-hot", precision=precision)
    result = result_of(planted(recording, form(recording.truth.models["bob"].parameters)))
    assert result.outcome == "FAIL"
    assert "of the model of 'bob'" in result.reason


def test_parameters_in_held_out_predictions_are_found():
    recording = record("one-hot")
    held_out = HeldOutPredictions(1, Release(encode(recording.truth.models["bob"].parameters)))
    assert result_of(replace(recording, held_out={"ann": {}, "bob": {1: held_out}})).outcome == "FAIL"


def test_targets_in_a_push_are_found_but_classes_are_no_canaries():
    recording = record(task="regression", models=False)
    assert result_of(planted(recording, encode(recording.truth.labels))).outcome == "FAIL"
    assert not any("labels" in canary.what for canary in canaries_of(record()))


def test_one_hot_features_alone_give_nothing_to_look_for():
    for features in ("one-hot", "scaled one-hot"):
        result = result_of(record(features, models=False))
        assert result.outcome == "NOT APPLICABLE"
        assert "nothing distinctive" in result.reason


@pytest.mark.parametrize(
    "write", [lambda value: f"loss {value!r}\n".encode(), lambda value: np.float64(value).tobytes().hex().encode()]
)
def test_a_feature_in_a_log_is_found_and_the_place_is_told_but_not_the_value(tmp_path, write):
    recording = record()
    clean, log = tmp_path / "clean.log", tmp_path / "bob.log"
    clean.write_text("epoch 1: loss 0.6931, metric 0.7312\n" * 50)
    value = float(recording.truth.features["bob"].values.ravel()[0])
    log.write_bytes(b"epoch 1: " + write(value))
    assert result_of(recording, logs=[clean]).outcome == "PASS"
    result = result_of(recording, logs=[clean, log])
    assert result.outcome == "FAIL"
    assert "bob.log" in result.reason
    assert str(value) not in result.reason


def test_an_id_in_a_log_is_found(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("waiting for party 'bob'\nrow customer-8472-x is missing\n")
    recording = record()
    assert result_of(recording, logs=[log], ids=["customer-9999-y"]).outcome == "PASS"
    found = result_of(recording, logs=[log], ids=["customer-9999-y", "customer-8472-x"])
    assert found.outcome == "FAIL"
    assert "id 1 as text" in found.reason


CANARIES = [
    Canary("an id", "canary-7319"),
    Canary("a key", bytes(range(1, 33))),
    Canary("a number", (8765.4321,)),
    Canary("numbers", (0.1234567, -2.7182817, 3.1415926, 0.5772157)),
    Canary("a count", (987654321012345.0,)),
]


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.what)
def test_every_form_of_a_canary_is_found_in_a_file(tmp_path, canary):
    chance = np.random.default_rng(1)
    places = []
    for number, form in enumerate(forms(canary)):
        path = tmp_path / f"{number}"
        path.write_bytes(chance.bytes(50) + form.content + chance.bytes(50))
        places.append((path, form))
    kept, _ = distinct(forms(canary), sum(path.stat().st_size for path, _ in places))
    found = {(each.place, each.form.name) for each in search([path for path, _ in places], [canary])}
    assert {(str(path), form.name) for path, form in places if form in kept} <= found
    assert len(kept) >= 2


def test_numbers_are_looked_for_as_floats_codes_whole_numbers_and_text():
    names = {form.name for form in forms(Canary("a count", (987654.0,)))}
    assert {"float32", "float64", "int64", "fixed point", "digits", "hex of float64"} <= names


def test_what_is_nowhere_is_not_found():
    content = {"noise": np.random.default_rng(1).bytes(10**6)}
    assert search_places(content, CANARIES) == []


def test_forms_that_could_stand_there_by_chance_are_left_out():
    """A float32 of 4 bytes is told from chance in a short text, not in 100 MB."""
    every = forms(Canary("a number", (8765.4321,)))
    small, large = (distinct(every, size)[0] for size in (100, 10**8))
    assert "float32" in {form.name for form in small}
    assert "float32" not in {form.name for form in large}
    assert {form.name for form in large} < {form.name for form in small}


def test_chance_finds_are_as_rare_as_they_are_meant_to_be():
    """Of canaries of 4 bytes in 20 MB of noise, some would be found; those that are kept are not."""
    chance = np.random.default_rng(4)
    content = {"noise": chance.bytes(20_000_000)}
    numbers = [Canary(f"{at}", (float(value),)) for at, value in enumerate(chance.normal(size=30).astype(np.float32))]
    assert search_places(content, numbers) == []


def test_the_table_of_attacks_takes_a_recording_alone():
    (result,) = attacks["A11"](record())
    assert result.outcome == "PASS"
