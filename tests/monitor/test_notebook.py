"""The bar of a notebook, with the notebook's display replaced by a list."""

import sys
from types import ModuleType

import pytest
from rich.console import Console

from fdml.monitor.notebook import NotebookProgress
from fdml.monitor.terminal import progress_display


class Handle:
    def __init__(self):
        self.shown = []

    def update(self, thing):
        self.shown.append((repr(thing), thing._repr_html_()))


@pytest.fixture
def handle(monkeypatch):
    """What `IPython.display.display` returns."""
    made = Handle()
    module = ModuleType("IPython.display")

    def display(thing, display_id):
        made.update(thing)
        return made

    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_a_bar_is_replaced_in_place(handle):
    now = [0.0]
    bar = NotebookProgress(4, "ann", "epochs", clock=lambda: now[0])
    now[0] = 2.0
    bar.move_to(1, "test loss .5")
    assert [text for text, _ in handle.shown] == ["ann: 0 of 4 epochs, 0 s", "ann: 1 of 4 epochs, 2 s, test loss .5"]
    assert handle.shown[-1][1].startswith('<progress value="1" max="4"></progress> ann: 1 of 4')


def test_it_is_replaced_at_most_ten_times_a_second_but_always_at_the_end(handle):
    now = [0.0]
    bar = NotebookProgress(100, "ann", "epochs", clock=lambda: now[0])
    for done in range(1, 101):
        now[0] += 0.01
        bar.move_to(done)
    assert 5 <= len(handle.shown) <= 13
    assert handle.shown[-1][0] == "ann: 100 of 100 epochs, 1 s"


def test_a_remark_is_shown_at_once_and_as_text(handle):
    NotebookProgress(2, "<b>", "epochs", clock=lambda: 0.0).remark("waits for <bob>")
    assert handle.shown[-1][1].endswith("&lt;b&gt;: 0 of 2 epochs, 0 s, waits for &lt;bob&gt;")


def test_a_console_in_a_notebook_gets_it(handle):
    with progress_display(Console(force_jupyter=True), 3, "ann") as display:
        assert isinstance(display, NotebookProgress)
        display.move_to(2)
    assert handle.shown[-1][0].startswith("ann: 2 of 3 epochs")


def test_what_was_reached_is_shown_also_after_an_error(handle):
    def work():
        with progress_display(Console(force_jupyter=True), 3, "ann") as display:
            display.move_to(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert handle.shown[-1][0].startswith("ann: 1 of 3 epochs")
