"""What an asker and the parties say to each other about predictions, and the envelopes that the server relays."""

from __future__ import annotations

from dataclasses import dataclass

from fdml.protocol.alignment_messages import TOKEN_BYTES, Keys
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import PROTOCOL

NUMBER_BYTES = 16
"""Of a question's number, which its asker draws."""
DIGEST_BYTES = 32
VERSION_LETTERS = 32
MOST_ROWS = 65_536
"""Rows of one question."""
MOST_READING = 2**20
"""Bytes of what the label party says of how a score is to be read."""
MOST_SEALED = 2**25
"""Bytes that are sealed in one message: the answer of so many rows with 64 outputs, or fewer rows with more."""
MOST_MESSAGE = MOST_SEALED + 2**16
"""Bytes of a message with its envelope."""
LONGEST_ABSENT = 400
"""Letters of why a party does not answer."""


@dataclass(frozen=True)
class Question:
    """A question on its way. Of an asker's, `party` is who is asked; relayed to that party, it is the asker."""

    number: bytes
    run: str
    party: str
    sealed: bytes
    """An `Asked`, for the two of them alone."""
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Reply:
    """A reply on its way: of a party's, `party` is the asker; relayed to the asker, it is who replies."""

    number: bytes
    run: str
    party: str
    sealed: bytes = b""
    """An `Answered`, for the two of them alone."""
    absent: str = ""
    """Why there is no answer, where the server or the party's process says so in clear."""
    protocol: int = PROTOCOL


Relayed = Question | Reply


@dataclass(frozen=True, eq=False)
class Asked:
    """Which rows are asked for: their tokens at the party that is asked."""

    version: str
    tokens: Keys
    parties: tuple[str, ...]
    """All that are asked, whose answers are added up."""
    digests: tuple[bytes, ...]
    """Of the tokens that each of them is asked for, under its key with the asker: so that all know whether they answer
    the same question, and none can try out what another is asked for."""


@dataclass(frozen=True, eq=False)
class Answered:
    """A party's local predictions of the rows it was asked for, under masks where several parties answer."""

    version: str
    known: bytes = b""
    """A bit for each row that the party holds, the highest first."""
    codes: Codes | None = None
    """Fixed point, int64, `(rows, width)`."""
    bits: int = 0
    """Of the grid of the codes."""
    refusal: str = ""
    """Why it does not answer, for the asker alone."""
    reading: bytes = b""
    """Of the label party: how a score is to be read, as JSON."""


def answer_rows(width: int) -> int:
    """How many rows one question may have, so that its answer may travel."""
    return max(1, min(MOST_ROWS, (MOST_SEALED - MOST_READING - 2**16) // (8 * max(width, 1)), _TOKENS))


_TOKENS = (MOST_SEALED - 2**16) // TOKEN_BYTES
