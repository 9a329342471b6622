"""Which party a step is trained without: all sides draw the same from the seed."""

import numpy as np
import pytest

from fdml.protocol.absences import NOBODY, Absences, absences_of
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.few_bits import FewBits
from fdml.protocol.messages import Gradient, Release, Total
from fdml.protocol.schedule import schedule_of
from fdml.settings import TrainingSettings

PARTIES = ("shop", "bank", "post")
STEPS = range(4000)


def schedule(chance=0.3, seed=7, epochs=2, rows=16_000):
    """One batch a block."""
    training = TrainingSettings(
        absence=chance, seed=seed, epochs=epochs, batch_size=4, batches_per_block=1, value_bits=64
    )
    return schedule_of(rows, agreed_training(training, rows, len(PARTIES)))


def absences(chance=0.3, seed=7, parties=PARTIES, label_party="shop"):
    return absences_of(schedule(chance, seed), parties, label_party)


def total(step, *pushed_at):
    return Total(step, np.zeros((1, 1), np.int64), pushed_at)


def test_without_the_setting_nobody_is_ever_left_out():
    assert absences(0.0) is NOBODY
    assert all(NOBODY.at(step) is None for step in range(100))
    assert NOBODY.echo(3.0, total(5, 5, 5, 5)) == 3.0


def test_a_party_without_others_is_never_left_alone():
    assert absences(parties=("shop",)) is NOBODY


@pytest.mark.parametrize("chance", [0.1, 0.3, 0.9])
def test_so_many_steps_lack_a_party_and_each_but_the_label_party_as_often(chance):
    drawn = [absences(chance).at(step) for step in STEPS]
    share = {party: drawn.count(party) / len(STEPS) for party in PARTIES}
    assert share["shop"] == 0.0
    assert share["bank"] + share["post"] == pytest.approx(chance, abs=0.03)
    assert share["bank"] == pytest.approx(share["post"], abs=0.04)


def test_the_draw_follows_from_the_seed_alone():
    first = [absences().at(step) for step in range(50)]
    assert first == [Absences(schedule(), PARTIES, "shop").at(step) for step in range(50)]
    assert first == [absences_of(schedule(epochs=9), PARTIES, "shop").at(step) for step in range(50)]
    assert first != [absences(seed=8).at(step) for step in range(50)]
    assert first[:8] == [None, None, None, None, None, "bank", None, None], "it never changes, or runs would"


def test_the_echo_counts_the_parties_whose_parts_are_in_the_total():
    chosen = absences()
    lacking = next(step for step in STEPS if chosen.at(step) == "bank")
    full = next(step for step in STEPS if chosen.at(step) is None)
    assert chosen.echo(3.0, total(full, full, full, full)) == 3.0
    assert chosen.echo(3.0, total(lacking, lacking, lacking, lacking)) == 2.0
    assert chosen.echo(1.0, total(lacking, lacking, lacking, lacking)) == 1.0
    gradient = Gradient(lacking, Release(np.zeros(1, np.int64)))
    assert chosen.echo(3.0, gradient) == 2.0


def test_of_a_stale_part_the_draw_of_its_own_step_counts():
    chosen = absences()
    lacking = next(step for step in range(9, 4000) if chosen.at(step) == "bank")
    full = next(step for step in range(lacking, 0, -1) if chosen.at(step) is None)
    assert chosen.echo(3.0, total(lacking, lacking, full, lacking)) == 3.0
    assert chosen.echo(3.0, total(lacking, lacking, -1, lacking)) == 3.0


def test_in_the_last_epoch_all_take_part():
    """So that the joint score, which all parties make together, is the last that is trained."""
    few = schedule(rows=40, epochs=5)
    drawn = [few.absent(step) is not None for step in range(few.steps)]
    assert any(drawn[: few.steps - few.blocks])
    assert not any(drawn[few.steps - few.blocks :])
    assert not any(schedule(rows=40, epochs=1).absent(step) for step in range(10))


def test_predictions_travel_whole_where_a_party_leaves_or_comes_back():
    few, chosen = FewBits(4, 3), schedule(rows=40, epochs=6)
    for step in range(chosen.steps):
        visit = chosen.visit(step)
        before = chosen.last_visit(visit.block, step - 1)
        lacks = chosen.absent(step) is not None or (before >= 0 and chosen.absent(before) is not None)
        assert few.is_whole(chosen, step) == (visit.epoch == 0 or lacks)
        assert (few.total_bits(chosen, step) == 0) == few.is_whole(chosen, step)
    plain = schedule(0.0, rows=40, epochs=3)
    assert [few.is_whole(plain, step) for step in range(plain.steps)] == [True] * 10 + [False] * 20


def test_a_model_that_learns_from_many_totals_at_once_has_one_echo():
    even = absences_of(schedule(), PARTIES, "shop", even_echo=True)
    lacking = next(step for step in STEPS if even.at(step) == "bank")
    assert even.echo(3.0, total(lacking, lacking, lacking, lacking)) == 3.0
