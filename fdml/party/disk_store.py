"""What a party must keep over restarts, on one disk: alignment, checkpoints, result."""

from __future__ import annotations

from fdml.align.kept import Generation
from fdml.party.alignment import SharedRows
from fdml.party.alignment_store import AlignmentStore
from fdml.party.checkpoint import Checkpoint, CheckpointStore, FinishedModel, SavedState
from fdml.party.kept_store import KeptStore
from fdml.protocol.alignment_messages import RowsOffer
from fdml.storage.disk import Disk


class DiskStore:
    """The saved state of one party. Everything is durable on return."""

    def __init__(self, disk: Disk, *, run_hash: bytes, data: str, kept: KeptStore | None = None) -> None:
        """`data` stands for the party's files: stored rows of other files are refused.

        `kept` has the alignment that all runs share; without one it is on the same disk.
        """
        self.disk = disk
        self.kept = KeptStore(disk) if kept is None else kept
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

    def offered(self) -> tuple[bytes, RowsOffer] | None:
        """What an earlier start has offered to the run, and the state of the ids then."""
        return self._alignments.offered()

    def save_rows_offer(self, state: bytes, offer: RowsOffer) -> None:
        """Keep what this party offers to the run."""
        self._alignments.save_offer(state, offer)

    def save_generation(self, generation: Generation) -> None:
        """Keep a generation of the alignment for all runs."""
        self.kept.save(generation)

    def save_alignment(self, shared: SharedRows) -> None:
        """Keep the run's rows for later starts."""
        self._alignments.save(shared)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint for later starts."""
        self._checkpoints.save(checkpoint)

    def save_result(self, result: FinishedModel) -> None:
        """Keep the result for later starts."""
        self._checkpoints.save_result(result)
