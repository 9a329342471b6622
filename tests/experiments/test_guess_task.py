import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.utils.multiclass import type_of_target

from fdml.data.rows import DenseRows
from fdml.data.table import Table
from fdml.errors import LabelError
from fdml.experiments.comparison_input import guess_task

LENGTH = st.integers(1, 30)
labels = st.one_of(
    hnp.arrays(np.float64, LENGTH, elements=st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.5, 1e17])),
    hnp.arrays(np.int64, LENGTH, elements=st.integers(-2, 2)),
    hnp.arrays(np.bool_, LENGTH),
    hnp.arrays("U2", LENGTH, elements=st.sampled_from(["a", "b", "c"])),
)


def table(values) -> Table:
    count = 1 if values is None else len(values)
    return Table(DenseRows(np.zeros((count, 1), np.float32)), ("x",), labels=values)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@given(labels)
def test_the_task_is_the_one_that_scikit_learn_would_guess(values):
    expected = {"binary": "binary", "continuous": "regression"}
    assert guess_task(table(values)) == expected.get(type_of_target(values), "multiclass")


@pytest.mark.parametrize(
    ("values", "task"),
    [(["yes", "no"], "binary"), ([0, 1, 2], "multiclass"), ([1.0, 2.0, 3.0], "multiclass"), ([0.5, 1.0], "regression")],
)
def test_a_task_is_guessed_from_the_labels(values, task):
    assert guess_task(table(np.array(values))) == task


def test_without_labels_there_is_nothing_to_guess_from():
    with pytest.raises(LabelError, match="name the label column with --label"):
        guess_task(table(None))
