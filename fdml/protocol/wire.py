"""Messages as bytes, and back. Nothing that comes from outside is believed before it has been checked here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.agreed_training import SLOWEST_LINE
from fdml.protocol.bit_packing import MOST_BITS, pack_bits, packed_size, unpack_bits
from fdml.protocol.envelopes import check_names, check_protocol, invalid, parsed, piece_in, piece_out
from fdml.protocol.fixed_point import FIXED_POINTS, INT64, NARROW, Codes, pack40, unpack40
from fdml.protocol.messages import (
    SEALED_EPOCH_BYTES,
    SEALED_METRICS_BYTES,
    Ack,
    BestEpoch,
    Checkpointed,
    Finished,
    FromParty,
    FromServer,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)
from fdml.protocol.waited_for import as_lists, waited_for

_HASH_BYTES = 32
_TYPES = {grid.bits // 8: grid.dtype for grid in FIXED_POINTS.values()}
_WIDTHS = (*_TYPES, NARROW)
_MOST_STEPS = 2**53


def encode_from_party(message: FromParty) -> bytes:
    """A party's message as bytes."""
    if isinstance(message, Push):  # first, as nearly all are
        envelope = pb.FromParty()
        _fill(envelope.push, step=message.step, seen=message.seen, **_push_out(message.release))
        return envelope.SerializeToString()
    match message:
        case Hello():
            envelope = pb.FromParty(hello=pb.Hello(**vars(message)))
        case Labels():
            envelope = pb.FromParty(labels=_labels_out(message))
        case Gradient():
            envelope = pb.FromParty(gradient=_gradient_out(message))
        case Stop():
            envelope = pb.FromParty(stop=pb.Stop(**vars(message)))
        case Checkpointed(step):
            envelope = pb.FromParty(checkpointed=pb.Checkpointed(step=step))
        case HeldOutPredictions(epoch, release, piece):
            out = _release_out(release)
            envelope = pb.FromParty(held_out=pb.HeldOutPredictions(epoch=epoch, piece=piece_out(piece), **out))
        case SealedMetrics():
            envelope = pb.FromParty(metrics=pb.SealedMetrics(**vars(message)))
        case BestEpoch(sealed):
            envelope = pb.FromParty(best_epoch=pb.BestEpoch(sealed=sealed))
        case Finished(model_mac):
            envelope = pb.FromParty(finished=pb.Finished(model_mac=model_mac))
    return envelope.SerializeToString()


def encode_from_server(message: FromServer) -> bytes:
    """The server's message as bytes."""
    if isinstance(message, Total):  # first, as nearly all are
        envelope = pb.FromServer()
        bits, masked = message.bits, bool(message.mask_ids)
        out = _packed_out(message.values, bits) if bits else _values_out(message.values, masked=masked)
        _fill(envelope.total, step=message.step, variance=message.variance, parts=message.parts, **out)
        envelope.total.pushed_at.extend(message.pushed_at)
        envelope.total.mask_ids.extend(message.mask_ids)
        return envelope.SerializeToString()
    match message:
        case Welcome():
            envelope = pb.FromServer(welcome=pb.Welcome(**vars(message)))
        case Labels():
            envelope = pb.FromServer(labels=_labels_out(message))
        case Ack(count):
            envelope = pb.FromServer(ack=pb.Ack(count=count))
        case Gradient():
            envelope = pb.FromServer(gradient=_gradient_out(message))
        case HeldOutTotal():
            envelope = pb.FromServer(held_out_total=_held_out_total_out(message))
        case Stopped():
            envelope = pb.FromServer(stopped=pb.Stopped(**vars(message)))
        case BestEpoch(sealed):
            envelope = pb.FromServer(best_epoch=pb.BestEpoch(sealed=sealed))
        case Waiting(parties):
            names, silent, refusals = as_lists(parties)
            envelope = pb.FromServer(waiting=pb.Waiting(parties=names, silent_seconds=silent, refusals=refusals))
    return envelope.SerializeToString()


def decode_from_party(raw: bytes, most: Callable[[], int] | None = None) -> FromParty:
    """What a party sent, or `MessageRefused`; of differences no more than `most` are unpacked."""
    kind, content = parsed(pb.FromParty(), raw)
    if kind == "push" and content.count and most is not None and content.count > most():
        raise MessageRefused(
            f"received {content.count} differences; the largest block of this run has {most()}", Refusal.TOO_LARGE
        )
    return _FROM_PARTY[kind](content)  # type: ignore[no-any-return]


