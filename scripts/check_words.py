"""Retired words, files whose name says nothing, files and functions that have grown too long. `make check` runs it.

The words are in `retired_words.toml`, each with the one to use instead. A find is printed as
`file:line: old word; use new word`, and any find makes the exit code 1.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("retired_words.toml")
TEXTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")
FOLDERS = ("fdml", "benchmarks", "simulator", "tests", "docs", "scripts")
SIZED = ("fdml", "benchmarks", "simulator")
"""Folders whose files and functions have a largest length."""
SUFFIXES = (".py", ".md", ".proto", ".toml", ".svg")
MOST_LINES = 350
MOST_FUNCTION_LINES = 60
EMPTY_NAMES = frozenset(("base", "common", "helper", "helpers", "manager", "misc", "util", "utils"))
"""Words that say nothing of what is in a file."""
_GENERATED = ("_pb2.py", "_pb2.pyi")

_PROSE_WORD = re.compile(r"(?<![\w-])[A-Za-z]+(?![\w-])")
_CODE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True, order=True)
class Find:
    """Something to change, and what to change it to."""

    path: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}; {self.instead}"


@dataclass(frozen=True)
class Retired:
    """The list of retired words, and who may still use them."""

    identifiers: dict[str, str]
    within: tuple[tuple[tuple[str, ...], dict[str, str]], ...]
    """Identifiers that are retired in some folders only."""
    words: dict[str, str]
    patterns: dict[re.Pattern[str], str]
    files: frozenset[str]
    strings: frozenset[str]
    """Literals that seed random numbers, so that another name would change results."""
    places: frozenset[str]

    @classmethod
    def read(cls, path: Path) -> Retired:
        """From the TOML file."""
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        patterns = {re.compile(pattern): instead for pattern, instead in found["patterns"].items()}
        within = tuple((tuple(f"{name}/" for name in each["folders"]), each["names"]) for each in found["within"])
        allowed = (frozenset(found["allowed"][name]) for name in ("files", "strings", "places"))
        return cls(found["identifiers"], within, found["words"], patterns, *allowed)

    def in_file(self, path: str, text: str) -> list[Find]:
        """Every retired word of one file, in order of lines, each once a line."""
        if path in self.files:
            return []
        local = {name: new for folders, names in self.within if path.startswith(folders) for name, new in names.items()}
        here = replace(self, identifiers=self.identifiers | local)
        return sorted(
            {
                Find(path, line, repr(word), f"use {instead}")
                for line, word, instead in here._finds(path, text)
                if f"{path}: {word.strip('`')}" not in self.places
            }
        )

    def _finds(self, path: str, text: str) -> Iterator[tuple[int, str, str]]:
        yield from ((1, word, instead) for _, word, instead in self._in_name(Path(path).stem.replace("-", "_"), 1))
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, instead in self.patterns.items():
                yield from ((number, match.group(), instead) for match in pattern.finditer(line))
        if path.endswith(".py"):
            yield from self._in_python(text)
        elif path.endswith(".proto"):
            yield from self._in_names(text)
        else:
            yield from self._in_prose(text, 1)

    def _in_python(self, text: str) -> Iterator[tuple[int, str, str]]:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield from self._in_name(token.string, token.start[0])
            elif token.type not in (tokenize.OP, tokenize.NUMBER) and token.string not in self.strings:
                yield from self._in_prose(token.string, token.start[0])

    def _in_names(self, text: str) -> Iterator[tuple[int, str, str]]:
        for number, line in enumerate(text.splitlines(), 1):
            for match in _CODE_WORD.finditer(line):
                yield from self._in_name(match.group(), number)

    def _in_prose(self, text: str, first: int) -> Iterator[tuple[int, str, str]]:
        for number, line in enumerate(text.splitlines(), first):
            for match in _PROSE_WORD.finditer(line):
                instead = self.words.get(match.group().lower())
                if instead is not None and not line[: match.start()].lower().endswith("bulletin "):
                    yield number, match.group(), instead
            for quoted in _QUOTED.finditer(line):
                for match in _CODE_WORD.finditer(quoted.group(1)):
                    yield from self._in_name(match.group(), number)

    def _in_name(self, name: str, line: int) -> Iterator[tuple[int, str, str]]:
        if name in self.identifiers:
            yield line, name, self.identifiers[name]
            return
        parts = [part.lower() for part in _PARTS.findall(name)]
        for before, part in zip(["", *parts], parts, strict=False):
            if part in self.words and before != "bulletin":
                yield line, name, self.words[part]


def empty_name(path: str) -> Iterator[Find]:
    """The file if its name has a word that says nothing of what is in it."""
    for word in EMPTY_NAMES.intersection(Path(path).stem.split("_")):
        yield Find(path, 1, f"a file called {word!r}", "name it by what is in it")


def too_long(path: str, text: str) -> Iterator[Find]:
    """The file if it has too many lines, and its functions that do."""
    lines = text.count("\n")
    if lines > MOST_LINES:
        yield Find(path, 1, f"{lines} lines", f"cut the file in two; {MOST_LINES} lines are the most")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            size = _code_lines(node, text.splitlines())
            if size > MOST_FUNCTION_LINES:
                yield Find(
                    path, node.lineno, f"{node.name} has {size} lines", f"cut it; {MOST_FUNCTION_LINES} are the most"
                )


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of a function's body without its docstring, comments and blank lines."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    first = body[0].lineno if body else node.lineno
    code = (line.strip() for line in lines[first - 1 : node.end_lineno])
    return sum(bool(line) and not line.startswith("#") for line in code)


def files_to_check(root: Path) -> Iterator[Path]:
    """Everything a person wrote: code, tests and documents."""
    yield from (root / name for name in TEXTS if (root / name).is_file())
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and not path.name.endswith(_GENERATED) and "__pycache__" not in path.parts:
                yield path


def check(root: Path, retired: Retired) -> list[Find]:
    """All finds of a tree."""
    found: list[Find] = []
    for path in files_to_check(root):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        found += retired.in_file(name, text)
        found += empty_name(name) if path.suffix == ".py" else ()
        if name.startswith(tuple(f"{folder}/" for folder in SIZED)) and path.suffix == ".py":
            found += too_long(name, text)
    return found


def by_folder(found: Iterable[Find]) -> dict[str, int]:
    """How many finds each folder has."""
    counts: dict[str, int] = {}
    for find in found:
        folder = "/".join(find.path.split("/")[:2]) if find.path.count("/") > 1 else find.path.rpartition("/")[0] or "."
        counts[folder] = counts.get(folder, 0) + 1
    return counts


def main() -> int:
    """Print what is found; 1 if anything is."""
    found = check(ROOT, Retired.read(LIST))
    for find in found:
        sys.stdout.write(f"{find}\n")
    if found:
        folders = ", ".join(f"{folder} {count}" for folder, count in sorted(by_folder(found).items()))
        sys.stdout.write(f"{len(found)} to change: {folders}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
