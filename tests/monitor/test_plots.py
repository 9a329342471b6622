import pytest

from fdml.monitor.history import SCHEMES, EpochRecord, LearningCurve
from fdml.monitor.plots import draw_comparison


def curves(models=("LR",), epochs=5):
    records = tuple(EpochRecord(at + 1, 0.1 * at, 1 / (at + 1), 0.5, 0.8) for at in range(epochs))
    return [LearningCurve(model, scheme, records) for model in models for scheme in SCHEMES]


def size(path):
    """Width and height from the header of a PNG file."""
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["auc", "accuracy", "r2"])
def test_every_metric_can_be_drawn(tmp_path, metric):
    draw_comparison(curves(), metric, tmp_path / "plot.png")
    assert size(tmp_path / "plot.png") == (1870, 429)


@pytest.mark.slow
def test_every_model_has_a_row_of_its_own(tmp_path):
    draw_comparison(curves(("LR", "NN")), "auc", tmp_path / "two.png")
    draw_comparison(curves(("LR",)), "auc", tmp_path / "one.png")
    (wide, high), (one_wide, one_high) = size(tmp_path / "two.png"), size(tmp_path / "one.png")
    assert (wide, high) == (one_wide, 2 * one_high)


def test_a_curve_of_one_point_is_seen(tmp_path):
    draw_comparison(curves(epochs=1), "auc", tmp_path / "point.png")
    assert (tmp_path / "point.png").stat().st_size > 10_000
