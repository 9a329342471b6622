"""Workers behind lines: lost tasks are done again, late answers are not heard, errors come back as they were."""

import gc

import numpy as np
import pytest

from fdml.cluster.frames import Frame
from fdml.cluster.lines import ATTEMPTS, LinedWorkers
from fdml.cluster.workers import ThreadWorkers
from fdml.errors import FdmlError, TrainingDiverged, WorkerLost
from tests.cluster.jobs import Doubling, FaultyLine


def tasks(count=5):
    return [Frame({"number": number}, {"x": np.arange(3) + number}) for number in range(count)]


def lined(faults=(), workers=1):
    opened, left = [], list(faults)
    return LinedWorkers(lambda number: FaultyLine(number, left, opened), workers, 1.0), opened


def check(results):
    assert [result.facts["done"] for result in results] == list(range(5))
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.arrays["x"], (np.arange(3) + number) * 2)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_results_come_in_the_order_of_tasks(workers):
    check(lined(workers=workers)[0].map(tasks()))
    check(ThreadWorkers([Doubling() for _ in range(workers)]).map(tasks()))


@pytest.mark.parametrize("fault", ["lost", "old answer"])
def test_a_lost_task_is_done_again_over_a_new_line_and_told(fault):
    workers, opened = lined([None, fault])
    check(workers.map(tasks()))
    assert [line.ended for line in opened] == [True, False]
    (said,) = workers.remarks()
    assert said.startswith("machine 0 ")
    assert f"attempt 1 of {ATTEMPTS}" in said
    assert workers.remarks() == []


def test_a_task_that_is_lost_again_and_again_names_the_machine():
    workers, opened = lined(["lost"] * ATTEMPTS)
    with pytest.raises(WorkerLost, match=r"lost 4 times, at last as machine 0 is gone.*workers\.seconds \(now 1\)"):
        workers.map(tasks(1))
    assert len(opened) == ATTEMPTS
    check(workers.map(tasks()))


def test_an_error_of_a_task_is_raised_as_it_was_and_not_tried_again():
    workers, opened = lined(["TrainingDiverged"])
    with pytest.raises(TrainingDiverged, match=r"^no$"):
        workers.map(tasks(1))
    assert len(opened) == 1


def test_a_name_that_is_no_error_of_fdml_becomes_a_plain_one():
    with pytest.raises(FdmlError, match=r"^no$"):
        lined(["Enum"])[0].map(tasks(1))


def test_closing_ends_all_lines():
    workers, opened = lined(workers=2)
    workers.map(tasks())
    workers.close()
    assert all(line.ended for line in opened)


def test_what_lines_share_says_its_remarks_here_and_is_ended_after_them():
    opened, ended, remarks = [], [], ["a machine is far away"]
    workers = LinedWorkers(
        lambda number: FaultyLine(number, [], opened),
        1,
        1.0,
        remarks=remarks,
        stop=lambda: ended.append([line.ended for line in opened]),
    )
    workers.map(tasks())
    assert workers.remarks() == ["a machine is far away"]
    assert workers.remarks() == remarks == []
    remarks.append("another one")
    assert workers.remarks() == ["another one"]
    workers.close()
    assert ended == [[True]]


def test_workers_that_nobody_holds_any_more_are_ended():
    workers, opened = lined()
    workers.map(tasks())
    del workers
    gc.collect()
    assert opened[0].ended


def test_a_slow_machine_is_named_once():
    workers, _ = lined()
    for _ in range(2):
        workers._name_the_slow([("machine 0", 0.2), ("machine 1", 9.0), ("machine 2", 0.4)])
    assert workers.remarks() == ["machine 1 is slow: a task took 9.0 s, where 0.4 s are usual"]
    workers._name_the_slow([("machine 0", 0.01), ("machine 2", 0.5), ("machine 3", 0.01)])
    assert workers.remarks() == []


class Refusing(Doubling):
    """Fails with one task, and does the others."""

    def run(self, task):
        if task.facts["number"] == 2:
            raise TrainingDiverged("number 2")
        return super().run(task)


def test_an_error_in_a_thread_is_raised_and_the_threads_work_on():
    workers = ThreadWorkers([Refusing(), Refusing()])
    with pytest.raises(TrainingDiverged, match="number 2"):
        workers.map(tasks())
    assert [result.facts["done"] for result in workers.map(tasks(2))] == [0, 1]
    assert workers.remarks() == []
    workers.close()


def test_a_job_of_a_thread_is_used_by_one_task_at_a_time():
    class Alone(Doubling):
        busy = False

        def run(self, task):
            assert not self.busy
            self.busy = True
            result = super().run(task)
            self.busy = False
            return result

    workers = ThreadWorkers([Alone(), Alone(), Alone()])
    for _ in range(20):
        check(workers.map(tasks()))
