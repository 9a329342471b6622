"""The table `fdml demo` prints: mean of three seeds, last epoch, nothing picked by test figures."""

from __future__ import annotations

import pytest

from fdml.experiments.compare import compare
from fdml.experiments.paper import PAPER, a9a_dataset, contenders


@pytest.fixture(scope="module")
def table():
    curves = compare(a9a_dataset(), contenders(), seeds=range(3))
    return {(curve.model, curve.scheme): curve.last for curve in curves}


@pytest.mark.slow
def test_the_a9a_table_reaches_its_figures(table):
    assert table["LR", "joint"].test_loss <= 0.3242
    assert table["LR", "joint"].test_metric >= 0.9024
    assert table["NN", "joint"].test_loss <= 0.3218
    assert table["NN", "joint"].test_metric >= 0.9040
    assert table["NN", "pooled"].test_metric >= 0.9048
    for model in ("LR", "NN"):
        joint = table[model, "joint"].test_metric
        assert joint >= table[model, "alone"].test_metric + 0.015
        assert joint >= table[model, "late fusion"].test_metric + 0.003
        assert joint >= PAPER[model, "joint"].test_metric - 0.0005
