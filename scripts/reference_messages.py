"""The page of all error messages: every text that fdml raises, under the class that it is raised as."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from fdml import errors

PACKAGE = Path(errors.__file__).parent
_INTRODUCTION = """# Error messages

Every text that fdml raises, by its class, written from the code when this site is built. `...` stands for a value: a
name, a number, a path. Each message says what to do; [what to do when ...](../errors.md) says more about each class and
about the messages that are seen most.
"""
_WORD = re.compile(r"[a-z]{3}")


def classes() -> dict[str, type[errors.FdmlError]]:
    """The error classes by name, in the order of `fdml/errors.py`."""
    found = (value for value in vars(errors).values() if isinstance(value, type))
    return {each.__name__: each for each in found if issubclass(each, errors.FdmlError)}


def messages() -> dict[str, list[str]]:
    """By error class, the texts that the package raises, each once and in order."""
    texts: dict[str, set[str]] = {name: set() for name in classes()}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, text in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            texts[name].add(" ".join(text.split()))
    return {name: sorted(found, key=str.lower) for name, found in texts.items()}


def messages_page() -> str:
    """A section for each class that is raised by itself."""
    parts = [_INTRODUCTION]
    for name, found in messages().items():
        if found:
            parts.append(f"## {name}\n\n{classes()[name].__doc__} [What to do](../errors.md#{name.lower()}).\n")
            parts += [f"- `` {text} ``" for text in found]
            parts.append("")
    return "\n".join(parts)


def template(node: ast.expr) -> str | None:
    """A text with `...` for its values; None where it is not written here."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(template(value) or "..." for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (template(left) or "...") + (template(right) or "...")
        case ast.IfExp(body=body):
            return template(body)
    return None


def _raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class and text of each error that is built, raised at once or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes():
            for argument in node.args:
                text = template(argument)
                if text is not None and _WORD.search(text):
                    yield node.func.id, text
                    break
