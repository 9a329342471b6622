"""What mkdocs adds to docs/ when it builds the site: pages written from code, and what docs/ links to outside of it.

A link like `../fdml/party/loop.py` works on a code host as it stands. For the site, whatever such links lead to becomes
a page under `repository/`: Markdown as it is, other text as a listing, a folder as its README and the list of its
files, and the links are turned to these pages. The README of the repository is the site's first page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
OUTSIDE = "repository"
"""The site's folder of what is not in docs/."""
BEGIN = ("README.md", "benchmarks/README.md")
"""Pages of the site that are not in docs/, whether docs/ links to them or not."""
LISTED = {
    ".css": "css",
    ".html": "html",
    ".js": "javascript",
    ".proto": "protobuf",
    ".py": "python",
    ".service": "ini",
    ".sh": "sh",
    ".timer": "ini",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".cff": "yaml",
    "": "text",
    ".txt": "text",
}
"""Files that become a listing, by their ending, and its language; others are copied as they are."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
_NO_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages written from code, the notebooks, and all that is linked to from docs/."""
    for name, text in {**reference.pages(), **dict(_notebooks())}.items():
        files.append(File.generated(config, name, content=text))
    for path in linked():
        if (name := site_name(path)) not in files.src_uris:
            files.append(_file(path, name, config))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn links that lead outside of docs/ to the pages that stand for them."""
    origin = _repository_path(page.file.src_uri)
    return markdown if origin is None else turned(markdown, origin, page.file.src_uri)


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Leave out the page for servers that find nothing: its links work at the root of a host only."""
    return "" if template_name == "404.html" else output


def turned(markdown: str, origin: str, name: str) -> str:
    """The text of a file of the repository with its links as they are from a page of the site."""

    def turn(found: re.Match[str]) -> str:
        target = _target(origin, found[1])
        if target is None:
            return found[0]
        return os.path.relpath(site_name(target), PurePosixPath(name).parent) + (found[2] or "")

    return _outside_fences(markdown, lambda text: _LINK.sub(turn, text))


def site_name(path: str) -> str:
    """The source name that a path of the repository has on the site."""
    if path == "README.md":
        return "index.md"
    if path.startswith(f"{DOCS}/"):
        name = path.removeprefix(f"{DOCS}/")
        return name.removesuffix(".ipynb") + ".md" if name.endswith(".ipynb") else name
    if (ROOT / path).is_dir():
        return f"{OUTSIDE}/{path}/index.md"
    if path.endswith("/README.md"):
        return f"{OUTSIDE}/{path.removesuffix('README.md')}index.md"
    suffix = PurePosixPath(path).suffix
    return f"{OUTSIDE}/{path}.md" if suffix in LISTED else f"{OUTSIDE}/{path}"


def linked() -> list[str]:
    """The paths outside of docs/ that pages of the site lead to, and what these lead to in turn."""
    waiting = [*BEGIN, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / DOCS).rglob("*.md")))]
    seen: dict[str, None] = dict.fromkeys(waiting)
    for path in waiting:
        for found in _leads_to(path):
            if found not in seen:
                seen[found] = None
                waiting.append(found)
    return [path for path in seen if not path.startswith(f"{DOCS}/")]


def _leads_to(path: str) -> Iterator[str]:
    place = ROOT / path
    if place.is_dir():
        yield from (each.relative_to(ROOT).as_posix() for each in _content(place))
    elif path.endswith(".md"):
        prose = _outside_fences(place.read_text(encoding="utf-8"), lambda text: text, keep=False)
        targets = (_target(path, found[1]) for found in _LINK.finditer(prose))
        yield from (target for target in targets if target is not None and not target.startswith(f"{DOCS}/"))


def _content(folder: Path) -> list[Path]:
    """The files and folders in a folder; what is hidden or made by Python is left out."""
    found = (each for each in folder.iterdir() if each.name[0] != "." and each.name != "__pycache__")
    return sorted(found, key=lambda each: (each.is_file(), each.name))


def _target(origin: str, link: str) -> str | None:
    """The path of the repository that a link of a file leads to; None where there is nothing."""
    path = os.path.normpath(PurePosixPath(origin).parent / link)
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def _repository_path(name: str) -> str | None:
    """The path of the repository that a page of the site was made from; None of one written from code."""
    if name == "index.md":
        return "README.md"
    if not name.startswith(f"{OUTSIDE}/"):
        return f"{DOCS}/{name}" if (ROOT / DOCS / name).is_file() else _notebook(name)
    path = name.removeprefix(f"{OUTSIDE}/")
    if path.endswith("/index.md"):
        return path.removesuffix("index.md") + "README.md"
    return path if (ROOT / path).is_file() else None


def _notebook(name: str) -> str | None:
    path = f"{DOCS}/{name.removesuffix('.md')}.ipynb"
    return path if (ROOT / path).is_file() else None


def _file(path: str, name: str, config: MkDocsConfig) -> File:
    place = ROOT / path
    if place.is_dir():
        return File.generated(config, name, content=_folder_page(place))
    if path.endswith(".md"):
        return File.generated(config, name, content=place.read_text(encoding="utf-8"))
    if place.suffix in LISTED:
        return File.generated(config, name, content=_listing(path))
    return File.generated(config, name, abs_src_path=str(place))


def _folder_page(folder: Path) -> str:
    """The README of a folder, or its name, above a list of what is in it."""
    path, readme = folder.relative_to(ROOT).as_posix(), folder / "README.md"
    lines = [readme.read_text(encoding="utf-8").rstrip() if readme.is_file() else f"{_NO_SEARCH}# {path}/", ""]
    lines += ["## Files in this folder", ""] if readme.is_file() else []
    for each in _content(folder):
        if each != readme:
            lines.append(f"- [`{each.name}{'/' * each.is_dir()}`]({each.name})")
    return "\n".join(lines) + "\n"


def _listing(path: str) -> str:
    place = ROOT / path
    text = place.read_text(encoding="utf-8").rstrip("\n")
    return f"{_NO_SEARCH}# {path}\n\n````{LISTED[place.suffix]}\n{text}\n````\n"


def _notebooks() -> Iterator[tuple[str, str]]:
    """The notebooks as pages: text, code and what it printed."""
    for path in sorted((ROOT / DOCS / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = [part for cell in cells for part in _cell(cell)]
        parts.append(f"[This notebook as a file]({path.name})")
        yield f"notebooks/{path.stem}.md", "\n\n".join(parts) + "\n"


def _cell(cell: dict[str, object]) -> Iterator[str]:
    source = "".join(cell["source"])  # type: ignore[arg-type]
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:  # type: ignore[attr-defined]
        text = "".join(output.get("text") or output.get("data", {}).get("text/plain", ()))
        if text:
            yield f"```text\n{text.rstrip()}\n```"


def _outside_fences(text: str, change: Callable[[str], str], *, keep: bool = True) -> str:
    """The text with all that is not in a block of code changed; without `keep` such blocks are left out."""
    parts, end = [], 0
    for found in _FENCE.finditer(text):
        parts += [change(text[end : found.start()]), found[0] if keep else ""]
        end = found.end()
    return "".join([*parts, change(text[end:])])
