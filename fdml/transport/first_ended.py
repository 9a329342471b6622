"""Tasks that belong together: the first to end ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


async def until_one_ends(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until one of the tasks ends; raises what has ended it. The others are cancelled."""
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
