"""At least as many lines of test as of code: in the package as a whole, and in every folder of it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent.name for path in (ROOT / "fdml").glob("*/__init__.py"))
ELSEWHERE = frozenset(("cli",))
"""Folders that tests of whole commands test too, in tests/end_to_end."""


def lines(folder):
    """Of all Python files in a folder, without those that a program wrote."""
    written = (path for path in folder.rglob("*.py") if not path.name.endswith("_pb2.py"))
    return sum(path.read_text(encoding="utf-8").count("\n") for path in written)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if name not in ELSEWHERE])
def test_a_folder_has_at_least_as_many_lines_of_test_as_of_code(folder):
    code, tests = lines(ROOT / "fdml" / folder), lines(ROOT / "tests" / folder)
    assert tests >= code, f"tests/{folder} has {tests} lines, fdml/{folder} {code}: test what is not tested yet"


def test_the_package_has_at_least_as_many_lines_of_test_as_of_code():
    assert lines(ROOT / "tests") >= lines(ROOT / "fdml")


def test_every_folder_of_the_package_is_looked_at():
    assert {"audit", "cli", "data", "models", "party", "protocol", "server", "transport"} <= set(FOLDERS)
