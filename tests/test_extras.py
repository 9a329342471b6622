import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from fdml import extras
from fdml.errors import FdmlError, MissingExtra
from fdml.extras import EXTRAS, missing, need

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = PROJECT["optional-dependencies"]


def lowest_versions() -> dict[str, Version]:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    return {each.name: Version(next(iter(each.specifier)).version) for each in pinned}


@pytest.mark.parametrize("module", EXTRAS)
def test_what_is_installed_is_not_missed(module):
    need(module, "this test")


@pytest.mark.parametrize("module", EXTRAS)
def test_what_is_not_installed_is_named_with_its_extra(module, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    name, extra = EXTRAS[module]
    with pytest.raises(
        MissingExtra, match=re.escape(f"a plot needs {name}; install it with `pip install fdml[{extra}]`")
    ):
        need(module, "a plot")


def test_a_missing_extra_is_an_error_of_ours_and_an_import_error():
    error = missing("torch", "a torch party")
    assert isinstance(error, FdmlError)
    assert isinstance(error, ImportError)


def test_every_extra_is_offered_and_in_all():
    offered = {extra for _, extra in EXTRAS.values()}
    assert offered == set(OPTIONAL) - {"all", "dev", "docs"}
    (everything,) = map(Requirement, OPTIONAL["all"])
    assert everything.extras == offered
    assert "fdml[all]" in OPTIONAL["dev"]


def test_bounds_are_lower_ones_only_and_those_of_the_lowest_versions():
    """An upper bound would keep others from being installed beside fdml."""
    listed = PROJECT["dependencies"] + OPTIONAL["sklearn"] + OPTIONAL["plots"]
    bounds = {}
    for requirement in map(Requirement, listed):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        bounds[requirement.name] = Version(bound.version)
    assert bounds == lowest_versions()


def test_every_dependency_has_a_tested_version_within_its_bounds():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    tested = {Requirement(line).name.lower(): line.partition("==")[2] for line in lines}
    listed = [each for extra in ("sklearn", "plots", "torch", "samples") for each in OPTIONAL[extra]] + PROJECT[
        "dependencies"
    ]
    for requirement in map(Requirement, listed):
        assert requirement.specifier.contains(tested[requirement.name.lower()]), requirement
