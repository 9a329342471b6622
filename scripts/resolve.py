"""The versions that pip finds for fdml together with another library. `make resolve` runs it; nothing is installed.

    python scripts/resolve.py flwr kserve

Exit code 1 if there are none for one of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def dependencies() -> list[str]:
    """What fdml needs without extras, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.split(r"[^\w.-]", each)[0] for each in project["dependencies"]]


def resolve(library: str) -> dict[str, Any] | None:
    """pip's report of an installation into an empty environment; None if there is no set of versions."""
    with tempfile.TemporaryDirectory(prefix="fdml-resolve-") as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--disable-pip-version-check", "--report", str(report)]
        command = [sys.executable, "-m", "pip", "install", *options, str(ROOT), library]
        if subprocess.run(command, check=False).returncode:
            return None
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def versions(report: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The version of each name in a report of pip; "-" where it is not needed."""
    found = {_plain(each["metadata"]["name"]): each["metadata"]["version"] for each in report["install"]}
    return {name: found.get(_plain(name), "-") for name in names}


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def main(libraries: Sequence[str]) -> int:
    """Print a line per library; 1 if one of them cannot be installed beside fdml."""
    failed = 0
    for library in libraries:
        report = resolve(library)
        if report is None:
            sys.stdout.write(f"fdml with {library}: no set of versions satisfies both\n")
            failed = 1
            continue
        chosen = versions(report, [library, *dependencies()])
        listed = ", ".join(f"{name} {version}" for name, version in chosen.items())
        sys.stdout.write(f"fdml with {library}: {listed}; {len(report['install'])} packages\n")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
