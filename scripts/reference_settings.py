"""The page of all settings: every key of federation.toml, run.toml, party.toml and tune.toml, from their classes."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fdml.experiments.search_settings import Range, SearchSettings
from fdml.models.registry import kinds
from fdml.party.settings import PartySettings
from fdml.settings import ModelSettings, RunSettings
from fdml.settings.federation import FederationSettings
from scripts.reference_commands import table

EXPLAINED = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
FILES: dict[str, type[BaseModel]] = {
    "federation.toml": FederationSettings,
    "run.toml": RunSettings,
    "party.toml": PartySettings,
    "tune.toml": SearchSettings,
}
OF_THE_FEDERATION = frozenset(("federation", "server", "parties", "members"))
"""Fields of `RunSettings` that federation.toml says."""
_INTRODUCTION = """# All settings

Every key with its type and default, written from the code when this site is built. [Settings](../settings.md) explains
them, with the rules for data. "None" stands for a key that is left out.
"""
_HEAD = ("setting", "type", "default", "meaning")
_ROW = re.compile(r"^\| `(\w+)` \|[^|]*\| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Table(NamedTuple):
    """A table of a settings file, or the file's keys that are in none."""

    heading: str
    """As docs/settings.md has it."""
    settings: type[BaseModel]
    default: BaseModel | None = None
    """What it is where the file does not have it."""


def settings_page() -> str:
    """A section for each file, and in it one for each of its tables."""
    parts = [_INTRODUCTION]
    for file, settings in FILES.items():
        parts += [f"## {file}\n", *_sections(Table(f"## {file}", settings))]
    return "\n".join(parts)


def described(table: Table) -> dict[str, str]:
    """By key, what it means: its docstring in the class; where it has none, its row in docs/settings.md."""
    found = _explained(table.heading)
    for owner in reversed(table.settings.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _docstrings(owner)
    return found


def tables(table: Table, place: str = "") -> Iterator[Table]:
    """A table of settings, and all that are in it."""
    yield table
    for name, field in table.settings.model_fields.items():
        if (inner := _table_of(field)) is not None:
            where = f"{place}.{name}".strip(".")
            yield from tables(Table(f"### `[{where}]`", inner, field.get_default()), where)


def type_text(kind: Any, metadata: tuple[Any, ...] = ()) -> str:
    """An annotation in words: "whole number above 0 or "auto""."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_text(inner[0], inner[1:])
    if origin is typing.Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_text(each) for each in inner if each is not type(None)))
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"list of {len(inner)}: {type_text(inner[0])}"
    if origin in (tuple, list):
        return f"list of {type_text(inner[0])}"
    if origin is Callable:
        return "function"
    if origin is dict:
        return f"table of {type_text(inner[1])}"
    words = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", Any: "anything"}
    return " ".join([words.get(kind, getattr(kind, "__name__", str(kind))), *_bounds(metadata)])


def default_text(name: str, field: FieldInfo, default: BaseModel | None = None) -> str:
    """A default as it would stand in the file; `default` is that of the whole table."""
    if field.is_required() and default is None:
        return "required"
    value = field.get_default(call_default_factory=True) if default is None else getattr(default, name)
    if value is None:
        return "none"
    if isinstance(value, Path):
        value = value.as_posix()
    return f"`{json.dumps(value)}`"


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    for each in (field.annotation, *typing.get_args(field.annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _sections(file: Table) -> Iterator[str]:
    for each in tables(file):
        if each is not file:
            yield f"{each.heading}\n\n{inspect.cleandoc(each.settings.__doc__ or '')}\n"
        without = OF_THE_FEDERATION if each.settings is RunSettings else frozenset()
        yield _rows(each, without)
        if each.settings is ModelSettings:
            yield from _kinds()
        if each.settings is SearchSettings:
            yield f"### A range in `[search]`\n\n{inspect.cleandoc(Range.__doc__ or '')}\n"
            yield _rows(Table("### `[search]`", Range))


def _rows(each: Table, without: Collection[str] = ()) -> str:
    meanings, rows = described(each), []
    for name, field in each.settings.model_fields.items():
        if name not in without and _table_of(field) is None:
            key = field.alias or name
            kind = type_text(field.annotation, tuple(field.metadata))
            meaning = meanings.get(name) or meanings.get(key, "")
            rows.append((f"`{key}`", kind, default_text(name, field, each.default), meaning))
    return table(_HEAD, rows)


def _kinds() -> Iterator[str]:
    """The settings that each kind of model has besides those of all."""
    for kind in kinds():
        yield f'### `[model]` with `kind = "{kind.name}"`\n'
        yield f"{inspect.cleandoc(kind.settings.__doc__ or '')}\n"
        yield _rows(Table("### `[model]`", kind.settings), ModelSettings.model_fields)


def _docstrings(settings: type[BaseModel]) -> dict[str, str]:
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(found, ast.ClassDef)  # noqa: S101
    texts = {}
    for line, below in pairwise(found.body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
            texts[line.target.id] = str(ast.literal_eval(below.value))
    return texts


def _explained(heading: str) -> dict[str, str]:
    """The meanings in a section of docs/settings.md; links are left out, as they start from there."""
    section = EXPLAINED.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    section = re.split(r"\n###? ", section)[0]
    return {name: _LINK.sub(r"\1", meaning) for name, meaning in _ROW.findall(section)}


def _bounds(metadata: tuple[Any, ...]) -> Iterator[str]:
    words = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}
    for each in metadata:
        for part in getattr(each, "metadata", None) or (each,):
            for name, word in words.items():
                bound = getattr(part, name, None)
                if bound is not None:
                    yield f"{word} {bound}" if bound != 2**63 else "below 2^63"
