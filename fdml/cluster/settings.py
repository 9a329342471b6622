"""`[workers]` of a party.toml: who does a party's work. No result depends on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from fdml.extras import need
from fdml.settings.file import Settings


class WorkersSettings(Settings):
    """Who does the work of a party: reads its Parquet files, and trains its shards or column groups."""

    kind: Literal["threads", "processes", "ray"] = "threads"
    """Threads of the party's process, processes on its machine, or actors of a Ray cluster of its own."""
    address: str | None = None
    """Of the Ray cluster: that of its head, as host:port, or "auto" for the one that this machine belongs to."""
    count: PositiveInt | Literal["auto"] = "auto"
    """How many there are; "auto" takes as many as the party's machine has cores. There are never more than tasks."""
    seconds: PositiveFloat = 300.0
    """How long a task may take; whoever takes longer is taken for lost, and somebody else does it again."""

    files: bool | Literal["auto"] = "auto"
    """Whether workers read a folder, or large file, of Parquet; "auto" is yes, but for threads."""
    folder: Path | None = None
    """Where parts of the rows are written meanwhile, which all workers must see; None is the run's own folder."""

    @model_validator(mode="after")
    def _address_goes_with_ray(self) -> WorkersSettings:
        if self.kind == "ray" and self.address is None:
            raise ValueError('workers.kind = "ray" needs workers.address: host:port of the cluster\'s head, or "auto"')
        if self.kind != "ray" and self.address is not None:
            raise ValueError(f'workers.address is {self.address!r}, and only workers.kind = "ray" has one')
        return self

    @property
    def reads(self) -> bool:
        """Whether workers read files. Threads mostly wait for each other there."""
        return self.kind != "threads" if self.files == "auto" else self.files

    def workers(self, tasks: int) -> int:
        """How many work on so many tasks."""
        wanted = (os.cpu_count() or 1) if self.count == "auto" else self.count
        return min(wanted, tasks)

    def check(self) -> None:
        """Raise before anything has begun if who is to work cannot."""
        if self.kind == "ray":
            need("ray", 'workers.kind = "ray"')
