"""Attacks on masks: what does a blind server see, and was any mask put on twice?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import chisquare

from fdml.audit.canaries import Message, messages_of
from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.protocol.bit_packing import pack_bits
from fdml.protocol.fixed_point import INT64, Codes, encode
from fdml.protocol.messages import Gradient, Push

Name = tuple[str, str, int, int]
"""Under which a mask is put on: purpose, party, number and mask_id."""
Messages = Sequence[tuple[str, Message]]
Pairs = Sequence[tuple[Codes, Codes]]
"""Values as they travelled, and as they are."""

_BYTES = "blind transcript: bytes"
_CORRELATION = "blind transcript: correlation"
_BLOCKS = "blind transcript: equal blocks"
_REUSE = "masks put on twice"
_LEAST_P = 0.001
_CORRELATED = 0.01
_SIGMAS = 4.0
_BLOCK = 8
"""Bytes of a block."""
_LEAST_BYTES = 256 * 5
"""With fewer, a chi-square test of 256 values says nothing."""


def read_blindly(recording: Recording) -> list[AttackResult]:
    """A8: whether what the server must not read is noise to it: all of a blind run, else gradients alone."""
    hidden = _hidden(recording)
    if not hidden:
        reason = 'the server is "plain" and sees every prediction by agreement; there are no gradients'
        return [not_applicable("A8", _BYTES, "server", reason)]
    once, pairs = _once(hidden), _pairs(recording, hidden)
    return [_bytes(hidden, once), _correlation(pairs), _blocks(_masks(recording, once), once)]


def find_reuse(recording: Recording) -> list[AttackResult]:
    """A9: whether one mask was put on two different values; their difference would then be known."""
    seen: defaultdict[Name, list[bytes]] = defaultdict(list)
    for party, message in messages_of(recording):
        if message.release.mask_id:
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
                "starts": len({(party, mask_id) for _, party, _, mask_id in seen}),
            },
        )
    ]


def _bytes(hidden: Messages, once: Messages) -> AttackResult:
    raw = np.frombuffer(b"".join(_travelled(message) for _, message in once), np.uint8)
    bare = sum(not message.release.mask_id for _, message in hidden)
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


def _correlation(pairs: Mapping[str, Pairs]) -> AttackResult:
    """The largest of any party's; a chance one is within 4 / sqrt(values)."""
    found = {whose: _correlated(each) for whose, each in pairs.items()}
    limits = {whose: max(_CORRELATED, _SIGMAS / math.sqrt(max(count, 1))) for whose, (_, count) in found.items()}
    worst = max(found, key=lambda whose: abs(found[whose][0]) / limits[whose])
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
        reason=f"masked with plain values of {worst}; the bar is that for {few}",
        details={f"correlation of {whose}": value for whose, (value, _) in found.items()},
    )


def _correlated(pairs: Pairs) -> tuple[float, int]:
    """The correlation of masked values with plain ones, and of how many values; 0 if all are alike."""
    if not pairs:
        return 0.0, 0
    masked, plain = (np.concatenate([pair[at] for pair in pairs]).astype(np.float64) for at in (0, 1))
    if masked.std() == 0 or plain.std() == 0:
        return 0.0, len(masked)
    return float(np.corrcoef(masked, plain)[0, 1]), len(masked)


def _blocks(masks: Sequence[bytes], once: Messages) -> AttackResult:
    """Equal blocks of what travelled, and of the masks: two of 64 random bits are never equal in a run."""
    travelled = [_travelled(message) for _, message in once]
    equal, equal_masks = _doubles(travelled), _doubles(masks)
    return passed_if(
        equal + equal_masks == 0,
        "A8",
        _BLOCKS,
        "server",
        score=float(equal + equal_masks),
        baseline=0.0,
        bar="0 equal blocks of 8 bytes",
        reason=f"{equal} of {sum(map(len, travelled)) // _BLOCK:,} masked blocks occur twice, and {equal_masks} of the "
        f"masks under them",
        details={"equal_values": equal, "equal_masks": equal_masks},
    )


def _doubles(content: Sequence[bytes]) -> int:
    """How many blocks of 8 bytes occur again."""
    words = [np.frombuffer(raw, np.int64, len(raw) // _BLOCK) for raw in content]
    return sum(map(len, words)) - np.unique(np.concatenate(words)).size if words else 0


def _hidden(recording: Recording) -> Messages:
    """The messages that the server must not be able to read."""
    blind = recording.run.privacy.server == "blind"
    return [each for each in messages_of(recording) if blind or isinstance(each[1], Gradient)]


def _pairs(recording: Recording, hidden: Messages) -> dict[str, Pairs]:
    """Pushes of each party and gradients as they travelled, each with its codes without the mask."""
    pairs: dict[str, Pairs] = {}
    if recording.run.privacy.server == "blind":
        for party, pushes in recording.pushes.items():
            plain, grid = recording.plain[party], recording.grid
            pairs[f"party {party!r}"] = [
                (_flat(push), encode(plain[step], grid).ravel()) for step, push in pushes.items()
            ]
    first = {message.step: message for _, message in reversed(hidden) if isinstance(message, Gradient)}
    pairs["gradients"] = [
        (_flat(message), encode(recording.gradients[step]).ravel()) for step, message in first.items()
    ]
    return pairs


def _masks(recording: Recording, once: Messages) -> list[bytes]:
    """The masks of pushes and gradients that are whole; of differences no recording keeps what is under them."""
    found = []
    for party, message in once:
        plain, grid = recording.gradients, INT64
        if isinstance(message, Push):
            plain, grid = recording.plain[party], recording.grid
        if isinstance(message, Push | Gradient) and not message.release.bits and message.step in plain:
            found.append((_flat(message) - encode(plain[message.step], grid).ravel()).tobytes())
    return found


def _once(hidden: Messages) -> Messages:
    """All messages; what was sent again as it was counts once."""
    known = {(_name(party, message), _content(message)): (party, message) for party, message in hidden}
    return list(known.values())


def _travelled(message: Message) -> bytes:
    """The values as they travelled, whole bytes only."""
    release = message.release
    if not release.bits:
        return release.values.tobytes()
    return pack_bits(release.values, release.bits)[: release.values.size * release.bits // 8]


def _flat(message: Message) -> Codes:
    return message.release.values.ravel()


def _name(party: str, message: Message) -> Name:
    mask_id = message.release.mask_id
    if isinstance(message, Push):
        return "push", party, message.step, mask_id
    if isinstance(message, Gradient):
        return "gradient", party, message.step, mask_id
    return "held-out", party, message.epoch, mask_id


def _content(message: Message) -> bytes:
    return message.release.values.astype("<i8").tobytes()


def _spelled(name: Name) -> str:
    purpose, party, number, _ = name
    return f"{purpose} {number} of party {party!r}"


attacks: dict[str, Attack] = {"A8": read_blindly, "A9": find_reuse}
