"""What a party must keep over restarts, on one disk: alignment, checkpoints, result."""

from __future__ import annotations

from fdml.party.alignment import SharedRows
from fdml.party.alignment_store import AlignmentStore
from fdml.party.checkpoint import Checkpoint, CheckpointStore, FinishedModel, SavedState
from fdml.storage.disk import Disk


class DiskStore:
    """The saved state of one party. Everything is durable on return."""

    def __init__(self, disk: Disk, *, run_hash: bytes, data: str) -> None:
        """`data` stands for the party's files: a stored alignment of other files is refused."""
        self.disk = disk
        self._alignments = AlignmentStore(disk, run_hash=run_hash, data=data)
        self._checkpoints = CheckpointStore(disk)

    def load(self) -> SavedState:
        """What earlier starts have saved; counts this start."""
        return self._checkpoints.load()

    def finished_model(self) -> FinishedModel | None:
        """The result, if an earlier start has finished."""
        return self._checkpoints.result()

    def shared_rows(self) -> SharedRows | None:
        """The alignment of an earlier start."""
        return self._alignments.load()

    def save_alignment(self, shared: SharedRows) -> None:
        """Keep the alignment for later starts."""
        self._alignments.save(shared)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint for later starts."""
        self._checkpoints.save(checkpoint)

    def save_result(self, result: FinishedModel) -> None:
        """Keep the result for later starts."""
        self._checkpoints.save_result(result)
