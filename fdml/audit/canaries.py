"""Canaries: is anything that must stay at home in the bytes that travelled, or in a log?

A canary is looked for in every form in which it might be written. A form so
short that it could be found by chance is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.data.rows import DenseRows, PlainRows, row_count
from fdml.models.model import Model
from fdml.protocol.fixed_point import LARGEST, encode
from fdml.protocol.messages import Gradient, HeldOutPredictions, Push
from fdml.protocol.wire import encode_from_party

_TITLE = "canaries on the wire and in logs"
_VIEW = "server and network"
_RUN = 4
"""Values that are looked for together: where one is too short to be told from chance, four are not."""
_MOST = 24
"""Canaries of each kind and party."""
_CHANCE = 1e-3
"""How likely any form of any canary may be found where none is."""
_DIGIT_BITS, _HEX_BITS, _BYTE_BITS = 3.3, 4.0, 8.0
_ROUND_BITS = 8
"""A float32 whose last bits, so many, are 0 is a round number that anybody might write."""

Message = Push | HeldOutPredictions | Gradient


@dataclass(frozen=True)
class Canary:
    """Something that must not be found, and what to call it."""

    what: str
    value: str | bytes | tuple[float, ...]
    """An id, raw bytes, or numbers that stand one after the other."""


@dataclass(frozen=True)
class Form:
    """One way to write a canary."""

    canary: Canary
    name: str
    content: bytes
    bits: float
    """How unlikely it is by chance: one in 2 to the power of this at each place."""


@dataclass(frozen=True)
class Found:
    """A canary that was found."""

    place: str
    form: Form


def search(paths: Iterable[Path], canaries: Sequence[Canary]) -> list[Found]:
    """All canaries that stand in any of these files, in whatever form."""
    return search_places({str(path): path.read_bytes() for path in paths}, canaries)


def search_places(places: Mapping[str, bytes], canaries: Sequence[Canary]) -> list[Found]:
    """All canaries that stand in any of these contents, by the name of the place."""
    kept, _ = distinct([form for canary in canaries for form in forms(canary)], sum(map(len, places.values())))
    return [Found(name, form) for name, content in places.items() for form in kept if form.content in content]


def distinct(every: Sequence[Form], size: int) -> tuple[list[Form], list[Form]]:
    """The forms that are long enough to be told from chance in so many bytes, and those that are not."""
    least = math.log2(max(size, 1) * max(len(every), 1) / _CHANCE)
    return [form for form in every if form.bits >= least], [form for form in every if form.bits < least]


def forms(canary: Canary) -> list[Form]:
    """Every form in which a canary might be written."""
    match canary.value:
        case str() as text:
            return [_raw(canary, "text", text.encode()), _hex(canary, "hex of text", text.encode())]
        case bytes() as raw:
            return [_raw(canary, "bytes", raw), _hex(canary, "hex", raw)]
        case tuple() as numbers:
            return list(_number_forms(canary, np.array(numbers)))


def _number_forms(canary: Canary, numbers: NDArray[np.float64]) -> Iterator[Form]:
    """As floats, as codes of the wire, as whole numbers if they are, and one by one as text."""
    packed = {"float32": numbers.astype("<f4"), "float64": numbers.astype("<f8")}
    if np.abs(numbers).max() <= LARGEST:
        packed["fixed point"] = encode(numbers).astype("<i8")
        packed["lower halves of fixed point"] = packed["fixed point"].view("<u4")[::2]
    if (numbers == np.rint(numbers)).all() and np.abs(numbers).max() < 2.0**53:
        packed["int64"] = numbers.astype("<i8")
    for name, array in packed.items():
        yield _raw(canary, name, array.tobytes())
        yield _hex(canary, f"hex of {name}", array.tobytes())
    if len(numbers) == 1:
        for text in sorted({repr(float(numbers[0])), str(np.float32(numbers[0]))}):
            yield Form(canary, "digits", text.encode(), _DIGIT_BITS * sum(map(str.isdigit, text.lstrip("-0."))))


def _raw(canary: Canary, name: str, content: bytes) -> Form:
    return Form(canary, name, content, _BYTE_BITS * _telling(content))


def _hex(canary: Canary, name: str, content: bytes) -> Form:
    return Form(canary, name, content.hex().encode(), 2 * _HEX_BITS * _telling(content))


def _telling(content: bytes) -> int:
    """Bytes that are not filling."""
    return sum(byte not in (0x00, 0xFF) for byte in content)


def canaries_of(recording: Recording) -> list[Canary]:
    """What the owners know and must keep: features, parameters, and labels that are more than classes."""
    truth = recording.truth
    found: list[Canary] = []
    for party, rows in truth.features.items():
        for way, values, owners in _laid_out(rows):
            found += _of_values(f"{way} of the features of {party!r}", values, owners)
    for party, model in truth.models.items():
        for name, array in _parameters(model).items():
            found += _of_values(f"{name} of the model of {party!r}", array, np.zeros(len(array), np.int64))
    if recording.run.task == "regression":
        found += _of_values("labels", truth.labels, np.zeros(len(truth.labels), np.int64))
    return found


def _laid_out(rows: PlainRows) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.int64]]]:
    """Entries row after row, and of dense rows also column after column; with each the row or column it is of."""
    if isinstance(rows, DenseRows):
        height, wide = rows.values.shape
        yield "rows", rows.values.ravel(), np.repeat(np.arange(height), wide)
        yield "columns", rows.values.T.ravel(), np.repeat(np.arange(wide), height)
    else:
        used = rows.values[rows.indptr[0] : rows.indptr[-1]]
        yield "rows", used, np.repeat(np.arange(row_count(rows)), np.diff(rows.indptr))


def _parameters(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays of a model's state that hold floats: its parameters, as they are stored and meant, and its rule's."""
    state = {name: array.ravel() for name, array in model.state().items() if array.dtype.kind == "f"}
    meant = getattr(model, "parameters", None)
    return state if meant is None else {**state, "parameters": meant}


