"""Where and of what a figure was made: the machine, and the commit of fdml."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = ("numpy", "numba", "torch", "scikit-learn")
_PACKAGE = Path(__file__).parents[1] / "fdml"
_MEASURED = (".", "../benchmarks/*.py", "../simulator/*.py")
"""What a figure depends on, as seen from the package; saved results do not count."""
_GIT_SECONDS = 20.0


def machine() -> dict[str, Any]:
    """Facts of this machine; ask before the work begins, as the load average is of this moment."""
    return {
        "processor": _processor(Path("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{library: _version(library) for library in _LIBRARIES},
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def _processor(cpuinfo: Path) -> str:
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def commit(package: Path = _PACKAGE) -> str:
    """The commit fdml was run from, with "+changes" where the code differs from it; its version if not from git.

    A package installed inside some other checkout is not tracked there, and gives its version.
    """
    head = _git(package, "rev-parse", "HEAD")
    if head is None or not _git(package, "ls-files", "__init__.py"):
        return f"fdml {_version('fdml')}"
    return f"{head}+changes" if _git(package, "status", "--porcelain", "--", *_MEASURED) else head


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
