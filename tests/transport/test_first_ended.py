"""Tasks of which the first to end ends the others."""

import asyncio

import pytest

from fdml.transport.first_ended import until_one_ends


async def for_ever():
    await asyncio.Event().wait()


async def broken():
    raise OSError("no room")


def started(*works):
    return [asyncio.ensure_future(work) for work in works]


def test_the_first_to_end_ends_the_others():
    async def look():
        tasks = started(for_ever(), asyncio.sleep(0), for_ever())
        await until_one_ends(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(look()) == [True, False, True]


def test_what_ended_a_task_is_raised_and_the_others_are_cancelled():
    async def look():
        tasks = started(broken(), for_ever())
        with pytest.raises(OSError, match="no room"):
            await until_one_ends(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
        return tasks[1].cancelled()

    assert asyncio.run(look())


def test_whoever_is_cancelled_while_it_waits_cancels_them_all():
    async def look():
        tasks = started(for_ever(), for_ever())
        waiting = asyncio.create_task(until_one_ends(tasks))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)
        return [task.cancelled() for task in tasks]

    assert asyncio.run(look()) == [True, True]
