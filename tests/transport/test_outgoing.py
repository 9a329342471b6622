"""What is to leave on a stream leaves in order, whenever it was put there."""

import asyncio

from fdml.transport.outgoing import Outgoing


def in_a_loop(work):
    return asyncio.run(work)


def test_what_was_put_before_is_taken_at_once_and_in_order():
    async def work():
        outgoing = Outgoing()
        for item in (b"one", b"two", None):
            outgoing.put(item)
        return [await outgoing.get() for _ in range(3)]

    assert in_a_loop(work()) == [b"one", b"two", None]


def test_a_reader_that_waits_is_woken():
    async def work():
        outgoing = Outgoing()
        reader = asyncio.create_task(outgoing.get())
        await asyncio.sleep(0)
        assert not reader.done(), "there is nothing yet"
        outgoing.put(b"one")
        outgoing.put(b"two")
        return await reader, await outgoing.get()

    assert in_a_loop(work()) == (b"one", b"two")


def test_a_reader_that_is_cancelled_loses_nothing():
    async def work():
        outgoing = Outgoing()
        reader = asyncio.create_task(outgoing.get())
        await asyncio.sleep(0)
        reader.cancel()
        outgoing.put(b"one")
        await asyncio.gather(reader, return_exceptions=True)
        return await outgoing.get()

    assert in_a_loop(work()) == b"one"
