import pytest

from fdml.monitor.search_plot import PlottedRun, draw_search
from tests.monitor.test_plots import size


def runs(**values):
    count = len(next(iter(values.values())))
    return [
        PlottedRun(0.5 + 0.1 * at, {name: each[at] for name, each in values.items()}, at == count - 1)
        for at in range(count)
    ]


def test_every_searched_setting_has_a_plot(tmp_path):
    draw_search(runs(epochs=[1, 2], rate=[0.1, 0.2]), "auc", tmp_path / "two.png")
    draw_search(runs(epochs=[1, 2]), "auc", tmp_path / "one.png")
    assert size(tmp_path / "two.png")[0] == 2 * size(tmp_path / "one.png")[0]


def test_more_than_four_begin_another_line(tmp_path):
    draw_search(runs(**{f"s{number}": [1, 2] for number in range(5)}), "test_loss", tmp_path / "five.png")
    draw_search(runs(a=[1, 2]), "test_loss", tmp_path / "one.png")
    assert size(tmp_path / "five.png")[1] == 2 * size(tmp_path / "one.png")[1]


@pytest.mark.parametrize("values", [["auto", 0.1, 0.5], [True, False, True], [0.0001, 0.01, 1.0], [[64], [8, 8], [64]]])
def test_texts_lists_and_numbers_of_any_size_can_be_drawn(tmp_path, values):
    draw_search(runs(setting=values), "auc", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_a_search_without_a_finished_run_draws_an_empty_plot(tmp_path):
    draw_search([], "auc", tmp_path / "none.png")
    assert size(tmp_path / "none.png")[0] > 0
