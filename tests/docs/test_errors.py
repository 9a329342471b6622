"""docs/errors.md: every class of error has its paragraph, and every message it lists is one that fdml has."""

import ast
import re
from pathlib import Path

import pytest

from fdml import errors
from fdml.errors import Refusal
from scripts.reference_messages import PACKAGE, classes, messages, template

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SEEN_MOST = (
    "share no",
    "duplicate id",
    "have no id",
    "unknown setting",
    "is a folder",
    "this is a run.toml",
    "party name ... is taken",
    "can be read by others",
    "--plain",
    "waiting for 10 s so far",
    "with hash",
    "data.delimiter",
    "data.encoding",
    "decimal comma",
    "percent sign",
    "set data.missing",
    "data.label is set at party",
    "give it a new name",
    "`fresh` is gone",
    "--plot is",
    "--models is",
    "host:port",
    "training has diverged",
    "comes from a backup",
    "was started again since",
    "install it with `pip install",
    "two classes",
    "no server at",
    "has changed since its rows were aligned",
    "compiled",
)
"""What new users met, by a part of the message or of what they saw."""


def plain(text):
    """A text on one line, with `...` once for values that stand side by side."""
    return re.sub(r"(\.\.\.\s*)+", "...", " ".join(text.split()))


def listed():
    """The messages in the tables of the page, each with the class it stands under."""
    for name, section in SECTIONS.items():
        for table in re.findall(r"^\| message \|.*?(?=\n\n|\Z)", section, re.MULTILINE | re.DOTALL):
            for row in table.splitlines()[2:]:
                yield name, re.match(r"\| (`+) ?(.*?) ?\1 \|", row)[2]


@pytest.fixture(scope="module")
def texts():
    """Every text of the package, with `...` for its values."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py")))
    kinds = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)  # no other has a text
    found = {template(node) for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)}
    return sorted({plain(text) for text in found if text})


def test_every_class_has_its_paragraph_in_the_order_of_the_module():
    assert [name for name in SECTIONS if name in classes()] == list(classes())
    assert set(re.findall(r"[├└]── (\w+)", errors.__doc__)) | {"FdmlError"} == set(classes())


@pytest.mark.parametrize("name", classes())
def test_a_paragraph_says_what_it_means_and_what_to_do(name):
    paragraph = SECTIONS[name].strip().split("\n\n")[0]
    assert len(paragraph.split()) > 20


def test_every_refusal_is_explained_with_its_own_words():
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", SECTIONS["MessageRefused"], re.MULTILINE))
    assert rows == {each.name: each.value for each in Refusal}


@pytest.mark.parametrize(("name", "message"), sorted(set(listed())))
def test_every_message_that_is_listed_is_one_of_fdml(name, message, texts):
    assert any(plain(message) in text for text in texts), f"{name}: no text of fdml has {message!r}"


def test_what_new_users_met_is_covered():
    page = plain(PAGE)
    assert [each for each in SEEN_MOST if plain(each) not in page] == []
    assert len(list(listed())) > 60


@pytest.mark.slow
def test_the_list_of_all_messages_has_those_of_every_folder():
    found = messages()
    assert sum(map(len, found.values())) > 600
    assert any("share no id" in text for text in found["AlignmentError"])
    assert any(text.startswith("the request has no token") for text in found["RequestRefused"])
    raised = {name for name, texts_of_it in found.items() if texts_of_it}
    assert raised | {"InvariantBroken"} == set(classes())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'no ' + what", "no ..."),
        ("f'party {name!r} has {count} rows'", "party ... has ... rows"),
        ("'a' if many else 'b'", "a"),
        ("message", None),
    ],
)
def test_a_text_has_dots_for_its_values(code, expected):
    assert template(ast.parse(code, mode="eval").body) == expected
