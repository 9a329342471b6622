"""A page as PDF, through a browser that is installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from fdml.errors import SettingsError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 120.0
_QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)
"""It shows one file, and asks nobody for anything."""


def find_browser() -> str:
    """Where Chromium or Chrome is; raises where there is none."""
    for name in BROWSERS:
        if (found := shutil.which(name)) is not None:
            return found
    raise SettingsError(f"--pdf needs a browser, and none of {', '.join(BROWSERS)} is here; open report.html and print")


def write_pdf(page: Path, out: Path) -> None:
    """Print a page to a PDF file, which its owner alone can read."""
    browser = find_browser()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
    with tempfile.TemporaryDirectory(prefix="fdml-") as folder:
        made = Path(folder) / "page.pdf"
        words = [browser, *_QUIET, *sandbox, f"--user-data-dir={folder}/profile", f"--print-to-pdf={made}"]
        try:
            subprocess.run([*words, page.resolve().as_uri()], capture_output=True, timeout=_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise SettingsError(f"{browser} could not print {str(page)!r} ({error}); open it and print it") from None
        _copy(made, out, browser)


def _copy(made: Path, out: Path, browser: str) -> None:
    try:
        content = made.read_bytes()
        out.unlink(missing_ok=True)
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        raise SettingsError(f"{browser} left no PDF to write to {str(out)!r} ({error.strerror})") from None
