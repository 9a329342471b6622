"""The documents are true: what they name exists, what they link to is there, and what they promise has a test."""

import importlib
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

import fdml
from benchmarks.registry import BENCHMARKS
from fdml.cli.app import COMMANDS
from fdml.errors import SettingsError
from fdml.experiments.search_settings import Range, SearchSettings
from fdml.models.registry import kinds
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.federation import FederationSettings
from fdml.settings.file import RENAMED

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md"))
)
OF_OLD_NAMES = ("CHANGELOG.md", "docs/compatibility.md", "docs/decisions/0001-benchmarks-in-the-package.md")
"""Pages that name what is gone, as that is what they are about."""
CURRENT = [page for page in PAGES if page not in OF_OLD_NAMES]
DECISIONS = sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))

RUN = RunSettings, {"parties": ["a"], "label_party": "a"}
PARTY = PartySettings, {"party": "a", "federation": "federation.toml", "data": {"path": "a.csv"}}
"""The settings classes, and the least that each needs."""

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?<![\w./-])(?:fdml|benchmarks|simulator|tests|scripts|docs)/[\w./-]*\w(?:/|(?![\w<*/]))")
_DOTTED = re.compile(r"(?<![\w/.])fdml(?:\.\w+)+")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_of(page: str) -> str:
    """Everything in backticks and code blocks, one piece a line."""
    return "\n".join(match.group().strip("`") for match in _CODE.finditer(text_of(page)))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.strip().replace(" ", "-") for title in kept}


def fields_of(kind: object) -> Iterator[str]:
    """The names of all settings below a settings class, sections included."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield field.alias or name
            yield from fields_of(field.annotation)
    for part in typing.get_args(kind):
        yield from fields_of(part)


def resolve(name: str) -> None:
    """Import the longest module of a dotted name, and take the rest as attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if not ".".join(parts).startswith(str(error.name)):
                raise
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return


def test_the_readme_fits_a_hundred_lines():
    assert len(text_of("README.md").splitlines()) <= 100


@pytest.mark.parametrize("page", PAGES)
def test_every_link_inside_the_repository_leads_somewhere(page):
    for target in _LINK.findall(text_of(page)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), f"{page} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors_of(found), f"{page} links to {target}; {found.name} has no such heading"


@pytest.mark.parametrize("page", CURRENT)
def test_every_path_that_is_named_exists(page):
    named = {match for match in _PATH.findall(text_of(page)) if "NAME" not in match}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_every_path_in_the_drawing_of_the_architecture_exists():
    drawn = re.findall(r"[a-z]+/(?:&lt;kind&gt;/)?[a-z_]+\.py", text_of("docs/architecture.svg"))
    files = {path.removeprefix("fdml/").replace("&lt;kind&gt;", "linear") for path in drawn}
    assert len(files) > 15
    assert sorted(path for path in files if not (ROOT / "fdml" / path).is_file()) == []


@pytest.mark.filterwarnings("ignore")  # MLflow warns of its own type hints when it is imported
@pytest.mark.parametrize("page", PAGES)
def test_every_dotted_name_can_be_imported(page):
    for name in sorted(set(_DOTTED.findall(text_of(page)))):
        resolve(name)


def test_the_glossary_names_a_class_or_file_for_every_word():
    rows = [line for line in text_of("docs/glossary.md").splitlines() if re.match(r"\| (?!word|---)", line)]
    assert len(rows) > 40
    named = re.compile(r"`fdml[./]|`simulator/|in the bundle's card")
    assert [row for row in rows if not named.search(row)] == []


