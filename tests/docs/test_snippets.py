"""Every block of code in README and docs: commands are taken, settings are valid, imports are there."""

import ast
import importlib
import re
import tomllib

import pytest

from fdml.experiments.search_settings import SearchSettings
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.federation import FederationSettings
from tests.docs.fates import NOT_RUN, RAN
from tests.docs.fenced import (
    PAGES,
    ROOT,
    all_blocks,
    blocks,
    commands,
    inline_commands,
    options_of,
    resolved,
    taken,
)

COMMANDS = [(str(block), words) for block in all_blocks() for words in commands(block)]
TOML, PYTHON = all_blocks("toml"), all_blocks("python")
LANGUAGES = {"", "sh", "text", "console", "python", "toml", "ini", "cron"}
PROSE = [page for page in PAGES if not page.startswith(("docs/decisions/", "docs/compatibility.md"))]
"""Without pages that also name commands that are gone, or were not taken."""
VERSION = "ab" * 16


def checked(table):
    """The settings that a block means; tables that stand alone get the least that is needed around them."""
    if "search" in table and "label_party" not in table:
        return SearchSettings(**{"name": "search", **table})
    if set(table) <= set(FederationSettings.model_fields):
        return FederationSettings(**{"parties": [table.get("host", "bank"), "another"], **table})
    if "label_party" in table or not set(table) <= set(PartySettings.model_fields):
        label = table.get("label_party", "bank")
        others = [*table.get("keys", {}), *table.get("new_parties", ()), "another"]
        version = {"from": VERSION} if table.get("from") == "promoted" else {}
        if "comparing_party" in table:  # named where there is no server
            parties = [label, table["comparing_party"]]
            federation = FederationSettings(
                server="none", parties=parties, addresses={party: f"{party}.example.org:7443" for party in parties}
            )
        else:
            federation = FederationSettings(parties=[label, *others])
        return federation.run(**{"label_party": label, **table, **version})
    return PartySettings(**{"party": "bank", "federation": "federation.toml", **table})


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[f"{place}-{words[0]}" for place, words in COMMANDS])
def test_every_command_of_a_block_is_one_that_fdml_takes(place, words):
    taken(words)


@pytest.mark.parametrize("page", PROSE)
def test_every_command_in_the_prose_has_options_that_exist(page):
    for text in inline_commands(page):
        words = re.split(r"[\s|=]+", text.removeprefix("fdml "))
        named = [word for word in words if word.startswith("-")]
        _, command, _ = resolved([word for word in words if word not in named][:2])
        assert sorted(set(named) - options_of(command)) == [], f"{page}: `{text}`"


@pytest.mark.parametrize("block", TOML, ids=str)
def test_every_settings_file_of_a_page_is_valid(block):
    assert isinstance(
        checked(tomllib.loads(block.text)), FederationSettings | PartySettings | RunSettings | SearchSettings
    )


@pytest.mark.filterwarnings("ignore")  # other libraries warn when they are imported
@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_import_of_a_page_is_there(block):
    compile(block.text, str(block), "exec")
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is_in(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_every_extra_that_is_named_exists(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"pip install [^`\n]*?(?:fdml|\.)\[([a-z,]+)\]", (ROOT / page).read_text(encoding="utf-8"))
    assert {each for text in named for each in text.split(",")} <= set(project["optional-dependencies"])


def test_the_walk_finds_what_there_is():
    assert len(COMMANDS) > 60
    assert len(TOML) >= 18
    assert len(PYTHON) >= 7
    assert {"README.md", "docs/quickstart.md", "docs/decisions/README.md", "examples/README.md"} <= set(PAGES)


@pytest.mark.parametrize("words", [["serve"], ["join", "party.toml", "--epoch", "3"], ["runs", "begin"], ["plan"]])
def test_a_command_that_fdml_has_not_is_refused(words):
    with pytest.raises(Exception, match=r"\w"):
        taken(words)


def test_every_block_is_run_or_has_a_reason_why_not():
    found = {(block.page, block.text.splitlines()[0]) for block in all_blocks() if block.language != "toml"}
    ran = {(page, line) for page, lines in RAN.items() for line in lines}
    not_run = {(page, line) for page, lines in NOT_RUN.items() for line in lines}
    assert sorted(found - ran - not_run) == [], "say in tests/docs/fates.py which test runs it, or why none does"
    assert sorted((ran | not_run) - found) == [], "no page has these blocks any more"
    assert ran & not_run == set()


@pytest.mark.parametrize("named", sorted({each for lines in RAN.values() for each in lines.values()}))
def test_every_test_that_is_said_to_run_a_block_is_there(named):
    path, _, name = named.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
