"""Charts are well-formed SVG whose numbers stand where they should."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.monitor.charts import HEIGHT, WIDTH, BarChart, LineChart, Series, bar_chart, line_chart, swatch

FIGURES = st.floats(allow_nan=True, allow_infinity=True, width=32)
POINTS = st.lists(st.tuples(FIGURES, FIGURES), max_size=30).map(tuple)


def chart_of(*points, levels=()):
    return LineChart("loss", "epoch", (Series("joint", points),), levels)


def places_of(svg, name):
    """The points of the lines with this style."""
    root = ElementTree.fromstring(svg)
    lines = [each for each in root.iter() if each.tag == "polyline" and name in each.get("class", "")]
    return [[tuple(map(float, place.split(","))) for place in each.get("points").split()] for each in lines]


def texts_of(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter() if each.tag == "text"]


def test_higher_values_stand_higher_and_later_ones_further_right():
    ((first, second, third, last),) = places_of(line_chart(chart_of((1, 1.0), (2, 0.5), (3, 0.7), (4, 0.2))), "joint")
    assert first[0] < second[0] < third[0] < last[0]
    assert first[1] < third[1] < second[1] < last[1], "the y of SVG grows downwards"


def test_the_axis_has_round_numbers_that_tell_the_values_apart():
    texts = texts_of(line_chart(chart_of((1, 0.9151), (25, 0.9174))))
    ticks = [float(text) for text in texts if re.fullmatch(r"0\.\d+", text)]
    assert len(set(ticks)) == len(ticks) >= 3
    assert "epoch" in texts


def test_one_point_is_marked_as_a_line_through_it_cannot_be_seen():
    svg = line_chart(chart_of((1, 0.5)))
    assert "<circle" in svg
    assert "<polyline" not in svg
    assert texts_of(svg).count("1") == 1, "its place is named"


def test_a_level_goes_from_side_to_side():
    svg = line_chart(chart_of((1, 0.5), (9, 0.4), levels=(Series("ann alone", ((0.0, 0.6),), "alone"),)))
    root = ElementTree.fromstring(svg)
    (level,) = [each for each in root.iter() if each.tag == "line" and "alone" in each.get("class", "")]
    assert level.get("y1") == level.get("y2")
    assert float(level.get("x2")) - float(level.get("x1")) > 0.8 * WIDTH


@given(POINTS, POINTS)
def test_any_figures_give_well_formed_svg_inside_its_frame(points, others):
    svg = line_chart(LineChart("a <b> & c", "x", (Series("s", points), Series("t", others, "alone"))))
    ElementTree.fromstring(svg)
    for line in (*places_of(svg, "joint"), *places_of(svg, "alone")):
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)


@given(st.lists(FIGURES, max_size=12))
def test_any_bars_give_well_formed_svg(values):
    ElementTree.fromstring(bar_chart(BarChart("t", "x", tuple((str(at), each) for at, each in enumerate(values)))))


def test_a_bar_is_as_high_as_its_value():
    root = ElementTree.fromstring(bar_chart(BarChart("steps", "lag", (("0", 40.0), ("1", 10.0)))))
    tall, short = (float(each.get("height")) for each in root.iter() if each.tag == "rect")
    assert tall == pytest.approx(4 * short, rel=0.02)


def test_a_chart_without_figures_says_so():
    for svg in (line_chart(chart_of()), line_chart(chart_of((1, math.nan))), bar_chart(BarChart("t", "x", ()))):
        assert texts_of(svg) == ["no figures"]


def test_a_chart_names_itself_to_those_who_do_not_see_it():
    svg = line_chart(chart_of((1, 0.5)))
    assert 'role="img"' in svg
    assert "Chart: loss. The table below it has the same numbers." in svg


def test_colours_are_the_pages_own():
    for svg in (
        line_chart(chart_of((1, 0.5), (2, 0.4))),
        swatch("joint"),
        bar_chart(BarChart("t", "x", (("a", 1.0),))),
    ):
        assert "style=" not in svg
        assert not re.search(r"#[0-9a-f]{3}", svg)