def _of_values(what: str, values: NDArray[Any], owners: NDArray[np.int64]) -> Iterator[Canary]:
    """Distinctive values, and runs that hold at most one other and do not go on into the next owner's."""
    good = _distinctive(values)
    for at in _spread(np.flatnonzero(good)):
        yield Canary(f"{what}, entry {at}", (float(values[at]),))
    width = min(_RUN, int(np.bincount(owners).max(initial=0)))
    if width < 2:
        return
    telling = sliding_window_view(good, width).sum(axis=1) >= max(width - 1, 2)
    within = owners[: 1 - width] == owners[width - 1 :]
    for at in _spread(np.flatnonzero(telling & within)):
        yield Canary(f"{what}, entries {at} to {at + width - 1}", tuple(map(float, values[at : at + width])))


def _distinctive(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values nobody would write by chance: finite, not 0, and not round."""
    single = values.astype(np.float32)
    bits = np.ascontiguousarray(single).view(np.uint32)
    telling = np.isfinite(single) & (single != 0) & (bits % (1 << _ROUND_BITS) != 0)
    return np.asarray(telling & ~np.isin(single, _common(single)))


def _common(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values that make up much of all: a scaled one-hot column has two, and they tell of nobody."""
    each, counts = np.unique(values, return_counts=True)
    return each[counts > max(2.0, 0.01 * len(values))]


def _spread(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many of the places, from the first to the last."""
    if len(places) <= _MOST:
        return places
    return places[np.linspace(0, len(places) - 1, _MOST).astype(np.int64)]


def messages_of(recording: Recording) -> list[tuple[str, Message]]:
    """Every message with its sender; where resends were not kept, each once."""
    if recording.repeated:
        return list(recording.repeated)
    pushes = [(party, push) for party, each in recording.pushes.items() for push in each.values()]
    held_out = [(party, message) for party, each in recording.held_out.items() for message in each.values()]
    return [*pushes, *held_out]


def find_canaries(recording: Recording, logs: Sequence[Path] = (), ids: Sequence[str] = ()) -> list[AttackResult]:
    """A11: rows of features, parameters and ids, in every recorded message and in these files."""
    canaries = [*canaries_of(recording), *(Canary(f"id {number}", text) for number, text in enumerate(ids))]
    every = [form for canary in canaries for form in forms(canary)]
    places = {"the messages": b"".join(encode_from_party(message) for _, message in messages_of(recording))}
    places |= {str(path): path.read_bytes() for path in logs}
    size = sum(map(len, places.values()))
    kept, short = distinct(every, size)
    if not kept:
        return [not_applicable("A11", _TITLE, _VIEW, _nothing(canaries))]
    found = search_places(places, canaries)
    names = {each.form.canary for each in found}
    first = f"; first: {_description(found[0])}" if found else ""
    return [
        passed_if(
            not found,
            "A11",
            _TITLE,
            _VIEW,
            score=float(len(names)),
            baseline=0.0,
            bar="0 found",
            reason=f"{len(canaries)} canaries in {len(kept)} forms were looked for in {size:,} bytes of messages and "
            f"{len(logs)} files{first}",
            details={"canaries": len(canaries), "forms": len(kept), "too_short": len(short), "bytes": size},
        )
    ]


def _nothing(canaries: Sequence[Canary]) -> str:
    if canaries:
        return f"all forms of the {len(canaries)} canaries are so short that they could be found by chance"
    return "there is nothing distinctive to look for: all features are zeros, ones or other round numbers"


def _description(found: Found) -> str:
    """Where, and what; never the value itself."""
    return f"{found.form.canary.what} as {found.form.name} in {found.place}"


attacks: dict[str, Attack] = {"A11": find_canaries}
