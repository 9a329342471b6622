"""The reference pages: all commands, settings and public names are there, with types, defaults and meanings."""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, Field, PositiveInt

import fdml
from fdml.cli.app import COMMANDS, app_for
from scripts.reference import pages
from scripts.reference_commands import table
from scripts.reference_python import markdown
from scripts.reference_settings import EXPLAINED, FILES, Table, default_text, described, tables, type_text


class Inner(BaseModel):
    """A table."""

    size: PositiveInt = 3
    """How large."""


class Outer(BaseModel):
    """A file."""

    name: str
    inner: Inner = Inner(size=5)


@pytest.fixture(scope="module")
def written():
    return pages()


def leaves(command, name):
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for key, each in inner.items():
        yield from leaves(each, f"{name} {key}")


@pytest.mark.slow
def test_every_command_has_a_section_with_all_its_options_and_their_help(written):
    page = written["reference/commands.md"]
    sections = dict(re.findall(r"^#+ (fdml [a-z -]+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    group = typer.main.get_command(app_for(()))
    found = [pair for name in COMMANDS for pair in leaves(group.commands[name], f"fdml {name}")]
    assert len(found) > 40
    for name, command in found:
        for parameter in command.params:
            for option in parameter.opts:
                shown = option if option.startswith("-") else (parameter.metavar or option).upper()
                assert f"`{shown}`" in sections[name], f"{name}: {option}"
            assert " ".join((parameter.help or "").split()).replace("|", "\\|") in sections[name]


def test_every_setting_has_a_type_a_default_and_a_meaning(written):
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*?) \| (.*) \|$", written["reference/settings.md"], re.MULTILINE)
    assert len(rows) > 120
    assert [row[0] for row in rows if not all(cell.strip() for cell in row)] == []


def test_every_table_of_every_file_has_a_section(written):
    page = written["reference/settings.md"]
    for file, settings in FILES.items():
        section = page.partition(f"## {file}\n")[2].split("\n## ")[0]
        for each in tables(Table(f"## {file}", settings)):
            assert each.heading.startswith("## ") or f"{each.heading}\n" in section, each.heading


def test_what_is_explained_has_the_defaults_of_the_code():
    """docs/settings.md explains, so its defaults are often words; where they are values they are the code's."""
    text = EXPLAINED.read_text(encoding="utf-8")
    compared = 0
    for file, settings in FILES.items():
        for each in tables(Table(f"## {file}", settings)):
            section = re.split(r"\n###? ", text.partition(f"\n{each.heading}\n")[2])[0]
            for name, default in re.findall(r"^\| `(\w+)` \| (`[^`]+`|required) \|", section, re.MULTILINE):
                field = each.settings.model_fields.get(name)
                if field is not None and (said := default_text(name, field, each.default)) != "none":
                    assert value(default) == value(said), f"{each.heading} {name}"
                    compared += 1
    assert compared > 50


def value(text):
    return "required" if text == "required" else json.loads(text.strip("`"))


def test_every_public_name_has_a_section_with_its_signature(written):
    page = written["reference/python.md"]
    assert re.findall(r"^## `fdml\.(\w+)`$", page, re.MULTILINE) == fdml.__all__
    assert 'lr_decay: str = "linear"' in page.replace("'", '"')
    assert "- `data`: this party's rows" in page
    assert " at 0x" not in page, "a page would differ from build to build"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (PositiveInt | Literal["auto"], 'whole number above 0 or `"auto"`'),
        (tuple[str, ...] | None, "list of text"),
        (Annotated[float, Field(ge=0, lt=1)], "number from 0 below 1"),
        (dict[str, Path], "table of path"),
        (tuple[float, float], "list of 2: number"),
        (Literal["a", "b"], '`"a"`, `"b"`'),
        (bool, "true or false"),
    ],
)
def test_a_type_is_said_in_words(kind, words):
    assert type_text(kind) == words


def test_the_default_of_a_table_is_that_of_the_file_around_it():
    _, inner = tables(Table("## outer.toml", Outer))
    assert inner.heading == "### `[inner]`"
    assert default_text("size", Inner.model_fields["size"], inner.default) == "`5`"
    assert default_text("name", Outer.model_fields["name"]) == "required"
    assert described(inner) == {"size": "How large."}


def test_a_table_keeps_its_columns_whatever_a_text_holds():
    assert table(("a", "b"), [("x | y", "two\nlines")]).splitlines()[2] == "| x \\| y | two lines |"
    assert table(("a",), []) == ""


def test_parameters_of_a_docstring_become_a_list():
    text = "Do it.\n\nParameters\n----------\nX : array\n    The rows,\n    all of them.\ny : labels\n"
    assert (
        markdown(text, typed=True)
        == "Do it.\n\n**Parameters**\n\n- `X`: *array.* The rows, all of them.\n- `y`: *labels.*\n"
    )
    assert "- `X`: array The rows" in markdown(text, typed=False)
