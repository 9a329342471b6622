from hypothesis import given
from hypothesis import strategies as st

from fdml.monitor.thinning import MOST_POINTS, thinned

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


def points_of(values):
    return [(float(at), value) for at, value in enumerate(values)]


def test_a_short_series_stays_as_it_is():
    points = points_of([3.0, 1.0, 2.0])
    assert thinned(points, 3) == points


@given(VALUES, st.integers(4, 50))
def test_no_more_points_are_left_than_asked_for_and_all_are_of_the_series(values, most):
    points = points_of(values)
    found = thinned(points, most)
    assert len(found) <= max(most, 4)
    assert set(found) <= set(points)
    assert found == sorted(found), "in their order"


@given(VALUES, st.integers(4, 50))
def test_the_ends_and_all_peaks_stay(values, most):
    points = points_of(values)
    found = [y for _, y in thinned(points, most)]
    assert (found[0], found[-1]) == (values[0], values[-1])
    assert (min(found), max(found)) == (min(values), max(values))


def test_a_run_of_ten_hours_is_thinned_to_what_a_page_shows():
    spike = 77_777
    points = [(float(at), 5.0 if at == spike else 0.0) for at in range(100_000)]
    found = thinned(points)
    assert len(found) <= MOST_POINTS
    assert (float(spike), 5.0) in found
