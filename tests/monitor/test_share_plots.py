"""Plots of shares are pictures, whatever is known."""

import pytest

from fdml.monitor.history import Gain
from fdml.monitor.share_plots import draw_columns, draw_shares

PNG = b"\x89PNG"


@pytest.mark.parametrize(
    "shares",
    [
        {"ann": Gain(0.2, 0.1, 0.3), "bob": Gain(-0.01, -0.02, 0.01)},
        {"ann": Gain(0.2, None, None)},
        {"ann": Gain(None, None, None), "bob": Gain(0.1, 0.0, 0.2)},
    ],
)
def test_shares_are_drawn_with_and_without_intervals(shares, tmp_path):
    draw_shares(shares, "AUC", tmp_path / "shares.png")
    assert (tmp_path / "shares.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("count", [1, 40])
def test_columns_are_drawn_and_no_more_than_fit(count, tmp_path):
    draw_columns({f"column {number}": 1.0 / (1 + number) for number in range(count)}, tmp_path / "columns.png")
    content = (tmp_path / "columns.png").read_bytes()
    assert content.startswith(PNG)
    assert len(content) < 200_000
