import subprocess
import sys

import pytest

from fdml.bench import registry
from fdml.bench.measure import Report
from fdml.bench.registry import BENCHMARKS, run_benchmark
from fdml.errors import MissingExtra, SettingsError

REPORT = Report("fake", "?", [], {}, {}, "abc")


def test_an_unknown_name_lists_the_valid_ones():
    with pytest.raises(SettingsError, match=r"'kernel'.*kernels"):
        run_benchmark("kernel", str)


def test_a_benchmark_is_run_by_its_name(monkeypatch: pytest.MonkeyPatch):
    heard: list[str] = []

    def fake(progress):
        progress("working")
        return REPORT

    monkeypatch.setitem(BENCHMARKS, "fake", fake)
    assert run_benchmark("fake", heard.append) is REPORT
    assert heard == ["working"]


def test_a_missing_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def refuse(name: str):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(registry.importlib, "import_module", refuse)
    with pytest.raises(MissingExtra, match=r"pip install fdml\[torch\]"):
        run_benchmark("kernels", str)


def test_another_missing_module_is_not_blamed_on_torch(monkeypatch: pytest.MonkeyPatch):
    def refuse(name: str):
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(registry.importlib, "import_module", refuse)
    with pytest.raises(ModuleNotFoundError, match="scipy"):
        run_benchmark("kernels", str)


def test_the_registry_alone_does_not_import_torch():
    code = "import sys, fdml.bench.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