def decode_from_server(raw: bytes) -> FromServer:
    """What the server sent, or `MessageRefused`."""
    kind, content = parsed(pb.FromServer(), raw)
    return _FROM_SERVER[kind](content)  # type: ignore[no-any-return]


def _fill(content: Any, **fields: Any) -> None:
    """Set fields where they are: an envelope made of a message would copy it."""
    content.SetInParent()  # there also where all fields have the values of none
    for name, value in fields.items():
        setattr(content, name, value)


def _codes_out(values: Codes) -> bytes:
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()


def _codes_in(raw: bytes, width: int = 8) -> Codes:
    if width not in _WIDTHS:
        raise invalid(f"predictions of {width} bytes each; it takes {', '.join(map(str, _WIDTHS))}")
    if len(raw) % width:
        raise invalid(f"predictions of {len(raw)} bytes, which is no whole number of int{8 * width}")
    if width == NARROW:
        return unpack40(raw)
    return np.frombuffer(raw, _TYPES[width].newbyteorder("<")).astype(_TYPES[width], copy=False)


def _packed_in(content: pb.Push | pb.Total) -> Codes:
    bits, count = content.bits, content.count
    if not 2 <= bits <= MOST_BITS:
        raise invalid(f"differences of {bits} bits; it takes 2 to {MOST_BITS}")
    codes = unpack_bits(content.codes, count, bits)
    if codes is None or content.width:
        raise invalid(
            f"{count} differences of {bits} bits in {len(content.codes)} bytes, and they take "
            f"{packed_size(count, bits)} with no bit to spare set"
        )
    return codes


def _packed_out(values: Codes, bits: int) -> dict[str, Any]:
    return {"codes": pack_bits(values, bits), "bits": bits, "count": values.size}


def _push_out(release: Release) -> dict[str, Any]:
    if not release.bits:
        return _release_out(release)
    out = _packed_out(release.values, release.bits)
    return {"mask_id": release.mask_id, "variance": release.variance, "scale": release.scale, **out}


def _push_in(content: pb.Push) -> Push:
    if not content.bits:
        _check_whole(content)
        return Push(content.step, _release_in(content), content.seen)
    if content.scale > MOST_BITS:
        raise invalid(f"differences in steps of 2**{content.scale}")
    values, variance = _packed_in(content), _variance_in(content.variance)
    release = Release(values, content.mask_id, variance, content.bits, content.scale)
    return Push(content.step, release, content.seen)


def _total_in(content: pb.Total) -> Total:
    if not content.bits:
        _check_whole(content)
    values = _packed_in(content) if content.bits else _codes_in(content.codes, content.width)
    pushed_at, mask_ids, variance = tuple(content.pushed_at), tuple(content.mask_ids), _variance_in(content.variance)
    return Total(content.step, values, pushed_at, mask_ids, variance, content.bits, content.parts)


def _check_whole(content: pb.Push | pb.Total) -> None:
    if content.count or getattr(content, "scale", 0):
        raise invalid("whole predictions with a count or scale of differences")


def _release_out(release: Release) -> dict[str, Any]:
    out = _values_out(release.values, masked=release.mask_id != 0)
    return {"mask_id": release.mask_id, "variance": release.variance, **out}


def _values_out(values: Codes, *, masked: bool) -> dict[str, Any]:
    """As bytes; under a mask values never fit into fewer."""
    narrow = pack40(values) if values.dtype == INT64.dtype and not masked else None
    if narrow is not None:
        return {"codes": narrow, "width": NARROW}
    return {"codes": _codes_out(values), "width": values.dtype.itemsize}


def _gradient_out(message: Gradient) -> pb.Gradient:
    return pb.Gradient(step=message.step, codes=_codes_out(message.release.values), mask_id=message.release.mask_id)


def _release_in(content: pb.Push | pb.HeldOutPredictions) -> Release:
    return Release(_codes_in(content.codes, content.width), content.mask_id, _variance_in(content.variance))


def _gradient_in(content: pb.Gradient) -> Gradient:
    return Gradient(content.step, Release(_codes_in(content.codes), content.mask_id))


def _variance_in(variance: float) -> float:
    if not 0.0 <= variance < math.inf:
        raise invalid(f"noise of variance {variance}")
    return variance


def _labels_out(message: Labels) -> pb.Labels:
    return pb.Labels(classes=message.classes, sealed=message.sealed, piece=piece_out(message.piece))


