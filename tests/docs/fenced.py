"""The code blocks of README and docs, and whether fdml would take a command that stands in one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer

from fdml.cli.app import app_for

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"))
    if path.name != "CHANGELOG.md"
)
"""All that a reader may copy from; the changelog also names what is gone."""
_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^(?:\w*\$ )?(?=fdml )")
_COMMAND = re.compile(r"(?<![\w./-])(?:/srv/fdml/venv/bin/)?(fdml [a-z].*)")
_INLINE = re.compile(r"(?<!`)`(fdml [a-z][^`\n]*)`(?!`)")
_PLAIN = re.compile(r"\$\((?:[^()])*\)")


@dataclass(frozen=True)
class Block:
    """One block of code."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Those of one page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = enumerate(_BLOCK.findall(text), 1)
    return tuple(Block(page, number, language.strip(), code) for number, (_, language, code) in found)


def all_blocks(*languages: str) -> list[Block]:
    """Those of all pages in some languages; of any without."""
    found = (block for page in PAGES for block in blocks(page))
    return [block for block in found if not languages or block.language in languages]


def block_of(page: str, begins: str) -> Block:
    """The one block of a page that begins so."""
    (found,) = [block for block in blocks(page) if block.text.startswith(begins)]
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The words of every fdml command of a block, without `fdml`; what is printed below them is left out."""
    for line in block.text.replace("\\\n", " ").splitlines():
        bare = _PROMPT.sub("", line.strip())
        found = _COMMAND.search(bare) if block.language in ("cron", "ini") else re.match(r"(fdml [a-z].*)", bare)
        for part in () if found is None else re.split(r" (?:&&|\||>>?) ", found[1]):
            words = shlex.split(_PLAIN.sub("VALUE", part), comments=True)
            if words[:1] == ["fdml"]:
                yield words[1:]


def inline_commands(page: str) -> set[str]:
    """The fdml commands between backticks in the prose of a page."""
    return set(_INLINE.findall(_BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))))


def taken(words: Sequence[str]) -> None:
    """Raise unless fdml has this command, its arguments and its options, with values that they take."""
    name, command, rest = resolved(words)
    command.make_context(name, rest)


def resolved(words: Sequence[str]):
    """The command that some words name, and the words after it."""
    name, command, rest = "fdml", typer.main.get_command(app_for(words)), list(words)
    while hasattr(command, "commands") and rest:
        context = command.make_context("fdml", [rest[0], "--help"], resilient_parsing=True)
        name, command, rest = command.resolve_command(context, rest)
    return name, command, rest


def options_of(command) -> set[str]:
    """The options that a command has, or any of its commands."""
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    return own.union({"--help"}, *(options_of(each) for each in getattr(command, "commands", {}).values()))
