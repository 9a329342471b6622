"""Where compiled code is kept: a change of any kernel's source leaves the old code behind."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from fdml.models.kernels import compiler

ROOT = Path(__file__).parents[2]


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


def sources_of(tmp_path):
    """A file with a kernel that is as slow to compile as any, and does next to nothing."""
    (tmp_path / "some_kernel.py").write_text(
        "from fdml.models.kernels.compiler import kernel\n\n\n@kernel\ndef twice(x):\n    return x + x\n"
    )


PROCESS = """
import sys, time
import numpy as np
from numba.core import event
from some_kernel import twice

compiled = []
class Compiled(event.Listener):
    def on_start(self, found):
        if found.data["dispatcher"].py_func.__name__ == "twice":
            compiled.append(str(found.data["args"]))
            time.sleep(0.3)  # so that the others come meanwhile
    def on_end(self, found):
        pass

event.register("numba:compile", Compiled())
print("ready", flush=True)
sys.stdin.readline()
for kind in sys.argv[1].split(","):
    value = np.ones(3, kind)
    assert (twice(value) == 2).all() and twice(value).dtype == value.dtype
print(len(compiled), flush=True)
"""


def compiled_together(tmp_path, *kinds):
    """How many forms were compiled by processes that go at once, each over some types of numbers."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    started = [subprocess.Popen([sys.executable, "-c", PROCESS, kind], **pipes) for kind in kinds]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    ended = []
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        ended.append(int(output))
    return sum(ended)


@pytest.mark.slow
def test_processes_that_start_together_compile_each_form_once(tmp_path):
    sources_of(tmp_path)
    assert compiled_together(tmp_path, "float32,float64", "float64,float32", "float32,int64") == 3
    assert compiled_together(tmp_path, "float32,float64,int64") == 0  # and all of them are in the cache
