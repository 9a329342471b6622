import os

import pytest

from benchmarks.own_process import in_own_process


def test_work_is_done_in_another_process_and_its_answer_comes_back():
    assert in_own_process(os.getpid) != os.getpid()
    assert in_own_process(int, "ff", base=16) == 255


def test_an_error_of_the_work_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        in_own_process(int, "no number")
