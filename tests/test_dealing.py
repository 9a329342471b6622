"""Which tests one worker runs together, so that what is dear is made once."""

import pytest

from tests.conftest import same_worker, share_of

FORGET = "tests/federation/test_forget.py"


def test_a_file_with_a_fixture_for_all_its_tests_stays_together():
    assert same_worker(f"{FORGET}::test_it_asks_first") == FORGET
    assert same_worker("tests/end_to_end/test_smoke.py::test_a") == "tests/end_to_end/test_smoke.py"


@pytest.mark.parametrize("path", ["tests/models/test_optimizers.py", "tests/audit/test_lattice.py"])
def test_functions_that_only_one_file_uses_are_compiled_by_one_worker(path):
    assert same_worker(f"{path}::test_a[mlp]") == path


def test_other_tests_are_dealt_out_one_by_one():
    for test in ("tests/test_dealing.py::test_a[mlp]", "tests/models/test_metrics.py::test_a"):
        assert same_worker(test) == test


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("tests/contracts/test_models.py::test_a[linear]", "linear"),
        ("tests/contracts/test_models.py::test_a[double-mlp averaged]", "mlp"),
        ("tests/contracts/test_models.py::test_a[linear under fm-adam]", "vectors"),
        ("tests/contracts/test_models.py::test_a[mlp under fm-adam]", "mlp"),
        ("tests/models/test_compiled_models.py::test_a[fm-sgd-logistic-dense]", "fm"),
        ("tests/models/test_vectors_kernel_twin.py::test_a", "vectors"),
        ("tests/models/test_torch_model.py::test_a[sgd]", "torch"),
        ("tests/monitor/test_search_plot.py::test_a", "plots"),
    ],
)
def test_the_kernels_of_a_kind_are_compiled_by_one_worker(test, kind):
    assert same_worker(test) == kind


def test_every_module_is_in_the_share_of_one_worker():
    shares = [share_of(f"gw{number}", 3) for number in range(3)]
    together = [module for share in shares for module in share]
    assert __name__ in together
    assert len(set(together)) == len(together) > 400
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert share_of("gw3", 3) == shares[0], "in the place of one that was lost"
