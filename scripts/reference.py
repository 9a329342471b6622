"""The reference pages of the site, written from code: commands, settings, Python, error messages.

mkdocs builds them with the site (`make docs`), so they cannot be out of date; `python scripts/reference.py FOLDER`
writes them to a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.reference_commands import commands_page
from scripts.reference_messages import messages_page
from scripts.reference_python import python_page
from scripts.reference_settings import settings_page


def pages() -> dict[str, str]:
    """Every page by its name on the site."""
    return {
        "reference/commands.md": commands_page(),
        "reference/messages.md": messages_page(),
        "reference/python.md": python_page(),
        "reference/settings.md": settings_page(),
    }


def main() -> None:
    """Write the pages to the folder that is named."""
    for name, text in pages().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
