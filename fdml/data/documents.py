"""JSON texts that fdml wrote itself: read back as checked values, or refused with the place that is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fdml.errors import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def write_document(values: Mapping[str, Any]) -> str:
    """The text of a document. Floats keep all their bits; NaN and infinity are refused."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def read_document(text: str | bytes, what: str, layout: int) -> dict[str, Any]:
    """The values of a document whose `layout` this fdml reads."""
    try:
        values = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} is no JSON: {error}; it is damaged, or no file of fdml") from None
    if not isinstance(values, dict) or "layout" not in values:
        raise DataError(f"{what} has no layout number; it is damaged, or no file of fdml")
    found = values.pop("layout")
    if found != layout:
        raise DataError(f"{what} has layout {found!r}, this fdml reads layout {layout}; use the fdml that wrote it")
    return values


def checked(kind: type[T], values: Mapping[str, Any], what: str) -> T:
    """A dataclass made of values whose types and bounds fit its annotations; no key may be missing or left over."""
    known = [each.name for each in fields(kind)]
    for name in values:
        if name not in known:
            raise DataError(f"{what}: {name!r} is not among {', '.join(known)}; the file is damaged")
    try:
        found: T = _adapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise DataError(f"{what}: {place}: {first['msg']}; the file is damaged") from None
    return found


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Made once for each kind, as that takes longer than all checks of a file."""
    return TypeAdapter(kind)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value
