"""Where compiled code is kept: a change of any kernel's source leaves the old code behind."""

import shutil
from pathlib import Path

import numba
import pytest

from fdml.models.kernels import compiler


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A copy of the models' folder that the compiler takes for its own."""
    copy = tmp_path / "models"
    shutil.copytree(Path(compiler.__file__).parent.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiler, "__file__", str(copy / "kernels" / "compiler.py"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    return copy


@pytest.mark.parametrize(
    "source", ["kernels/gradients.py", "kernels/optimizers.py", "linear/kernel.py", "mlp/kernel.py"]
)
def test_a_change_of_any_kernel_source_changes_the_folder(models, source):
    before = compiler._cache_folder()
    assert compiler._cache_folder() == before
    (models / source).write_text((models / source).read_text() + "\n# another line\n")
    assert compiler._cache_folder() != before


def test_a_change_of_anything_else_does_not(models):
    before = compiler._cache_folder()
    (models / "metrics.py").write_text("# another file\n")
    (models / "linear" / "kind.py").write_text("# another file\n")
    assert compiler._cache_folder() == before


def test_the_folder_is_beside_the_sources_or_where_numba_was_told(models, tmp_path, monkeypatch):
    assert compiler._cache_folder().parent == models / "__pycache__"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    assert compiler._cache_folder().parent == tmp_path / "cache"


def test_where_the_sources_cannot_be_written_beside_it_is_in_the_users_cache(models, tmp_path, monkeypatch):
    monkeypatch.setattr(compiler.os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert compiler._cache_folder().parent == tmp_path / "home" / "fdml"


def test_numbas_own_setting_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    compiler.kernel(lambda x: x)
    assert str(tmp_path) == numba.config.CACHE_DIR
