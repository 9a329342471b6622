"""Requests of many callers in one question: each gets its own rows, and no wait is without an end."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fdml.errors import DataError, RequestRefused
from fdml.serving.asking import AskedRows
from fdml.serving.online.batching import MOST_JOINED, Batcher, joined
from tests.serving.online.served import rows_of
from tests.serving.published import IDS, federation, values_of

VALUES = values_of()


class Questions:
    """Asks a real asker; questions are held back until `let` is set."""

    def __init__(self, error=None):
        self.asker = federation(VALUES)[1]
        self.sizes, self.seconds = [], []
        self.let = threading.Event()
        self.let.set()
        self.error = error
        self.reported = []

    def __call__(self, rows, seconds):
        self.sizes.append(len(rows))
        self.seconds.append(seconds)
        assert self.let.wait(20)
        if self.error is not None:
            raise self.error
        return self.asker.ask(rows)

    def run(self, work, **options):
        async def main(threads):
            return await work(Batcher(self, ["bob", "cid"], threads, report=self.reported.append, **options))

        with ThreadPoolExecutor(4) as threads:
            return asyncio.run(main(threads))


def expected(*rows):
    return [sum(VALUES[name][row, 0] for name in VALUES) for row in rows]


async def refused(batcher, rows, seconds):
    with pytest.raises(RequestRefused) as found:
        await batcher.answers(rows, seconds)
    return found.value.status, str(found.value)


def test_a_lone_request_is_a_question_of_its_own():
    questions = Questions()
    answers = questions.run(lambda batcher: batcher.answers(rows_of(*IDS[:3]), 5.0))
    assert answers.score[:, 0].tolist() == expected(0, 1, 2)
    assert questions.sizes == [3]
    assert 4.0 < questions.seconds[0] <= 5.0


def test_requests_that_come_meanwhile_become_one_question_and_each_gets_its_rows():
    questions = Questions()

    async def work(batcher):
        questions.let.clear()
        first = [asyncio.create_task(batcher.answers(rows_of(IDS[at]), 5.0)) for at in range(2)]
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher.answers(rows_of(*IDS[at : at + 2]), 5.0)) for at in range(2, 30)]
        await asyncio.sleep(0.05)
        questions.let.set()
        return await asyncio.gather(*first, *rest)

    found = questions.run(work)
    assert len(questions.sizes) <= 4
    assert max(questions.sizes) >= 28
    assert [each.score[:, 0].tolist() for each in found[:2]] == [expected(0), expected(1)]
    for at, each in enumerate(found[2:], 2):
        assert each.score[:, 0].tolist() == expected(at, at + 1)
        assert each.lacks.shape == (2, 3)


def test_a_large_request_is_not_joined_with_others():
    questions = Questions()
    many = rows_of(*(IDS[at % 40] for at in range(MOST_JOINED)))

    async def work(batcher):
        questions.let.clear()
        tasks = [asyncio.create_task(batcher.answers(rows, 5.0)) for rows in (rows_of("r1"), rows_of("r2"))]
        await asyncio.sleep(0.02)
        tasks += [asyncio.create_task(batcher.answers(rows, 5.0)) for rows in (rows_of("r3"), many, rows_of("r4"))]
        await asyncio.sleep(0.02)
        questions.let.set()
        return await asyncio.gather(*tasks)

    questions.run(work)
    assert sorted(questions.sizes) == [1, 1, 1, 1, MOST_JOINED]


def test_a_question_has_the_longest_deadline_of_its_requests():
    questions = Questions()

    async def work(batcher):
        questions.let.clear()
        tasks = [asyncio.create_task(batcher.answers(rows_of("r1"), 5.0)) for _ in range(2)]
        await asyncio.sleep(0.02)
        tasks += [asyncio.create_task(batcher.answers(rows_of("r2"), seconds)) for seconds in (2.0, 7.0)]
        questions.let.set()
        return await asyncio.gather(*tasks)

    questions.run(work)
    assert 6.0 < questions.seconds[-1] <= 7.0


def test_a_request_ends_with_its_deadline_and_names_who_was_asked():
    questions = Questions()

    async def work(batcher):
        questions.let.clear()
        began = time.monotonic()
        found = await refused(batcher, rows_of("r1"), 0.1)
        questions.let.set()
        return found, time.monotonic() - began

    (status, message), took = questions.run(work)
    assert (status, message) == (504, "no answer within 0.1 s of bob, cid")
    assert took < 2.0


def test_a_request_that_nobody_waits_for_is_not_asked():
    questions = Questions()

    async def work(batcher):
        questions.let.clear()
        under_way = [asyncio.create_task(batcher.answers(rows_of("r1"), 5.0)) for _ in range(2)]
        await asyncio.sleep(0.02)
        given_up = asyncio.create_task(batcher.answers(rows_of(*IDS[:9]), 5.0))
        await asyncio.sleep(0.02)
        given_up.cancel()
        await asyncio.sleep(0.02)
        questions.let.set()
        await asyncio.gather(*under_way)
        return await batcher.answers(rows_of("r3"), 5.0)

    assert questions.run(work).score[:, 0].tolist() == expected(3)
    assert 9 not in questions.sizes


def test_a_full_queue_refuses_at_once():
    questions = Questions()

    async def work(batcher):
        questions.let.clear()
        tasks = [asyncio.create_task(batcher.answers(rows_of("r1"), 5.0)) for _ in range(2)]
        await asyncio.sleep(0.02)
        tasks.append(asyncio.create_task(batcher.answers(rows_of(*IDS[:9]), 5.0)))
        await asyncio.sleep(0.02)
        found = await refused(batcher, rows_of("r1", "r2"), 5.0)
        questions.let.set()
        await asyncio.gather(*tasks)
        return found

    status, message = questions.run(work, most_waiting=10)
    assert status == 429
    assert "9 rows wait to be asked for, and 10 is the most" in message


def test_an_error_of_the_line_is_that_of_all_its_requests():
    questions = Questions(DataError("the line is broken"))

    async def work(batcher):
        tasks = [asyncio.create_task(batcher.answers(rows_of("r1"), 5.0)) for _ in range(5)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert {str(error) for error in questions.run(work)} == {"the line is broken"}


def test_an_error_that_nobody_foresaw_is_reported_and_ends_no_queue():
    questions = Questions(ZeroDivisionError("secret"))

    async def work(batcher):
        found = await refused(batcher, rows_of("r1"), 5.0)
        questions.error = None
        return found, await batcher.answers(rows_of("r2"), 5.0)

    (status, message), answers = questions.run(work)
    assert status == 500
    assert "secret" not in message
    assert [type(error) for error in questions.reported] == [ZeroDivisionError]
    assert answers.score[:, 0].tolist() == expected(2)


def test_keys_that_lead_on_are_joined_too():
    def keyed(*ids):
        texts = pa.array(ids, pa.large_string())
        return AskedRows(texts, {"bob": pa.array([f"k{each}" for each in ids], pa.large_string())})

    found = joined([keyed("a"), keyed("b", "c")])
    assert found.ids.to_pylist() == ["a", "b", "c"]
    assert found.leads["bob"].to_pylist() == ["ka", "kb", "kc"]
