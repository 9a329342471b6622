"""The page of all commands: what each does, its arguments and options, from the same texts as `--help`."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import typer

from fdml.cli.app import COMMANDS, app_for

_INTRODUCTION = """# Commands

Every command with its arguments and options, written from the code when this site is built. `fdml COMMAND --help` says
the same. Exit codes: 0 done, 1 failed with a message, 2 wrong usage, 130 stopped; [what to do when ...](../errors.md)
explains the messages.
"""
_KINDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def commands_page() -> str:
    """Commands in the order of `fdml --help`."""
    group: Any = typer.main.get_command(app_for(()))
    parts = [_INTRODUCTION]
    for name in COMMANDS:
        parts += _sections(f"fdml {name}", group.commands[name], 2)
    return "\n".join(parts)


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table, with an empty line after it; nothing without rows."""
    if not rows:
        return ""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell(each) for each in line)} |" for line in lines) + "\n"


def _sections(name: str, command: Any, level: int) -> Iterator[str]:
    """Of one command, or of a group and its commands."""
    yield f"{'#' * level} {name}\n"
    inner = getattr(command, "commands", {})
    if not inner:
        yield f"```text\n{name} {_usage(command)}\n```\n"
    yield f"{_prose(command.help or '')}\n"
    yield table(("argument", "meaning"), [(f"`{_name(each)}`", _help(each)) for each in _arguments(command)])
    yield table(("option", "default", "meaning"), [_option(each) for each in command.params if not _is_argument(each)])
    for inner_name, each in inner.items():
        yield from _sections(f"{name} {inner_name}", each, level + 1)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if _is_argument(each)]


def _usage(command: Any) -> str:
    words = [_name(each) + ("..." if each.nargs == -1 else "") for each in _arguments(command)]
    words = [word if each.required else f"[{word}]" for word, each in zip(words, _arguments(command), strict=True)]
    return " ".join([*words, *(["[OPTIONS]"] if len(words) < len(command.params) else [])])


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name).strip("[].").upper()


def _help(parameter: Any) -> str:
    return parameter.help or ""


def _option(option: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not (option.is_flag or option.count):
        names += f" {option.metavar or _kind(option.type_descriptor.annotation)}"
    if option.required:
        return names, "required", _help(option)
    return names, _default(option), _help(option)


def _kind(annotation: Any) -> str:
    """What a value of an option is, in a word."""
    if typing.get_origin(annotation) is Literal:
        return " or ".join(f"`{each}`" for each in typing.get_args(annotation))
    return _KINDS.get(annotation, "VALUE")


def _default(option: Any) -> str:
    value = option.default
    if value is None or value is False or value == () or callable(value) or type(value).__name__ == "Sentinel":
        return ""
    return f"`{value}`"


def _prose(text: str) -> str:
    """A docstring with its options as code."""
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"`\1`", inspect.cleandoc(text))
