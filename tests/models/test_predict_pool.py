import threading

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.models.compiled import CompiledModel, build_compiled
from fdml.models.predict_pool import PredictPool
from fdml.settings import ModelSettings, read_party

ROWS, WIDTH = 20_000, 30
CHANCE = np.random.default_rng(3)
DENSE = CHANCE.normal(size=(ROWS, WIDTH)).astype(np.float32) * (CHANCE.random((ROWS, WIDTH)) < 0.3)


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
@pytest.mark.parametrize("rows", [as_rows(DENSE), as_rows(sp.csr_array(DENSE))], ids=["dense", "sparse"])
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_what_is_predicted_does_not_depend_on_the_number_of_threads(kind, rows, threads):
    model = build_compiled(ModelSettings(kind=kind), WIDTH, 2, bias=True, key=(5, kind))
    model.restore({**model.state(), "theta": CHANCE.normal(size=model.parameters.shape).astype(np.float32)})
    for start, stop in ((0, ROWS), (11, ROWS - 3), (0, 100), (7, 7)):
        expected = model.predict(rows, start, stop)
        np.testing.assert_array_equal(PredictPool(threads).predict(model, rows, start, stop), expected)


def test_a_large_block_is_shared_and_a_small_one_is_not():
    model = build_compiled(ModelSettings(), WIDTH, 1, bias=True, key=(1,))
    seen = []

    class Watched(CompiledModel):
        def predict(self, rows, start=0, stop=None):
            seen.append((threading.current_thread().name, start, stop))
            return super().predict(rows, start, stop)

    model.__class__ = Watched
    crew = PredictPool(2)
    crew.predict(model, as_rows(DENSE), 0, ROWS)
    assert sorted((start, stop) for _, start, stop in seen) == [(0, ROWS // 2), (ROWS // 2, ROWS)]
    assert len({name for name, *_ in seen}) == 2
    seen.clear()
    crew.predict(model, as_rows(DENSE), 0, 5000)
    assert [(start, stop) for _, start, stop in seen] == [(0, 5000)]


def test_an_error_in_another_thread_is_an_error():
    model = build_compiled(ModelSettings(), WIDTH + 1, 1, bias=True, key=(1,))
    with pytest.raises(Exception, match="features"):
        PredictPool(2).predict(model, as_rows(DENSE), 0, ROWS)


@pytest.mark.parametrize("threads", ["0", "-2", '"many"', "1.5"])
def test_threads_that_cannot_be_are_refused(tmp_path, threads):
    (tmp_path / "party.toml").write_text(
        f'party = "a"\nrun = "run.toml"\nthreads = {threads}\n[data]\npath = "d.csv"\n'
    )
    with pytest.raises(SettingsError, match="threads"):
        read_party(tmp_path / "party.toml")
