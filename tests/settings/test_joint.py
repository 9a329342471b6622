"""Settings of the joint function: how many numbers travel, and with what it cannot be trained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.settings import RunSettings, TrainingSettings
from fdml.settings.joint import SUM, JointSettings, check_joint, prediction_floats, scores_in

joints = st.one_of(
    st.just(SUM),
    st.builds(JointSettings, joint=st.sampled_from(["fm", "head"]), joint_width=st.none() | st.integers(1, 40)),
)


@given(joints, st.integers(1, 30))
def test_the_floats_of_a_prediction_tell_the_scores_again(training, scores):
    assert scores_in(training, prediction_floats(training, scores)) == scores


@pytest.mark.parametrize(
    ("values", "one", "three"),
    [
        ({}, 1, 3),
        ({"joint": "fm"}, 9, 27),
        ({"joint": "fm", "joint_width": 2}, 3, 9),
        ({"joint": "head"}, 17, 19),
        ({"joint": "head", "joint_width": 4}, 5, 7),
    ],
)
def test_a_vector_travels_for_each_score_of_fm_and_once_for_a_head(values, one, three):
    training = JointSettings(**values)
    assert [prediction_floats(training, scores) for scores in (1, 3)] == [one, three]


def test_a_sum_has_no_vector():
    assert SUM.vector == 0
    with pytest.raises(SettingsError, match=r"training.joint_width is 4, and a sum has no vector; set training.joint"):
        check_joint(JointSettings(joint_width=4), staleness=0, labels="shared")


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_vectors_need_the_labels_at_every_party(joint):
    check_joint(JointSettings(joint=joint), staleness=0, labels="shared")
    with pytest.raises(SettingsError, match=rf'training.joint = "{joint}" needs the labels and totals at every party'):
        check_joint(JointSettings(joint=joint), staleness=0, labels="private")


def test_only_a_head_needs_the_same_totals_everywhere():
    check_joint(JointSettings(joint="fm"), staleness=3, labels="shared")
    check_joint(SUM, staleness=3, labels="private")
    with pytest.raises(SettingsError, match="staleness = 3 gives each its own; set staleness = 0"):
        check_joint(JointSettings(joint="head"), staleness=3, labels="shared")


@pytest.mark.parametrize("width", [0, -1, 1.5])
def test_a_vector_has_a_whole_number_of_numbers(width):
    with pytest.raises(SettingsError, match="setting 'joint_width' is"):
        JointSettings(joint="fm", joint_width=width)


def test_a_run_is_checked_as_a_whole():
    run = {"parties": ["a", "b"], "label_party": "a"}
    RunSettings(**run, training=TrainingSettings(joint="fm", staleness=1))
    with pytest.raises(SettingsError, match=r'training.joint = "head" needs totals that are the same at every party'):
        RunSettings(**run, training=TrainingSettings(joint="head", staleness=1))
