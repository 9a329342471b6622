"""Encoders of both kinds of files: tables of named columns and matrices."""

from __future__ import annotations

from fdml.data.documents import read_document
from fdml.data.encoding import LAYOUT, Encoder
from fdml.data.error_context import no_such
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.rows import NO_NATIVE, NativeFeatures

AnyEncoder = Encoder | MatrixEncoder

ENCODERS: dict[str, type[AnyEncoder]] = {"table": Encoder, "matrix": MatrixEncoder}
"""By the name that the JSON text has for each."""


def native_of(encoder: AnyEncoder) -> NativeFeatures:
    """Which features are as trees want them; of a matrix nothing is known."""
    return encoder.native if isinstance(encoder, Encoder) else NO_NATIVE


def encoder_from_json(text: str | bytes) -> AnyEncoder:
    """An encoder as its `to_json` wrote it; needs nothing of the data it was fitted on."""
    kind = str(read_document(text, "the encoder", LAYOUT).get("encoder"))
    if kind not in ENCODERS:
        raise no_such("kind of encoder", kind, list(ENCODERS))
    return ENCODERS[kind].from_json(text)
