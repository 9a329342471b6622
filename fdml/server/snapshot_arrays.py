"""The coordinator's releases and answers as named arrays, for its snapshot.

Those of many steps share an array: one array for each would take many times what is in it, as a run on a fast line has
thousands of answers since the last checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Gradient, Release, Total

_MASK_ID = 8
"""Bytes of it before a digest."""
_GRADIENT = -1
"""In the place of a total's: the answer is the gradient of its step, of which there is one."""

Arrays = dict[str, NDArray[Any]]
Stored = Mapping[str, NDArray[Any]]
Answer = Total | Gradient


def digest_arrays(name: str, known: Mapping[int, tuple[int, bytes]]) -> Arrays:
    """Mask ids and digests of what may come again, each with a number (a step as a rule); nothing if there is none."""
    if not known:
        return {}
    raw = b"".join(mask_id.to_bytes(_MASK_ID, "little") + digest for mask_id, digest in known.values())
    return {f"{name}/numbers": _numbers(known), name: np.frombuffer(raw, np.uint8).reshape(len(known), -1)}


def digests_of(arrays: Stored, name: str) -> dict[int, tuple[int, bytes]]:
    """Back from arrays."""
    if name not in arrays:
        return {}
    raws = (row.tobytes() for row in arrays[name])
    known = [(int.from_bytes(raw[:_MASK_ID], "little"), raw[_MASK_ID:]) for raw in raws]
    return dict(zip(arrays[f"{name}/numbers"].tolist(), known, strict=True))


def release_arrays(name: str, releases: Mapping[int, Release]) -> Arrays:
    """Releases, each with a number (a step as a rule); nothing if there is none."""
    if not releases:
        return {}
    each = releases.values()
    return {
        f"{name}/numbers": _numbers(releases),
        **_values_arrays(name, [release.values for release in each]),
        f"{name}/mask_ids": np.array([release.mask_id for release in each], np.uint64),
        f"{name}/variances": np.array([release.variance for release in each]),
        f"{name}/bits": np.array([(release.bits, release.scale) for release in each]),
    }


def releases_of(arrays: Stored, name: str) -> dict[int, Release]:
    """Back from arrays."""
    if f"{name}/numbers" not in arrays:
        return {}
    mask_ids, variances, bits = (arrays[f"{name}/{what}"].tolist() for what in ("mask_ids", "variances", "bits"))
    facts = zip(_values_of(arrays, name), mask_ids, variances, bits, strict=True)
    made = [Release(values, mask_id, variance, *few) for values, mask_id, variance, few in facts]
    return dict(zip(arrays[f"{name}/numbers"].tolist(), made, strict=True))


def answer_arrays(served: Sequence[Mapping[int, Answer]]) -> Arrays:
    """What each party was served, by step. What several were served is stored once."""
    totals: list[Total] = []
    places: dict[int, int] = {}
    gradients: dict[int, Release] = {}
    arrays: Arrays = {}
    for party, answers in enumerate(served):
        for step, answer in answers.items():
            if isinstance(answer, Gradient):
                gradients[step] = answer.release
            elif id(answer) not in places:
                places[id(answer)] = len(totals)
                totals.append(answer)
        if answers:
            rows = [(step, places.get(id(answer), _GRADIENT)) for step, answer in answers.items()]
            arrays[f"served/{party}"] = np.array(rows)
    return arrays | _total_arrays(totals) | release_arrays("gradient_answers", gradients)


def answers_of(arrays: Stored, parties: int) -> list[dict[int, Answer]]:
    """Back from arrays."""
    totals = _totals_of(arrays)
    gradients = {step: Gradient(step, each) for step, each in releases_of(arrays, "gradient_answers").items()}
    served: list[dict[int, Answer]] = [{} for _ in range(parties)]
    for party, answers in enumerate(served):
        for step, place in arrays[f"served/{party}"].tolist() if f"served/{party}" in arrays else []:
            answers[step] = gradients[step] if place == _GRADIENT else totals[place]
    return served


def _total_arrays(totals: Sequence[Total]) -> Arrays:
    if not totals:
        return {}
    return {
        "totals/steps": np.array([total.step for total in totals]),
        **_values_arrays("totals", [total.values for total in totals]),
        "totals/pushed_at": np.array([total.pushed_at for total in totals]),
        "totals/mask_ids": np.array([total.mask_ids for total in totals], np.uint64),
        "totals/variances": np.array([total.variance for total in totals]),
        "totals/bits": np.array([total.bits for total in totals]),
    }


def _totals_of(arrays: Stored) -> list[Total]:
    if "totals/steps" not in arrays:
        return []
    steps, variances, bits = (arrays[f"totals/{what}"].tolist() for what in ("steps", "variances", "bits"))
    pushed_at, mask_ids = (
        [tuple(row) for row in arrays[f"totals/{what}"].tolist()] for what in ("pushed_at", "mask_ids")
    )
    facts = zip(steps, _values_of(arrays, "totals"), pushed_at, mask_ids, variances, bits, strict=True)
    return [Total(*each) for each in facts]


def _values_arrays(name: str, values: Sequence[Codes]) -> Arrays:
    """Blocks of values one behind the other, and how many rows each has."""
    return {f"{name}/values": np.concatenate(values), f"{name}/rows": np.array([len(each) for each in values])}


def _values_of(arrays: Stored, name: str) -> list[Codes]:
    ends = np.cumsum(arrays[f"{name}/rows"])
    return np.split(arrays[f"{name}/values"], ends[:-1])


def _numbers(known: Mapping[int, Any]) -> NDArray[np.int64]:
    return np.fromiter(known, np.int64, len(known))
