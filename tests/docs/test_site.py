"""The site: it builds without a warning, all its links lead somewhere, nothing is fetched, its search works from disk."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.fenced import ROOT
from tests.monitor.browser import IS_HERE, WHY_NOT, browser

pytestmark = pytest.mark.slow
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset", "object": "data"}
"""By element, what a browser fetches by itself."""
GENERATED = ("reference/commands.html", "reference/settings.html", "reference/python.html", "reference/messages.html")


class Links(HTMLParser):
    """What a page links to and fetches, and its anchors."""

    def __init__(self):
        super().__init__()
        self.followed, self.fetched, self.anchors = [], [], set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.add(found.get("id"))
        if tag == "a" and found.get("href"):
            self.followed.append(found["href"])
        if (value := found.get(FETCHED.get(tag))) and found.get("rel") not in ("next", "prev", "canonical"):
            self.fetched.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(
        command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False, timeout=600
    )
    assert (built.returncode, built.stderr.strip()) == (0, "")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def pages(site):
    """Every page by its path, read."""
    found = {}
    for path in site.rglob("*.html"):
        found[path] = Links()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def test_every_page_of_docs_and_every_reference_is_there(site, pages):
    names = {path.relative_to(site).as_posix() for path in pages}
    docs = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    expected = {path.with_suffix(".html").as_posix().replace("README", "index") for path in docs}
    assert expected | {"index.html", "repository/CHANGELOG.html", "repository/examples/index.html"} <= names
    assert set(GENERATED) <= names


def test_every_link_leads_to_a_page_or_file_and_every_anchor_is_there(site, pages):
    broken = []
    for path, page in pages.items():
        for link in (*page.followed, *page.fetched):
            place, _, anchor = unquote(link).partition("#")
            target = (path.parent / place).resolve() if place else path
            if re.match(r"https?://", link):
                continue
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_no_page_fetches_anything_from_elsewhere(site, pages):
    fetched = {link for page in pages.values() for link in page.fetched}
    assert sorted(link for link in fetched if re.match(r"\w+:|//", link)) == []
    styles = "\n".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles) == []


def test_drawings_and_listings_are_in_the_site(site):
    assert "how-a-step-travels.svg" in (site / "index.html").read_text()
    assert (site / "how-a-step-travels.svg").is_file()
    listing = (site / "repository/fdml/party/loop.py.html").read_text()
    assert "class" in listing
    assert json.loads((site / "repository/benchmarks/results/speed.json").read_text())


def test_sources_are_not_in_the_search_and_pages_are(site):
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"quickstart.html", "errors.html", *GENERATED} <= found
    assert not [name for name in found if name.startswith("repository/fdml/")]


@pytest.mark.skipif(not IS_HERE, reason=WHY_NOT)
def test_the_search_finds_a_word_from_disk_and_asks_nobody(site):
    with browser() as window:
        window.open((site / "decisions" / "index.html").as_uri())
        window.run("document.querySelector('input.md-search__input').focus()")
        window.run(
            "const input = document.querySelector('input.md-search__input'); input.value = 'staleness';"
            "input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
        )
        found = window.until(lambda: window.texts(".md-search-result__item"), "a result", 60.0)
        assert any("How a step travels" in text for text in found)
        assert [url for url in window.requests() if not url.startswith("file:")] == []
        assert [line for line in window.log("browser") if line["level"] == "SEVERE"] == []


def test_a_broken_link_is_refused(tmp_path):
    for name in ("docs", "scripts", "mkdocs.yml"):
        source, target = ROOT / name, tmp_path / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for name in ("README.md", "benchmarks"):
        os.symlink(ROOT / name, tmp_path / name)
    page = Path(tmp_path, "docs", "glossary.md")
    page.write_text(page.read_text() + "\n[gone](gone.md) and [nowhere](privacy.md#nowhere)\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "built")]
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    built = subprocess.run(
        command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False, timeout=600
    )
    assert built.returncode != 0
    assert "gone.md" in built.stderr
    assert "nowhere" in built.stderr
