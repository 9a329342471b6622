"""The noise benchmark on few rows: every case is there, with a true epsilon and figures that follow from the training."""

import json
import math
from dataclasses import replace

import pytest

from benchmarks.noise import CLIP, DELTA, LOOSE, UNIT, Case, Figures, Sizes, _crossing, cases_of, run
from benchmarks.noise_plot import Band, Level, NoiseCurve, draw_noise
from fdml.privacy.epsilon import gaussian_epsilon
from fdml.settings import GuardSettings, TrainingSettings

SIZES = Sizes(levels=(0.0, 5.0), epochs=4, rows=1500)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report of two seeds, its picture, and what was said."""
    picture, said = tmp_path_factory.mktemp("noise") / "noise.png", []
    return run(said.append, seeds=2, plot=picture, sizes=SIZES), picture, said


@pytest.fixture(scope="module")
def rows(made):
    return {row["contender"]: row for row in made[0].results}


@pytest.mark.slow
def test_there_is_a_row_for_every_scheme_and_case_of_both_kinds(rows):
    wanted = ["alone", "late fusion", "pooled", "joint, no guard", *(f"joint, {case.name}" for case in cases_of(SIZES))]
    assert list(rows) == [f"{model} {name}" for model in ("LR", "NN") for name in wanted]
    for row in rows.values():
        assert row["unit"] == UNIT
        assert 0.5 < row["min"] <= row["median"] <= row["max"] < 1.0
        assert row["min"] <= row["mean"] <= row["max"]
        assert 0.2 < row["loss"] < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("clip", [CLIP, LOOSE])
def test_epsilon_of_a_level_is_that_of_a_release_per_epoch(rows, clip):
    row = rows[f"LR joint, noise 5, clip {clip:g}"]
    mu = 2 * clip * math.sqrt(SIZES.epochs) / 5.0
    assert row["epsilon"] == pytest.approx(gaussian_epsilon(mu, DELTA))
    assert (row["clip"], row["sigma"], row["releases"], row["delta"]) == (clip, 5.0, SIZES.epochs, DELTA)


@pytest.mark.slow
def test_without_noise_there_is_no_epsilon(rows):
    assert rows["NN joint, noise 0, clip 4"]["epsilon"] is None


@pytest.mark.slow
@pytest.mark.parametrize("budget", [5.4, 2.5])
def test_one_release_keeps_to_its_budget(rows, budget):
    row = rows[f"NN joint, 1 release, epsilon {budget:g}"]
    assert row["releases"] == 1
    assert 0.99 * budget < row["epsilon"] <= budget
    assert "recalibrated_loss" not in row, "its parties have taken the noise into account"


@pytest.mark.slow
def test_many_releases_have_four_clips_of_noise(rows):
    for name, releases in (("2 releases, clip 1", 2), ("2 releases, clip 2", 2), ("4 releases, clip 2", 4)):
        row = rows[f"LR joint, {name}"]
        assert row["sigma"] == 4 * row["clip"]
        assert row["epsilon"] == pytest.approx(gaussian_epsilon(math.sqrt(releases) / 2, DELTA))


@pytest.mark.slow
def test_a_loose_clip_shortens_nothing_and_none_shortens_without_a_guard(rows):
    assert rows["LR joint, noise 5, clip 50"]["clipped"] == 0.0
    assert 0.0 < rows["LR joint, 2 releases, clip 1"]["clipped"] <= 1.0
    for model in ("LR", "NN"):  # the loose clip without noise is no guard at all
        for figure in ("median", "min", "max", "loss"):
            assert rows[f"{model} joint, noise 0, clip 50"][figure] == pytest.approx(
                rows[f"{model} joint, no guard"][figure], rel=1e-9
            )


@pytest.mark.slow
def test_recalibration_undoes_what_noise_does_to_the_loss(rows):
    for model in ("LR", "NN"):
        noisy, calm = rows[f"{model} joint, noise 5, clip 50"], rows[f"{model} joint, noise 0, clip 50"]
        assert calm["recalibrated_loss"] == calm["loss"]
        assert noisy["recalibrated_loss"] < noisy["loss"]


@pytest.mark.slow
def test_gains_are_held_against_the_right_rival(made, rows):
    ratios = made[0].ratios
    assert len(ratios) == 2 * len(cases_of(SIZES))
    gain = ratios["NN 1 release, epsilon 5.4: AUC gained over late fusion"]
    assert gain["target"] == 0.0
    lowest = rows["NN joint, 1 release, epsilon 5.4"]["min"] - rows["NN late fusion"]["max"]
    assert lowest <= gain["min"] <= gain["median"] <= gain["max"]
    assert ratios["LR 4 releases, clip 2: AUC gained over joint, no guard"]["target"] == -0.01


@pytest.mark.slow
def test_bars_stand_beside_the_rows_that_have_one(rows):
    assert rows["NN joint, 1 release, epsilon 5.4"]["target"] == 0.902
    assert "target" not in rows["LR joint, 1 release, epsilon 2.5"]


@pytest.mark.slow
def test_the_report_is_plain_json_and_says_what_cannot_be_matched(made):
    report, picture, said = made
    json.dumps(report.as_json(), allow_nan=False)
    for words in ("2 seeds", "cannot be matched", "not the effect through the weights", "here joint"):
        assert words in report.question
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert said[:2] == ["LR, seed 1 of 2", "LR, seed 2 of 2"]


def test_a_level_at_which_joint_training_loses_is_named():
    case = Case("noise 9", GuardSettings(clip=CLIP), TrainingSettings(), "alone", 9.0)
    better, worse = Figures(0.9, 0.3, 0.3), Figures(0.8, 0.3, 0.3)
    assert "every level" in _crossing([case], {"LR": {"noise 9": [better], "alone": [worse]}})
    lost = _crossing([case], {"LR": {"noise 9": [better, worse], "alone": [worse, better]}})
    assert "no better than alone for LR at noise 9" in lost


@pytest.mark.slow
def test_a_picture_has_a_row_per_model_and_epsilon_above(tmp_path):
    band = Band(0.9, 0.89, 0.91)
    levels = [Level(0.0, None, band, band, band), Level(3.0, 121.0, band, band, band)]
    curve = NoiseCurve("LR", levels, {"alone": (0.88, 0.35), "pooled": (0.91, 0.32)})
    sizes = []
    for curves in ([curve], [curve, replace(curve, model="NN")]):
        draw_noise(curves, "delta 1e-05", tmp_path / "noise.png")
        header = (tmp_path / "noise.png").read_bytes()[16:24]
        sizes.append((int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")))
    assert sizes[0][0] == sizes[1][0]
    assert sizes[1][1] == pytest.approx(2 * sizes[0][1], abs=2)
