import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.column_features import Hashed, Number, OneHot
from fdml.data.encoding import fit
from fdml.data.fitting import fit_for
from fdml.errors import DataError
from fdml.settings.data import DataSettings


def fitted(*batches, kind=None, **settings):
    frames = [pa.table({"x": pa.array(batch, kind)}) for batch in batches]
    (feature,) = fit(frames, ("x",), DataSettings(path="unused", **settings)).features
    return feature


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.randoms(use_true_random=False), st.integers(1, 9))
def test_numbers_are_fitted_to_the_same_bits_in_any_order_and_any_batches(values, random, size):
    mixed = random.sample(values, len(values))
    assert fitted(*[mixed[start : start + size] for start in range(0, len(mixed), size)]) == fitted(values)


def test_mean_and_deviation_are_numpys_but_for_its_rounding():
    values = np.random.default_rng(1).normal(3, 2, 1001)
    feature = fitted(values)
    assert (feature.mean, feature.deviation) == pytest.approx((values.mean(), values.std()), rel=1e-14)


present_or_none = st.lists(st.none() | st.floats(-1e3, 1e3), min_size=1, max_size=30)


@given(present_or_none, st.integers(1, 10), st.sampled_from(["mean", "zero"]), st.sampled_from(["standard", "none"]))
def test_numbers_are_fitted_in_batches_as_at_once(values, size, missing, scale):
    batches = [values[start : start + size] for start in range(0, len(values), size)]
    feature = fitted(*batches, kind=pa.float64(), missing=missing, scale=scale)
    whole = fitted(values, kind=pa.float64(), missing=missing, scale=scale)
    filled = np.array([feature.fill if value is None else value for value in values])
    assert feature.fill == pytest.approx(whole.fill)
    assert feature.mean == pytest.approx(0.0 if scale == "none" else filled.mean(), abs=1e-9)
    if scale == "standard" and np.ptp(filled) > 1e-3:
        assert feature.deviation == pytest.approx(filled.std())
        assert whole.deviation == pytest.approx(filled.std())


@given(st.lists(st.lists(st.sampled_from(["b", "a", "c", "", None]), min_size=1), min_size=1))
def test_categories_of_all_batches_are_found_in_sorted_order(batches):
    seen = {value for batch in batches for value in batch if value}
    assert fitted(*batches, kind=pa.string()) == OneHot("x", tuple(sorted(seen)))


def test_a_hashed_column_has_nothing_to_learn():
    assert fitted(["a"], ["b"], hashed="x", hash_size=8) == Hashed("x", 8)


def test_a_column_is_constant_only_if_it_is_so_in_all_batches():
    assert fitted([4.0, 4.0], [4.0]) == Number("x", 4.0, 4.0)
    assert fitted([4.0, 4.0], [2.0]).deviation > 0.9


def test_a_missing_number_is_counted_over_all_batches():
    with pytest.raises(DataError, match=r"column 'x' has no value in data row 4 \(3 such rows\)"):
        fitted([1.0, 2.0], [3.0, None], [None, None], missing="error")


def test_an_infinite_number_is_named_by_its_row_in_the_file():
    with pytest.raises(DataError, match="column 'x' is infinite or too large for float32 in data row 3"):
        fitted([1.0, 2.0], [np.inf])


def test_a_column_empty_in_some_batches_is_filled_from_the_others():
    assert fitted([None, None], [2.0, 4.0], kind=pa.float64(), missing="mean").fill == 3.0


def fit_of(values, kind, **settings):
    """A fit that has seen some values, and the state that others merge."""
    fit = fit_for("x", kind, DataSettings(**settings))
    if values:
        fit.add(pa.array(values, kind), 10)
    return fit


def test_merged_fits_know_the_first_missing_number_and_how_many_there_are():
    fit = fit_of([1.0], pa.float64(), missing="error")
    for values in ([2.0, None], [], [None, None]):
        fit.merge(json.loads(json.dumps(fit_of(values, pa.float64(), missing="error").state())))
    with pytest.raises(DataError, match=r"data row 12 \(3 such rows\)"):
        fit.features()


def test_merged_categories_are_counted_once_and_their_rows_all():
    texts = [f"t{number}" for number in range(60)]
    fit = fit_of(texts, pa.string())
    fit.merge(fit_of([f"u{number}" for number in range(60)], pa.string()).state())
    assert "another text in each of its 120 rows" in fit.remark()
    fit.merge(fit_of(texts, pa.string()).state())
    assert fit.remark() == ""
    assert len(fit.features()[0].names) == 120


@pytest.mark.parametrize("order", [1, -1])
def test_too_many_categories_on_one_side_are_too_many_in_all(order):
    many, few = (fit_of(values, pa.string(), max_categories=2) for values in (["a", "b", "c"], ["a"]))
    one, other = (many, few)[::order]
    one.merge(other.state())
    (feature,) = one.features()
    assert isinstance(feature, Hashed)
    assert "more than 2 categories" in one.remark()


def test_dates_and_known_features_are_merged_too():
    days = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 5)]
    fit = fit_of(days[:1], pa.date32())
    fit.merge(json.loads(json.dumps(fit_of(days[1:], pa.date32()).state())))
    assert fit.features() == fit_of(days, pa.date32()).features()
    known = fit_of(["a"], pa.string(), hashed="x")
    known.merge(known.state())
    assert known.state() == {}
    assert known.features() == fit_of([], pa.string(), hashed="x").features()