def _labels_in(content: pb.Labels) -> Labels:
    if content.classes == 1 or content.classes > 2**16:
        raise invalid(f"labels of {content.classes} classes")
    return Labels(content.classes, content.sealed, piece_in(content))


def _held_out_total_out(message: HeldOutTotal) -> pb.HeldOutTotal:
    out = _values_out(message.values, masked=bool(message.mask_ids))
    piece, masks, variance = piece_out(message.piece), message.mask_ids, message.variance
    return pb.HeldOutTotal(epoch=message.epoch, mask_ids=masks, variance=variance, piece=piece, **out)


def _held_out_total_in(content: pb.HeldOutTotal) -> HeldOutTotal:
    values, variance = _codes_in(content.codes, content.width), _variance_in(content.variance)
    return HeldOutTotal(content.epoch, values, tuple(content.mask_ids), variance, piece_in(content))


def _welcome_in(content: pb.Welcome) -> Welcome:
    if len(content.labels_digest) != (_HASH_BYTES if content.labels else 0):
        raise invalid(f"a digest of {content.labels} pieces of labels that has {len(content.labels_digest)} bytes")
    return Welcome(content.pushed, tuple(content.evaluated), content.labels, content.labels_digest)


def _hello_in(content: pb.Hello) -> Hello:
    for name in ("run_hash", "alignment_hash"):
        if len(getattr(content, name)) != _HASH_BYTES:
            check_protocol(content)
            raise invalid(f"{name} of {len(getattr(content, name))} bytes instead of {_HASH_BYTES}")
    for name in ("rows", "held_out", "incarnation"):
        if getattr(content, name) > _MOST_STEPS:
            raise invalid(f"{name} {getattr(content, name)}")
    if content.line > SLOWEST_LINE:
        raise invalid(f"a line of class {content.line}; the slowest is {SLOWEST_LINE}")
    return Hello(
        content.run_hash,
        content.alignment_hash,
        content.rows,
        content.held_out,
        content.incarnation,
        content.done,
        content.line,
        content.protocol,
    )


def _metrics_in(content: pb.SealedMetrics) -> SealedMetrics:
    if len(content.sealed) not in (0, SEALED_METRICS_BYTES):
        raise invalid(f"sealed metrics of {len(content.sealed)} bytes instead of {SEALED_METRICS_BYTES} or none")
    return SealedMetrics(content.epoch, content.sealed)


def _finished_in(content: pb.Finished) -> Finished:
    if len(content.model_mac) != _HASH_BYTES:
        raise invalid(f"model_mac of {len(content.model_mac)} bytes instead of {_HASH_BYTES}")
    return Finished(content.model_mac)


def _stopped_in(content: pb.Stopped) -> Stopped:
    check_names([content.party])
    return Stopped(content.party, content.step, content.no_gain)


def _best_epoch_in(content: pb.BestEpoch) -> BestEpoch:
    if len(content.sealed) != SEALED_EPOCH_BYTES:
        raise invalid(f"the sealed number of an epoch of {len(content.sealed)} bytes instead of {SEALED_EPOCH_BYTES}")
    return BestEpoch(content.sealed)


def _waiting_in(content: pb.Waiting) -> Waiting:
    check_names(content.parties)
    if not len(content.parties) == len(content.silent_seconds) == len(content.refusals):
        raise invalid(f"{len(content.parties)} names and {len(content.silent_seconds)} times of parties waited for")
    return Waiting(waited_for(content.parties, content.silent_seconds, content.refusals))


_FROM_PARTY: dict[str, Callable[[Any], Any]] = {
    "hello": _hello_in,
    "labels": _labels_in,
    "push": _push_in,
    "gradient": _gradient_in,
    "stop": lambda content: Stop(content.step, content.no_gain),
    "checkpointed": lambda content: Checkpointed(content.step),
    "held_out": lambda content: HeldOutPredictions(content.epoch, _release_in(content), piece_in(content)),
    "metrics": _metrics_in,
    "best_epoch": _best_epoch_in,
    "finished": _finished_in,
}
_FROM_SERVER: dict[str, Callable[[Any], Any]] = {
    "welcome": _welcome_in,
    "labels": _labels_in,
    "ack": lambda content: Ack(content.count),
    "total": _total_in,
    "gradient": _gradient_in,
    "held_out_total": _held_out_total_in,
    "stopped": _stopped_in,
    "best_epoch": _best_epoch_in,
    "waiting": _waiting_in,
}
