import pytest

from benchmarks.a9a import EpochTrace, joint_contender, train_joint
from fdml.experiments.paper import a9a_dataset, write_a9a_run


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
