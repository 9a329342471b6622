"""A run's status as bytes on the wire."""

from __future__ import annotations

from dataclasses import asdict, fields

from google.protobuf.message import DecodeError

from fdml.errors import ExchangeError, Refusal
from fdml.monitor.status import PartyStatus, RunStatus
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.envelopes import check_names
from fdml.protocol.messages import SealedMetrics

_PARTY_FIELDS = tuple(each.name for each in fields(PartyStatus))
_REASONS = tuple(refusal.name.lower() for refusal in Refusal)


def encode_status(status: RunStatus) -> bytes:
    """The bytes of a status."""
    message = pb.RunStatus(run=status.run, steps=status.steps, refused=status.refused)
    for party in status.parties:
        message.parties.add(**asdict(party))
    for metrics in status.history:
        message.history.add(**asdict(metrics))
    return message.SerializeToString()


def decode_status(raw: bytes) -> RunStatus:
    """The status in these bytes."""
    try:
        message = pb.RunStatus.FromString(raw)
    except DecodeError as error:
        raise ExchangeError(
            f"the server's status of {len(raw)} bytes cannot be read ({error}); use the server's version of fdml"
        ) from None
    check_names([message.run])
    return RunStatus(
        message.run,
        message.steps,
        tuple(_party(each) for each in message.parties),
        tuple(SealedMetrics(each.epoch, each.sealed) for each in message.history),
        {name: message.refused[name] for name in _REASONS if name in message.refused},
    )


def _party(message: pb.PartyStatus) -> PartyStatus:
    check_names([message.name, *message.waits_for])
    values = {name: getattr(message, name) for name in _PARTY_FIELDS}
    largest = message.largest_prediction if message.HasField("largest_prediction") else None
    return PartyStatus(**{**values, "waits_for": tuple(message.waits_for), "largest_prediction": largest})
