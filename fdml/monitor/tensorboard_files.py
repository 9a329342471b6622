"""Event files for TensorBoard, written by its own writer. An extra: imported only where party.toml asks for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]


class EventFiles:
    """One event file for each start of the party's process, all in the run's folder; only the owner may look."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(folder))
        self._began = False

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Write scalars, the epoch as their step; they are on disk on return."""
        if not self._began:  # what an earlier start had written from here on is done again, and shown once
            start = Event(wall_time=time.time(), step=epoch, session_log=SessionLog(status=SessionLog.START))
            self._writer.add_event(start)
            self._began = True
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=epoch, summary=Summary(value=values)))
        self._writer.flush()

    def close(self, *, finished: bool) -> None:  # noqa: ARG002 (an event file has no place for it)
        """Close the file."""
        self._writer.close()
