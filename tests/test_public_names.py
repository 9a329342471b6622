"""The public names: `fdml.__all__`, what `dir` lists, what the documents use, and what each name is."""

import ast
import inspect
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import fdml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SUBMODULES = {path.stem for path in (ROOT / "fdml").iterdir() if path.suffix == ".py" or path.is_dir()}
LIBRARIES = ("numpy", "numba", "sklearn", "scipy", "pyarrow", "grpc", "pydantic", "typer", "matplotlib", "torch")


def used_in(text: str) -> set[str]:
    """The names that Python code or prose in backticks takes from `fdml` itself."""
    imported = re.findall(r"^\s*from fdml import ([\w, ]+)$", text, re.MULTILINE)
    names = {name.strip() for line in imported for name in line.split(",")}
    dotted = set(re.findall(r"(?<![\w/.-])fdml\.(\w+)", text))
    return names | (dotted - SUBMODULES)


def documentation_of(name: str) -> str | None:
    """The docstring of a class or function; of anything else, the text below the line that defines it."""
    found = getattr(fdml, name)
    if inspect.isclass(found) or inspect.isfunction(found):
        return found.__doc__
    module = sys.modules["fdml.events"]
    lines = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    for line, below in pairwise(lines):
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
            return ast.literal_eval(below.value) if isinstance(below, ast.Expr) else None
    return None


def test_dir_lists_exactly_the_public_names():
    assert sorted(dir(fdml)) == sorted(fdml.__all__)
    assert len(set(fdml.__all__)) == len(fdml.__all__)


def test_the_documents_use_public_names_only_and_name_every_one():
    used = {name for page in PAGES for name in used_in(page.read_text(encoding="utf-8"))} - {"__all__"}
    assert used == set(fdml.__all__)


@pytest.mark.parametrize("name", [name for name in fdml.__all__ if name != "__version__"])
def test_every_public_name_can_be_imported_and_has_a_docstring(name):
    assert getattr(fdml, name) is getattr(fdml, name)
    assert len(documentation_of(name) or "") > 20


def test_what_type_checkers_see_is_what_there_is_at_run_time():
    tree = ast.parse(Path(fdml.__file__).read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        part.asname or part.name: f"{line.module}.{part.name}"
        for line in checked.body
        if isinstance(line, ast.ImportFrom)
        for part in line.names
    }
    declared = {line.target.id for line in checked.body if isinstance(line, ast.AnnAssign)}
    assert seen.keys() | declared == set(fdml.__all__)
    for name, home in seen.items():
        module, _, attribute = home.rpartition(".")
        assert getattr(fdml, name) is getattr(sys.modules[module], attribute), name


def test_importing_fdml_imports_no_library():
    code = f"import fdml, sys; dir(fdml); fdml.__version__; print([m for m in {LIBRARIES!r} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"


def test_a_name_that_is_not_public_is_refused_with_those_that_are():
    with pytest.raises(
        AttributeError,
        match=r"no attribute 'train'; it has .*compare, contenders, from_frames, join, predict, serve, simulate",
    ):
        fdml.train  # noqa: B018


def test_the_map_names_folders_that_exist_and_all_that_there_are():
    folders = {path.name for path in (ROOT / "fdml").iterdir() if (path / "__init__.py").is_file()}
    assert sorted(folder for folder in folders if not re.search(rf"\b{folder}\b", fdml.__doc__)) == []
    for module in re.findall(r"`fdml\.([\w.]+)`", fdml.__doc__):
        assert (ROOT / "fdml" / (module.replace(".", "/") + ".py")).is_file(), module
