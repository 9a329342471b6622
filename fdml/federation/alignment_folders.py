"""Where a side keeps its alignments: one folder for each way of matching rows in a federation, for all runs."""

from __future__ import annotations

from pathlib import Path

from fdml.protocol.alignment_identity import alignment_hash
from fdml.settings import RunSettings

ALIGNMENTS = "alignments"


def alignment_folder(home: Path, run: RunSettings) -> Path:
    """The folder of the alignment that a run uses, in the folder of a party or of the server."""
    return home / ALIGNMENTS / alignment_hash(run).hex()[:16]
