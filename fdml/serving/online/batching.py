"""Requests of many callers become one question: exchanges cost the same for one row and for a thousand.

While a question is under way the next requests are collected; so the size follows the load, and a lone request waits
for nothing. Everything here runs in one event loop; questions are asked in threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa

from fdml.errors import FdmlError, RequestRefused
from fdml.serving.answers import Answers
from fdml.serving.asking import AskedRows

MOST_JOINED = 4096
"""Rows of one question that is made of several requests; a larger request is asked alone."""
MOST_WAITING = 2**18
"""Rows of requests that wait, of one model; more are refused."""
_AT_ONCE = 2
"""Questions under way at the same time."""
_GRACE = 0.25
"""Seconds past its deadline in which a question may still say who is missing."""

Ask = Callable[[AskedRows, float], Answers]
"""Answers a question within so many seconds; called in a thread."""


@dataclass(eq=False)
class _Request:
    rows: AskedRows
    ends: float
    """By the loop's clock."""
    answers: asyncio.Future[Answers]


class Batcher:
    """The queue of one model."""

    def __init__(
        self,
        ask: Ask,
        parties: Sequence[str],
        threads: Executor,
        *,
        report: Callable[[BaseException], None],
        pause: float = 0.002,
        most_joined: int = MOST_JOINED,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """`pause` is how long requests are collected where the question before had several; `parties` are asked.

        `report` hears of errors that nobody foresaw.
        """
        self._ask = ask
        self._parties = tuple(parties)
        self._threads = threads
        self._report = report
        self._pause = pause
        self._most_joined = most_joined
        self._most_waiting = most_waiting
        self._waiting: deque[_Request] = deque()
        self._rows = 0
        """Of the requests that wait."""
        self._under_way = 0
        self._is_collecting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0
        """Requests in the question before."""

    async def answers(self, rows: AskedRows, seconds: float) -> Answers:
        """The answers to one request, or `RequestRefused`: no later than its deadline and a little."""
        if self._rows + len(rows) > self._most_waiting:
            raise RequestRefused(
                429, f"{self._rows} rows wait to be asked for, and {self._most_waiting} is the most; try again later"
            )
        loop = asyncio.get_running_loop()
        request = _Request(rows, loop.time() + seconds, loop.create_future())
        self._waiting.append(request)
        self._rows += len(rows)
        self._go_on()
        try:
            return await asyncio.wait_for(request.answers, seconds + _GRACE)
        except TimeoutError:
            raise RequestRefused(504, f"no answer within {seconds:.3g} s of {', '.join(self._parties)}") from None

    def _go_on(self) -> None:
        if not self._waiting or self._is_collecting or self._under_way >= _AT_ONCE:
            return
        if self._last > 1 and self._rows < self._most_joined:
            self._is_collecting = True
            asyncio.get_running_loop().call_later(self._pause, self._collected)
        else:
            self._start()

    def _collected(self) -> None:
        self._is_collecting = False
        self._start()
        self._go_on()

    def _start(self) -> None:
        requests = self._next()
        if not requests:
            return
        self._under_way += 1
        task = asyncio.get_running_loop().create_task(self._put(requests))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report(error)

    def _next(self) -> list[_Request]:
        """The requests of the next question; those that nobody waits for any more are left out."""
        chosen, rows, now = list[_Request](), 0, asyncio.get_running_loop().time()
        while self._waiting:
            request = self._waiting[0]
            is_over = request.answers.done() or request.ends <= now
            if not is_over and chosen and rows + len(request.rows) > self._most_joined:
                break
            self._rows -= len(self._waiting.popleft().rows)
            if not is_over:
                chosen.append(request)
                rows += len(request.rows)
        return chosen

    async def _put(self, requests: list[_Request]) -> None:
        loop = asyncio.get_running_loop()
        seconds = max(each.ends for each in requests) - loop.time()
        try:
            rows = joined([each.rows for each in requests])
            found = await loop.run_in_executor(self._threads, self._ask, rows, seconds)
        except FdmlError as error:
            for each in requests:
                if not each.answers.done():
                    each.answers.set_exception(error)
        else:
            first = 0
            for each in requests:
                last = first + len(each.rows)
                if not each.answers.done():
                    each.answers.set_result(found if len(requests) == 1 else found.part(first, last))
                first = last
        finally:
            self._under_way -= 1
            self._last = len(requests)
            for each in requests:
                if not each.answers.done():  # the thread ended with an error of another kind
                    each.answers.set_exception(RequestRefused(500, "an error in this endpoint; its log says which"))
            self._go_on()


def joined(parts: Sequence[AskedRows]) -> AskedRows:
    """The rows of several requests, one after the other."""
    if len(parts) == 1:
        return parts[0]
    leads = {name: pa.concat_arrays([each.leads[name] for each in parts]) for name in parts[0].leads}
    return AskedRows(pa.concat_arrays([each.ids for each in parts]), leads)
