"""Attacks on masks: what does a blind server see, and was any mask put on twice?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare

from fdml.audit.recording import Recording
from fdml.audit.verdict import Attack, Verdict, not_applicable, passed_if
from fdml.audit.wire import Message, messages_of
from fdml.exchange.fixed_point import Codes, encode
from fdml.exchange.messages import Gradient, Push

Name = tuple[str, str, int, int]
"""Under which a mask is put on: purpose, party, number and stamp."""

_BYTES = "blind transcript: bytes"
_CORRELATION = "blind transcript: correlation"
_BLOCKS = "blind transcript: equal blocks"
_REUSE = "masks put on twice"
_LEAST_P = 0.001
_CORRELATED = 0.01
_SIGMAS = 4.0
_LEAST_BYTES = 256 * 5
"""With fewer, a chi-square test of 256 values says nothing."""


def read_blindly(recording: Recording) -> list[Verdict]:
    """A8: whether the masked values are noise to the server."""
    if recording.run.privacy.server != "blind":
        reason = 'the server is "plain": it sees every prediction by agreement'
        return [not_applicable("A8", _BYTES, "server", reason)]
    values = _once(recording)
    if not values.size:
        return [not_applicable("A8", _BYTES, "server", "nothing was recorded")]
    return [_bytes(recording, values), _correlation(recording), _blocks(recording, values)]


def find_reuse(recording: Recording) -> list[Verdict]:
    """A9: whether one mask was put on two different values; their difference would then be known."""
    seen: defaultdict[Name, list[bytes]] = defaultdict(list)
    for party, message in messages_of(recording):
        if message.release.stamp:
            seen[_name(party, message)].append(_content(message))
    if not seen:
        return [not_applicable("A9", _REUSE, "server", "nothing is under a mask")]
    again = {name: len(set(contents)) - 1 for name, contents in seen.items() if len(set(contents)) > 1}
    repeats, messages = sum(again.values()), sum(map(len, seen.values()))
    resent = messages - repeats - len(seen)
    first = f"; first: {_spelled(next(iter(again)))}" if again else ""
    return [
        passed_if(
            repeats == 0,
            "A9",
            _REUSE,
            "server",
            score=float(repeats),
            baseline=0.0,
            bar="0 repeats with different content",
            reason=f"{messages} masked messages under {len(seen)} masks, {resent} of them sent again as they were"
            f"{first}",
            details={
                "masks": len(seen),
                "resent": resent,
                "starts": len({(party, stamp) for _, party, _, stamp in seen}),
            },
        )
    ]


def _bytes(recording: Recording, values: Codes) -> Verdict:
    raw = np.frombuffer(values.astype("<i8").tobytes(), np.uint8)
    bare = sum(not message.release.stamp for _, message in messages_of(recording))
    enough = raw.size >= _LEAST_BYTES
    chance = float(chisquare(np.bincount(raw, minlength=256)).pvalue) if enough else 1.0
    told = f"chi-square of {raw.size:,} bytes" if enough else f"{raw.size} bytes are too few for a chi-square test"
    return passed_if(
        chance > _LEAST_P and not bare,
        "A8",
        _BYTES,
        "server",
        score=chance,
        bar=f"p > {_LEAST_P}, and all under masks",
        reason=f"{told}; {bare} messages say that they are under no mask",
        details={"bytes": raw.size, "unmasked": bare},
    )


def _correlation(recording: Recording) -> Verdict:
    """The largest of any party; a chance one is within 4 / sqrt(values)."""
    found = {party: _correlated(recording, party) for party in recording.pushes}
    limits = {party: max(_CORRELATED, _SIGMAS / math.sqrt(max(count, 1))) for party, (_, count) in found.items()}
    worst = max(found, key=lambda party: abs(found[party][0]) / limits[party])
    score, limit, count = abs(found[worst][0]), limits[worst], found[worst][1]
    few = f"{count:,} values" if limit == _CORRELATED else f"{_SIGMAS:g} standard deviations of only {count:,} values"
    return passed_if(
        score < limit,
        "A8",
        _CORRELATION,
        "server",
        score=score,
        baseline=0.0,
        bar=f"absolute correlation < {limit:.4f}",
        reason=f"masked with plain values of party {worst!r}; the bar is that for {few}",
        details={f"correlation of {party}": value for party, (value, _) in found.items()},
    )


def _correlated(recording: Recording, party: str) -> tuple[float, int]:
    """The correlation of a party's masked values with plain ones, and of how many values; 0 if all are alike."""
    pairs = list(_pairs(recording, party))
    if not pairs:
        return 0.0, 0
    masked, plain = (np.concatenate([pair[at] for pair in pairs]).astype(np.float64) for at in (0, 1))
    if masked.std() == 0 or plain.std() == 0:
        return 0.0, len(masked)
    return float(np.corrcoef(masked, plain)[0, 1]), len(masked)


def _blocks(recording: Recording, values: Codes) -> Verdict:
    """Equal blocks of what travelled, and of the masks: two of 64 random bits are never equal in a run."""
    masks = [masked - plain for party in recording.pushes for masked, plain in _pairs(recording, party)]
    equal, equal_masks = _doubles(values), _doubles(np.concatenate(masks)) if masks else 0
    return passed_if(
        equal + equal_masks == 0,
        "A8",
        _BLOCKS,
        "server",
        score=float(equal + equal_masks),
        baseline=0.0,
        bar="0 equal blocks of 8 bytes",
        reason=f"{equal} of {values.size:,} masked values occur twice, and {equal_masks} of the masks under them",
        details={"equal_values": equal, "equal_masks": equal_masks},
    )


def _doubles(values: NDArray[np.int64]) -> int:
    return values.size - np.unique(values).size


def _pairs(recording: Recording, party: str) -> Iterator[tuple[Codes, Codes]]:
    """Every push of a party as it travelled, and its codes without the mask."""
    for step, push in recording.pushes[party].items():
        yield push.release.values.ravel(), encode(recording.plain[party][step]).ravel()


def _once(recording: Recording) -> Codes:
    """All values that travelled; what was sent again as it was counts once."""
    known = {(_name(party, message), _content(message)): message for party, message in messages_of(recording)}
    parts = [message.release.values.ravel() for message in known.values()]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _name(party: str, message: Message) -> Name:
    stamp = message.release.stamp
    if isinstance(message, Push):
        return "push", party, message.step, stamp
    if isinstance(message, Gradient):
        return "gradient", party, message.step, stamp
    return "trial", party, message.epoch, stamp


def _content(message: Message) -> bytes:
    return message.release.values.astype("<i8").tobytes()


def _spelled(name: Name) -> str:
    purpose, party, number, _ = name
    return f"{purpose} {number} of party {party!r}"


attacks: dict[str, Attack] = {"A8": read_blindly, "A9": find_reuse}
