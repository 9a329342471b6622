"""A settings file: TOML into frozen, checked values, and errors that name the setting and the way out."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from fdml.errors import SettingsError

RENAMED = {"patience": "peer_timeout_seconds", "decay": "lr_decay", "rule": "optimizer", "when": "every"}
"""Settings under the names they had before."""
_IN_THIS_FOLDER = Path("party.toml")
"""What commands look for that are not told where a party is."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key that TOML needs no quotes for."""


class Settings(BaseModel):
    """Frozen values; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def subject(cls) -> str:
        """What an error names after a setting, where the place in the file is not enough."""
        return ""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_explain(type(self), error.errors())) from None


S = TypeVar("S", bound=Settings)


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        way_out = f"; give its path: DIR/{path}, or --party DIR/{path}" if path == _IN_THIS_FOLDER else ""
        raise SettingsError(f"there is no file {str(path)!r}{way_out}") from None
    except IsADirectoryError:
        raise SettingsError(
            f"{str(path)!r} is a folder; name the file in it: federation.toml, run.toml or party.toml"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def read_settings(path: Path, kind: type[S], *, other: tuple[str, str] | None = None) -> S:
    """Read and check a TOML file. `other` is a key of the file it is taken for by mistake, and what to say then."""
    values = read_table(path)
    if other is not None and other[0] in values and other[0] not in kind.model_fields:
        raise SettingsError(f"{path}: {other[1]}")
    try:
        return kind(**values)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def written_table(values: Mapping[str, Any]) -> str:
    """A table as a TOML file: one line for each setting, under its whole name."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in _lines("", values))


def _lines(place: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = place + (key if _BARE.fullmatch(key) else json.dumps(key))
        if isinstance(value, Mapping):
            yield from _lines(f"{name}.", value)
        elif value is not None:
            yield name, value


def _explain(kind: type[Settings], errors: list[ErrorDetails]) -> str:
    """One line for a person: which setting, which value, what to write instead."""
    error = errors[0]
    where = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        if where in RENAMED:
            return f"setting {where!r} is now called {RENAMED[where]!r}; rename it"
        near = difflib.get_close_matches(where, kind.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(kind.model_fields)}"
        return f"unknown setting {where!r}{kind.subject()}; {hint}"
    if error["type"] == "missing":
        return f"setting {where!r}{kind.subject()} is missing"
    if error["type"] == "value_error":
        inner = str(error["ctx"]["error"])
        return f"[{where}] {inner}" if where else inner
    others = [other for other in errors[1:] if _place(other) == _place(error)]
    wanted = " or ".join([_wanted(error), *(_wanted(other).removeprefix("input should be ") for other in others)])
    return f"setting {where!r} is {error['input']!r}: {wanted}"


def _place(error: ErrorDetails) -> tuple[int | str, ...]:
    """Where an error is; the branches of one union (a number or "auto") count as one place."""
    place = error["loc"]
    return place[:-1] if len(place) > 1 and isinstance(place[-1], str) else place


def _wanted(error: ErrorDetails) -> str:
    message = error["msg"].partition(", unable to parse")[0]
    return message[0].lower() + message[1:]
