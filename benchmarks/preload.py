"""For the process from which others are forked: whatever a start loads by and by, loaded at once.

A start takes a second of processor time for numba's registers and pandas, which
forked processes then share.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import scipy.sparse as sp

from fdml.data.rows import as_rows
from fdml.models.kind import ModelSpec
from fdml.models.learner import LocalLearner
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings

_DENSE = np.zeros((1, 1), np.float32)
_ROWS = (as_rows(_DENSE), as_rows(sp.csr_array(_DENSE)))

import_module("pandas")
for _rows in _ROWS:
    _model = build_model(
        model_settings(optimizer="sgd", l2=0.0), ModelSpec(inputs=1, width=1, bias=True, key=("warm",))
    )
    LocalLearner(_model, _rows).warm_up(objective_for("logistic", 2))
