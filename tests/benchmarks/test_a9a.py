import pytest

from benchmarks.a9a import DEMO_AT_MOST, EpochTrace, demo_ratios, joint_contender, train_joint, train_pooled
from fdml.experiments.compare import Contender
from fdml.experiments.paper import PARTIES, a9a_dataset, write_a9a_run
from fdml.models.registry import model_settings
from fdml.settings import TrainingSettings


def test_an_epoch_is_one_after_the_first_and_the_goal_is_met_at_the_first_epoch_that_reaches_it():
    trace = EpochTrace([0.5, 0.7, 0.9, 1.1], [0.88, 0.8999, 0.901, 0.9005])
    assert trace.epoch == pytest.approx(0.2)
    assert trace.to_goal == 0.9
    assert EpochTrace([1.0, 2.0], [0.5, 0.6]).to_goal == float("inf")


@pytest.mark.slow
def test_joint_lr_set_for_speed_reaches_the_goal(tmp_path):
    home = tmp_path / "run"
    write_a9a_run(home, a9a_dataset(), joint_contender(), 0, "127.0.0.1:0")
    trace = train_joint(home)
    assert trace.to_goal < float("inf")
    assert trace.aucs[-1] >= 0.902


def test_the_demos_ratio_is_that_of_each_round():
    seconds = {("LR", "joint"): [2.0, 3.0], ("LR", "pooled"): [1.0, 2.0]}
    seconds |= {("NN", "joint"): [1.0, 1.0], ("NN", "pooled"): [2.0, 2.0]}
    found = demo_ratios(seconds)
    assert found["demo, LR: joint/pooled time"] == {"median": 1.75, "min": 1.5, "max": 2.0, "at_most": 2.0}
    assert found["demo, NN: joint/pooled time"]["median"] == 0.5
    assert list(DEMO_AT_MOST) == ["LR", "NN"]


@pytest.mark.slow
def test_pooled_training_of_the_demo_is_timed_to_its_last_epoch():
    one_epoch = Contender("LR", TrainingSettings(epochs=1), dict.fromkeys(PARTIES, model_settings("linear")))
    assert 0 < train_pooled(a9a_dataset(), one_epoch) < 60
