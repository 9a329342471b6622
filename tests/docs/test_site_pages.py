"""How links of docs become links of the site, and what stands for files outside of docs."""

import pytest

from scripts.site_pages import LISTED, ROOT, linked, site_name, turned


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("README.md", "index.md"),
        ("docs/privacy.md", "privacy.md"),
        ("docs/notebooks/two_parties_and_a_server.ipynb", "notebooks/two_parties_and_a_server.md"),
        ("docs/page.png", "page.png"),
        ("CHANGELOG.md", "repository/CHANGELOG.md"),
        ("fdml/party/loop.py", "repository/fdml/party/loop.py.md"),
        ("LICENSE", "repository/LICENSE.md"),
        ("examples", "repository/examples/index.md"),
        ("benchmarks/README.md", "repository/benchmarks/index.md"),
        ("benchmarks/results/speed.json", "repository/benchmarks/results/speed.json"),
    ],
)
def test_a_path_of_the_repository_has_one_name_on_the_site(path, name):
    assert (ROOT / path).exists()
    assert site_name(path) == name


@pytest.mark.parametrize(
    ("origin", "link", "expected"),
    [
        ("README.md", "docs/privacy.md#known-limits", "privacy.md#known-limits"),
        ("docs/privacy.md", "../CHANGELOG.md", "repository/CHANGELOG.md"),
        ("docs/privacy.md", "noise.png", "noise.png"),
        ("docs/operations.md", "../examples/systemd/", "repository/examples/systemd/index.md"),
        ("docs/decisions/0005-kernel-cache.md", "../../fdml/models/", "../repository/fdml/models/index.md"),
        ("docs/decisions/README.md", "0002-one-bias.md", "0002-one-bias.md"),
        ("CONTRIBUTING.md", "docs/glossary.md", "../glossary.md"),
        ("docs/privacy.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/privacy.md", "#labels", "#labels"),
        ("docs/privacy.md", "gone.md", "gone.md"),
    ],
)
def test_a_link_is_turned_to_where_it_leads_on_the_site(origin, link, expected):
    assert turned(f"See [it]({link}).", origin, site_name(origin)) == f"See [it]({expected})."


def test_links_in_code_stay_as_they_are():
    text = "```text\n[it](docs/privacy.md)\n```\n[it](docs/privacy.md)\n"
    assert turned(text, "README.md", "index.md") == "```text\n[it](docs/privacy.md)\n```\n[it](privacy.md)\n"


def test_what_docs_link_to_is_found_and_what_that_links_to():
    found = linked()
    assert {"README.md", "CHANGELOG.md", "LICENSE", "fdml/party/loop.py", "examples/monthly/monthly.toml"} <= set(found)
    assert not [path for path in found if path.startswith("docs/") or "__pycache__" in path]
    assert len(found) == len(set(found))


def test_no_listing_is_of_a_file_that_is_not_text():
    for path in linked():
        if (ROOT / path).suffix in LISTED and (ROOT / path).is_file():
            assert "\0" not in (ROOT / path).read_text(encoding="utf-8")
