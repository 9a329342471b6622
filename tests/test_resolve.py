import pytest

from scripts import resolve
from scripts.resolve import dependencies, main, versions


def report(**found: str):
    return {"install": [{"metadata": {"name": name, "version": version}} for name, version in found.items()]}


def test_the_dependencies_are_those_of_pyproject_without_extras():
    assert {"numpy", "grpcio", "protobuf"} <= set(dependencies())
    assert not {"scikit-learn", "matplotlib", "torch"} & set(dependencies())


def test_versions_are_found_whatever_way_a_name_is_written():
    found = versions(report(PyNaCl="1.6.2", pydantic_core="2.50.4"), ["pynacl", "pydantic-core", "numpy"])
    assert found == {"pynacl": "1.6.2", "pydantic-core": "2.50.4", "numpy": "-"}


def test_a_library_that_fits_is_printed_with_its_versions(monkeypatch, capsys):
    monkeypatch.setattr(resolve, "resolve", lambda _: report(flwr="1.41.0", protobuf="6.33.6"))
    assert main(["flwr"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("fdml with flwr: flwr 1.41.0, ")
    assert "protobuf 6.33.6" in printed
    assert printed.endswith("2 packages\n")


@pytest.mark.parametrize("order", [["good", "bad"], ["bad", "good"]])
def test_a_library_that_does_not_fit_fails_and_the_others_are_still_tried(order, monkeypatch, capsys):
    monkeypatch.setattr(resolve, "resolve", lambda name: None if name == "bad" else report(good="1"))
    assert main(order) == 1
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines[0] == "fdml with bad: no set of versions satisfies both"
    assert lines[1].startswith("fdml with good: good 1, ")
