import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.errors import TrainingDiverged
from fdml.exchange.fixed_point import LARGEST, decode
from fdml.privacy.guard import OpenGuard


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "named"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (2.0**21, "2.09715e[+]06"), (-(2.0**21), "2.09715e[+]06")],
)
def test_what_is_no_number_in_range_does_not_leave(value, named, dtype):
    predictions = np.zeros((5, 2), dtype)
    predictions[3, 1] = value
    with pytest.raises(TrainingDiverged, match=f"a local prediction is {named}, past the .* lower learning_rate"):
        OpenGuard().pass_on(predictions)


@given(arrays(np.float64, (3, 2), elements=st.floats(-LARGEST, LARGEST)))
def test_a_number_in_range_leaves_as_it_is_but_for_half_a_step_of_the_grid(predictions):
    release = OpenGuard().pass_on(predictions)
    assert release.values.dtype == np.int64
    assert np.abs(decode(release.values) - predictions).max() <= 2.0**-33


def test_a_block_without_rows_passes():
    assert OpenGuard().pass_on(np.zeros((0, 2), np.float32)).values.shape == (0, 2)