def first_column(page: str, before: str) -> set[str]:
    """What stands in backticks in the first column of the table under a heading of its columns."""
    table = text_of(page).split(before)[1].split("\n\n")[0]
    return {name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def test_the_quickstart_lists_every_extra_and_every_public_name():
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"].keys() - {"dev"}
    assert first_column("docs/quickstart.md", "| extra | what it brings | what needs it |") == extras
    names = {f"fdml.{name}" for name in fdml.__all__}
    assert first_column("docs/quickstart.md", "| name | what it is |") == names


@pytest.mark.parametrize("page", CURRENT)
def test_every_command_that_is_named_exists(page):
    commands = re.findall(r"^(?:\$ )?fdml ([a-z][a-z-]*)", code_of(page).replace("\n  fdml", "\nfdml"), re.MULTILINE)
    assert sorted(set(commands) - set(COMMANDS)) == []


@pytest.mark.parametrize("page", CURRENT)
def test_every_benchmark_that_is_named_exists(page):
    named = re.findall(r"python -m benchmarks ([a-z0-9][\w-]*)", text_of(page))
    named += re.findall(r"make bench NAME=([a-z0-9][\w-]*)", text_of(page))
    assert sorted(set(named) - set(BENCHMARKS)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_is_named_exists(page):
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    named = re.findall(r"^make ([a-z]+)", code_of(page), re.MULTILINE)
    assert sorted(set(named) - targets) == []


def test_the_readme_names_the_two_commands_that_set_everything_up():
    assert {"make demo", "make test"} <= set(code_of("README.md").splitlines())


def test_every_setting_is_documented_and_every_documented_setting_exists():
    tables = text_of("docs/settings.md").split("## On the command line")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE))
    sections = {part for name in re.findall(r"^### `\[([\w.]+)\]`", tables, re.MULTILINE) for part in name.split(".")}
    known = {*fields_of(FederationSettings), *fields_of(RunSettings), *fields_of(PartySettings)}
    known.update(*(kind.settings.model_fields for kind in kinds()), fields_of(SearchSettings), Range.model_fields)
    assert sorted(documented - known) == []
    assert sorted(known - documented - sections) == []


def test_every_renamed_setting_is_refused_with_the_error_that_is_listed():
    page = text_of("docs/compatibility.md")
    rows = re.findall(r"^\| `(\w+)` in `\[(\w+)\]` \| `(\w+)` \| `(.+)` \|$", page, re.MULTILINE)
    assert {old: new for old, _, new, _ in rows} == RENAMED
    for old, section, _, error in rows:
        kind, given = PARTY if section == "model" else RUN
        with pytest.raises(SettingsError, match=re.escape(error)):
            kind(**given, **{section: {old: 1}})


def test_every_promise_about_privacy_names_a_test_that_exists():
    page = text_of("docs/privacy.md")
    promises, _, listed = page.partition("## The tests behind these sentences")
    found = re.findall(r"^\| (T\d+) \|(.+)$", listed, re.MULTILINE)
    rows = dict(found)
    assert len(rows) == len(found), "each promise has a number of its own"
    assert set(re.findall(r"\bT\d+(?=[,)])", promises)) == set(rows)
    for mark, row in rows.items():
        tests = _TEST.findall(row)
        assert tests, f"{mark} names no test"
        for path, name in tests:
            assert f"def {name}(" in text_of(path), f"{mark}: {path} has no {name}"


@pytest.mark.parametrize("name", DECISIONS)
def test_every_decision_has_the_one_format(name):
    text = text_of(f"docs/decisions/{name}")
    assert text.startswith(f"# {int(name[:4])}. ")
    assert re.search(r"^\*\*State:\*\* (accepted|superseded by \[decision \d+\]\(.+\))$", text, re.MULTILINE)
    heads = re.findall(r"^\*\*([A-Z][a-z ]+)\.\*\*", text, re.MULTILINE)
    assert heads[:2] == ["Question", "Decision"]
    assert set(heads[2:]) <= {"Why", "Measured", "Recalibration", "Limits", "Cost", "Not taken", "Where noise is new"}


def test_the_index_of_decisions_lists_them_all_in_order():
    page = text_of("docs/decisions/README.md")
    assert re.findall(r"^\| \[\d+\]\(([^)]+)\)", page, re.MULTILINE) == DECISIONS


def test_every_section_about_performance_starts_with_its_result():
    sections = re.split(r"^## .+\n+", text_of("docs/performance.md"), flags=re.MULTILINE)[1:]
    assert len(sections) > 8
    assert [section[:60] for section in sections if not section.startswith("**")] == []


@pytest.mark.slow
def test_the_python_of_the_readme_prints_what_it_says():
    source, printed = re.search(r"```python\n(.+?)```\s+```text\n(.+?)```", text_of("README.md"), re.DOTALL).groups()
    command = [sys.executable, "-c", source]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, cwd=ROOT)
    assert float(ended.stdout) == pytest.approx(float(printed), abs=0.01)
