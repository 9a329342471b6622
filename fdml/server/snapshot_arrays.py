"""The coordinator's releases and answers as named arrays, for its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.messages import Gradient, Release, Total


def digest_array(mask_id: int, digest: bytes) -> NDArray[np.uint8]:
    """A push that may be repeated."""
    return np.frombuffer(mask_id.to_bytes(8, "little") + digest, np.uint8)


def digest_of(array: NDArray[Any]) -> tuple[int, bytes]:
    """Back from an array."""
    raw = array.tobytes()
    return int.from_bytes(raw[:8], "little"), raw[8:]


def release_arrays(name: str, release: Release) -> dict[str, NDArray[Any]]:
    """A release under a name."""
    arrays = {
        name: release.values,
        f"{name}/mask_id": np.array(release.mask_id, np.uint64),
        f"{name}/variance": np.array(release.variance),
    }
    return arrays | ({f"{name}/bits": np.array([release.bits, release.scale])} if release.bits else {})


def release_of(arrays: Mapping[str, NDArray[Any]], name: str) -> Release:
    """The release that was stored under a name."""
    bits, scale = arrays[f"{name}/bits"].tolist() if f"{name}/bits" in arrays else (0, 0)
    return Release(arrays[name], int(arrays[f"{name}/mask_id"]), float(arrays[f"{name}/variance"]), bits, scale)


def answer_arrays(place: str, answer: Total | Gradient) -> dict[str, NDArray[Any]]:
    """What a party was served."""
    if isinstance(answer, Gradient):
        return release_arrays(f"gradient_answer/{place}", answer.release)
    return {
        f"total/{place}": answer.values,
        f"total/{place}/pushed_at": np.array(answer.pushed_at),
        f"total/{place}/mask_ids": np.array(answer.mask_ids, np.uint64),
        f"total/{place}/variance": np.array(answer.variance),
        f"total/{place}/bits": np.array(answer.bits),
    }


def answer_of(arrays: Mapping[str, NDArray[Any]], name: str) -> Total | Gradient:
    """What was stored under a name."""
    kind, _, number = name.split("/")
    if kind == "gradient_answer":
        return Gradient(int(number), release_of(arrays, name))
    pushed_at, mask_ids = (tuple(arrays[f"{name}/{what}"].tolist()) for what in ("pushed_at", "mask_ids"))
    variance, bits = float(arrays[f"{name}/variance"]), int(arrays[f"{name}/bits"])
    return Total(int(number), arrays[name], pushed_at, mask_ids, variance, bits)
