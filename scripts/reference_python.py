"""The page of the public Python names: signature and docstring of each."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fdml
from fdml import events

_INTRODUCTION = """# Python

The public names of `fdml`, with their signatures and docstrings, written from the code when this site is built.
Everything else may change at any time ([compatibility](../compatibility.md)). `import fdml` alone imports no library.
"""
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w[\w, ]*?)(?: ?: ?(.*))?$")
_FUNCTION = re.compile(r"<function .*? at 0x[0-9a-f]+>")
_ANNOTATION = re.compile(r"(: |-> )'([^']*)'")


def python_page() -> str:
    """Classes first, then functions, as `fdml.__all__` has them."""
    parts = [_INTRODUCTION]
    for name in fdml.__all__:
        parts += _section(name, getattr(fdml, name))
    return "\n".join(parts)


def markdown(docstring: str, *, typed: bool) -> str:
    """A docstring with its lists of parameters as Markdown; `typed` where the first line of a parameter is its type."""
    text = inspect.cleandoc(docstring)
    found = list(_SECTION.finditer(text))
    parts = [text[: found[0].start() if found else len(text)].rstrip()]
    for here, after in pairwise([*found, None]):
        assert here is not None  # noqa: S101
        body = text[here.end() : after.start() if after else len(text)]
        parts.append(f"**{here[1]}**\n\n{_entries(body, typed=typed)}")
    return "\n\n".join(parts) + "\n"


def _section(name: str, value: Any) -> Iterator[str]:
    yield f"## `fdml.{name}`\n"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isfunction(value):
        yield f"```python\n{_signature(f'fdml.{name}', value)}\n```\n"
        yield markdown(value.__doc__ or "", typed=False)
    elif name == "__version__":
        yield "The version of the package, as a text.\n"
    else:
        yield f"{_text_below(name)}\n"
        for each in typing.get_args(value):
            yield f"- `{each.__name__}`: {_first_line(each)}"
        yield ""


def _class(name: str, value: type) -> Iterator[str]:
    own = "__init__" in vars(value) or not issubclass(value, Exception)
    yield f"```python\n{_signature(f'fdml.{name}', value) if own else f'fdml.{name}(message)'}\n```\n"
    yield markdown(value.__doc__ or "", typed=True)
    for method, found in _methods(value):
        yield f"### `{method}` of {name}\n"
        yield f"```python\n{_signature(method, found)}\n```\n"
        yield markdown(found.__doc__ or "", typed=False)


def _methods(value: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that fdml itself defines."""
    names = {name: owner for owner in reversed(value.__mro__) for name in vars(owner) if owner.__module__[:4] == "fdml"}
    for name in sorted(name for name in names if name[0] != "_" and not name.endswith("_request")):
        found = getattr(value, name)
        if callable(found) and found.__doc__:
            yield name, found


def _signature(name: str, value: Any) -> str:
    """One line, or a parameter a line where that is too long."""
    signature = inspect.signature(value)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    short = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(signature.replace(parameters=kept)))
    short = _FUNCTION.sub("...", _ANNOTATION.sub(r"\1\2", short))
    if len(name) + len(short) <= 100:
        return name + short
    inside, _, after = short[1:].rpartition(")")
    return f"{name}(\n{''.join(f'    {each},{chr(10)}' for each in _split(inside))}){after}"


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are in no brackets."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _entries(body: str, *, typed: bool) -> str:
    """`name : type`, then text below; or `name : text` that goes on below."""
    lines: list[str] = []
    for line in body.splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            text = entry[2] or ""
            kind = f" *{text}.*" if typed and text else f" {text}"
            lines.append(f"- `{entry[1]}`:{kind.rstrip()}")
        elif line.startswith(" ") and lines and lines[-1]:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def _text_below(name: str) -> str:
    """What stands below the line of `fdml.events` that defines a name."""
    for line, below in pairwise(ast.parse(Path(events.__file__).read_text(encoding="utf-8")).body):
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
            return str(ast.literal_eval(below.value)) if isinstance(below, ast.Expr) else ""
    return ""


def _first_line(value: type) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
