import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import registry
from benchmarks.measure import Report
from benchmarks.registry import BENCHMARKS, Benchmark, run_benchmark
from fdml.errors import MissingExtra, SettingsError

REPORT = Report("fake", "?", [], {}, {}, "abc")


def test_an_unknown_name_lists_the_valid_ones():
    with pytest.raises(SettingsError, match=r"'kernel'.*kernels"):
        run_benchmark("kernel", str)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch):
    """A benchmark that takes `seeds` and says what it was called with."""

    def run(progress, **options):
        progress(f"working {options}")
        return REPORT

    monkeypatch.setitem(sys.modules, "fake_benchmark", SimpleNamespace(run=run))
    monkeypatch.setitem(BENCHMARKS, "fake", Benchmark("fake_benchmark", ("seeds",)))


@pytest.mark.usefixtures("fake")
def test_a_benchmark_is_run_by_its_name_with_the_options_that_were_given():
    heard: list[str] = []
    assert run_benchmark("fake", heard.append, seeds=None, first=None) is REPORT
    assert run_benchmark("fake", heard.append, seeds=3, first=None) is REPORT
    assert heard == ["working {}", "working {'seeds': 3}"]


@pytest.mark.usefixtures("fake")
def test_an_option_that_a_benchmark_does_not_take_is_refused():
    with pytest.raises(SettingsError, match="'fake' takes no --first; leave it out"):
        run_benchmark("fake", str, first=3)


@pytest.mark.usefixtures("fake")
def test_only_a_benchmark_that_draws_takes_a_plot(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SettingsError, match="'fake' takes no --plot; leave it out"):
        run_benchmark("fake", str, plot=Path("out.png"))
    monkeypatch.setitem(BENCHMARKS, "drawn", Benchmark("fake_benchmark", ("plot",)))
    heard: list[str] = []
    assert run_benchmark("drawn", heard.append, seeds=None, plot=Path("out.png")) is REPORT
    assert "out.png" in heard[0]
    assert "plot" in BENCHMARKS["noise"].options


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_takes_the_options_it_is_listed_with(name):
    found = importlib.import_module(BENCHMARKS[name].module)
    assert set(BENCHMARKS[name].options) <= set(inspect.signature(found.run).parameters)


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
    code = "import sys, benchmarks.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_its_question_and_its_command_in_the_readme(name):
    readme = (Path(registry.__file__).parent / "README.md").read_text()
    assert f"| `python -m benchmarks {name}" in readme


def test_every_result_is_one_of_a_benchmark_with_machine_and_commit():
    results = sorted((Path(registry.__file__).parent / "results").glob("*.json"))
    assert {path.stem for path in results} <= set(BENCHMARKS)
    for path in results:
        found = json.loads(path.read_text())
        assert {"results", "ratios", "machine", "commit"} <= found.keys(), path.name
