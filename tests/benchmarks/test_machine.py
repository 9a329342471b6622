import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks.machine import _processor, commit, machine


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package committed to a repository of its own."""
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "-qm", "first")
    return folder


def test_the_machine_is_described_in_plain_values():
    facts = machine()
    assert json.loads(json.dumps(facts)) == facts
    assert {"processor", "cores", "python", "numpy", "numba", "torch", "scikit-learn", "load_average"} <= set(facts)
    assert facts["numpy"] == metadata.version("numpy")
    assert facts["processor"]


def test_the_processor_is_found_in_cpuinfo(tmp_path: Path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Abacus 9000\n")
    assert _processor(tmp_path / "cpuinfo") == "Abacus 9000"


def test_without_cpuinfo_the_processor_has_some_name(tmp_path: Path):
    assert _processor(tmp_path / "none")


def test_a_clean_checkout_gives_its_commit(package: Path):
    assert commit(package) == git(package, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_changed_or_new_file_is_reported(package: Path, name: str):
    (package / name).write_text("changed = True\n")
    assert commit(package) == git(package, "rev-parse", "HEAD") + "+changes"


def test_a_changed_benchmark_is_reported(package: Path):
    (package.parent / "benchmarks").mkdir()
    (package.parent / "benchmarks" / "speed.py").write_text("changed = True\n")
    assert commit(package).endswith("+changes")


@pytest.mark.skipif(not (Path(__file__).parents[2] / ".git").exists(), reason="not a checkout")
def test_the_benchmarks_of_this_checkout_give_its_commit():
    assert commit().removesuffix("+changes") == git(Path(__file__).parent, "rev-parse", "HEAD")


def test_a_result_saved_beside_the_package_is_no_change(package: Path):
    (package.parent / "benchmarks" / "results").mkdir(parents=True)
    (package.parent / "benchmarks" / "results" / "kernels.json").write_text("{}")
    assert not commit(package).endswith("+changes")


def test_outside_git_the_version_is_given(tmp_path: Path):
    assert commit(tmp_path) == f"fdml {metadata.version('fdml')}"


def test_a_package_installed_inside_another_checkout_does_not_take_its_commit(package: Path):
    installed = package.parent / ".venv" / "fdml"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit(installed) == f"fdml {metadata.version('fdml')}"


def test_without_the_git_program_the_version_is_given(package: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    assert commit(package) == f"fdml {metadata.version('fdml')}"
