"""The wheel in an empty environment without extras, and with the lowest versions of everything it needs.

Each environment is made once and shared by the tests of this file.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fdml
from fdml.cli.app import COMMANDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CLEAN = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
"""pip takes what is on PYTHONPATH for installed."""


class Environment:
    """A virtual environment with the wheel in it."""

    def __init__(self, folder: Path, wheel: Path, constraints: str) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
        # Compiling all of scipy takes longer than what is used of it.
        options = ["--no-compile", "--constraint", str(ROOT / constraints)]
        pip("--python", str(self.bin / "python"), "install", *options, str(wheel))

    def run(self, *words: str, cwd: Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in a folder."""
        command = [str(self.bin / words[0]), *words[1:]]
        return subprocess.run(command, cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False, timeout=seconds)


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, env=CLEAN, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Made from a copy, so that nothing is left behind in the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    for name in ("fdml", "benchmarks", "simulator", "scripts"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".cache", "results"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(copy))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Iterator[Environment]:
    """The tested versions, no extra."""
    folder = tmp_path_factory.mktemp("environment")
    yield Environment(folder, wheel, "constraints.txt")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def lowest(wheel, tmp_path_factory) -> Iterator[Environment]:
    """The lowest versions that are allowed, no extra."""
    folder = tmp_path_factory.mktemp("lowest")
    yield Environment(folder, wheel, "constraints-lowest.txt")
    shutil.rmtree(folder)


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {"fdml/py.typed", "fdml/protocol/wire.proto", "fdml/protocol/wire_pb2.pyi"} <= names
    samples = {f"fdml/data/samples/adult_files/{name}" for name in ("train.csv.xz", "test.csv.xz", "LICENSE.txt")}
    assert samples <= names
    assert len([name for name in names if re.search(r"dist-info/licenses/.*LICENSE", name)]) == 2
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"fdml"}


def test_every_python_file_of_the_package_is_in_the_wheel(wheel):
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fdml").rglob("*.py")}
    with zipfile.ZipFile(wheel) as opened:
        assert {name for name in opened.namelist() if name.endswith(".py")} == sources


def test_without_extras_their_libraries_are_not_installed(environment, tmp_path):
    code = "from importlib.util import find_spec as f; print([n for n in ('sklearn', 'matplotlib', 'torch') if f(n)])"
    assert environment.run("python", "-c", code, cwd=tmp_path).stdout == "[]\n"


def test_the_version_is_that_of_the_package(environment, tmp_path):
    assert environment.run("fdml", "--version", cwd=tmp_path).stdout == f"fdml {fdml.__version__}\n"


def test_every_command_is_listed_without_extras(environment, tmp_path):
    ended = environment.run("fdml", "--help", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert all(name in ended.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "what", "extra"),
    [
        (("demo", "--plot", "x.png"), "--plot needs matplotlib", "plots"),
        (("compare", "x.csv", "--plot", "x.png"), "--plot needs matplotlib", "plots"),
        (("compare", "x.svm"), "a LIBSVM file needs scikit-learn", "sklearn"),
        (("audit", "run.toml"), "`fdml audit` needs scikit-learn", "sklearn"),
    ],
)
def test_a_command_that_needs_an_extra_names_it_before_any_work(words, what, extra, environment, tmp_path):
    (tmp_path / "x.svm").write_text("1 1:2\n0 2:1\n")
    ended = environment.run("fdml", *words, cwd=tmp_path)
    assert ended.returncode == 1
    assert f"{what}; install it with `pip install fdml[{extra}]`" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_an_estimator_names_the_extra_it_needs(environment, tmp_path):
    ended = environment.run("python", "-c", "import fdml; fdml.FeatureDistributedClassifier", cwd=tmp_path)
    assert ended.returncode == 1
    expected = "FeatureDistributedClassifier needs scikit-learn; install it with `pip install fdml[sklearn]`"
    assert expected in ended.stderr


def test_the_demo_runs_from_an_empty_folder_and_leaves_nothing_there(environment, tmp_path):
    ended = environment.run("fdml", "demo", "--seeds", "1", cwd=tmp_path, seconds=900)
    assert ended.returncode == 0, ended.stderr
    (auc,) = re.findall(r"LR +joint +\S+ +\S+ +(\S+)", ended.stdout)
    assert float(auc) == pytest.approx(0.9024, abs=0.002)
    assert list(tmp_path.iterdir()) == []


def test_the_lowest_versions_train(lowest, tmp_path):
    new = ["new", "shop", "--parties", "store,browser", "--server", "127.0.0.1:0"]
    for words in (new, ["simulate", "shop/run.toml"]):
        ended = lowest.run("fdml", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    for party in ("store", "browser"):
        assert (tmp_path / "shop" / party / "runs" / "first" / "model" / "card.json").is_file()
