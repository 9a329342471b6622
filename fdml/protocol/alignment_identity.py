"""What an alignment belongs to: all runs of a federation that match rows in the same way share theirs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from fdml.settings import RunSettings, run_hash


def federation_hash(settings: RunSettings) -> bytes:
    """Of who works together: the federation's name, its parties and their keys."""
    who = [settings.federation, settings.parties, settings.members]
    return hashlib.blake2b(json.dumps(who).encode(), digest_size=32, person=b"fdml federation").digest()


def alignment_hash(settings: RunSettings) -> bytes:
    """Of what an alignment belongs to: who matches rows, and how. All runs with the same share their alignment."""
    how: list[Any] = [settings.align]
    if settings.pointing_party is not None:
        how += [settings.label_party, settings.keys, settings.unmatched]
    content = federation_hash(settings) + json.dumps(how).encode()
    return hashlib.blake2b(content, digest_size=32, person=b"fdml alignment").digest()


def begun_hash(settings: RunSettings, starts: Sequence[bytes]) -> bytes:
    """Of a run as it was begun once: of its settings, and of what all parties drew then, in the run's order."""
    content = run_hash(settings) + b"".join(starts)
    return hashlib.blake2b(content, digest_size=32, person=b"fdml run begun").digest()
