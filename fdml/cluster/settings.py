"""`[workers]` of a party.toml: who does a party's work. No result depends on it."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from fdml.settings.file import Settings


class WorkersSettings(Settings):
    """Who does the work of a party that trains in shards or in column groups."""

    kind: Literal["threads", "processes"] = "threads"
    """Threads of the party's process, or processes on its machine."""
    count: PositiveInt | Literal["auto"] = "auto"
    """How many there are; "auto" takes as many as the machine has cores. There are never more than shards or groups."""
    seconds: PositiveFloat = 300.0
    """How long a task may take; whoever takes longer is taken for lost, and somebody else does it again."""

    def workers(self, tasks: int) -> int:
        """How many work on so many tasks."""
        wanted = (os.cpu_count() or 1) if self.count == "auto" else self.count
        return min(wanted, tasks)
