"""Actors of a real Ray cluster do what threads and processes do, whoever is killed."""

import contextlib
import os
import re
import signal
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fdml.cluster.frames import Frame
from fdml.cluster.lines import LineLost
from fdml.cluster.ray_workers import RayGateway, ray_workers
from fdml.cluster.settings import WorkersSettings
from fdml.errors import SettingsError, TrainingDiverged
from tests.cluster import grouped
from tests.cluster.learners import ONE_THREAD, PROCESSES, ROWS, digest, learner, setup_of, update
from tests.cluster.ray_cluster import ENVIRONMENT, children, is_running, ray_nodes, title, wait_until
from tests.cluster.tables import sample
from tests.cluster.test_reading import facts, of_many, of_one, part_folders
from tests.cluster.test_worker_process import same, setup_frame, tasks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    with ray_nodes("second", "third") as found:
        yield found


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", ENVIRONMENT["RAY_AUTH_TOKEN"])


def settings(cluster, count=3):
    return WorkersSettings(kind="ray", address=cluster.address, count=count, seconds=60.0)


def gateways():
    """The processes that speak to Ray for this one."""
    return [pid for pid in children(os.getpid()) if "fdml.cluster.ray_process" in title(pid)]


def place_of(workers, number):
    """The node and the process of a worker."""
    text = workers._slots[number].line.machine.removeprefix(f"worker {number} (").removesuffix(")")
    node, _, process = text.partition(", process ")
    return node.removesuffix(" at 127.0.0.1"), int(process)


def places(workers):
    return {number: place_of(workers, number) for number in range(len(workers._slots))}


def expected_digest(seeds):
    calm = learner(ONE_THREAD)
    for seed in seeds:
        update(calm, seed)
    return digest(calm)


def said(learner):
    return [event.text for event in learner.events()]


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "it is gone")


def test_actors_do_the_tasks_and_raise_what_a_task_raised(cluster, tmp_path):
    asked, expected = tasks(shards=3)
    workers = ray_workers(setup_frame(tmp_path), 3, 60.0, cluster.address)
    for result, change in zip(workers.map(asked), expected(), strict=True):
        same(result, change)
    with pytest.raises(TrainingDiverged, match=r"fewer model\.shards"):
        workers.map(tasks(rate=1e30)[0])
    for result, change in zip(workers.map(asked), expected(), strict=True):
        same(result, change)
    assert workers.remarks() == []
    found = places(workers)
    assert {node for node, _ in found.values()} == {"head", "second", "third"}
    started = [process for _, process in found.values()] + gateways()
    workers.close()
    wait_until(lambda: not any(is_running(pid) for pid in started), "actors and gateway have ended")


def test_the_result_is_that_of_threads_and_processes_and_no_worker_that_is_killed_changes_it(cluster):
    by_processes, by_ray = learner(PROCESSES), learner(settings(cluster))
    for seed in range(3):
        if seed == 1:
            node, process = place_of(by_ray._workers, 0)
            kill(process)
        if seed == 2:
            (gateway,) = gateways()
            kill(gateway)
        for each in (by_processes, by_ray):
            update(each, seed)
    assert digest(by_ray) == digest(by_processes) == expected_digest(range(3))
    first, *others = said(by_ray)
    assert f"worker 0 ({node} at 127.0.0.1, process {process}) is gone: its process or its node has ended" in first
    assert "attempt 1 of 4" in first
    assert others
    assert all("the process that speaks to Ray has ended" in text for text in others), others
    for each in (by_processes, by_ray):
        each.close()


def test_200_files_have_the_bits_of_one_file_also_where_a_node_is_lost_while_parts_are_made(cluster, tmp_path):
    table, said = sample(), []
    many = of_many(table, tmp_path, 200, settings(cluster), said.append)
    wait_until(lambda: cluster.workers() == [], "those that have learned have ended")
    assert said == []
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(_lose, cluster, "third", tmp_path)
        many.make()
        made = killed.result()
    assert 20 <= made < 199
    assert facts(many) == facts(of_one(table, tmp_path))
    (text,) = [text for text in said if "its task is done again" in text]
    assert re.match(r"worker \d( \(third at 127\.0\.0\.1, process \d+\))? is gone: ", text), text
    assert "(attempt 1 of 4)" in text


def _lose(cluster, name, folder):
    """End a node that has a worker while parts are made: how many there were then."""
    wait_until(lambda: name in map(cluster.node_of, cluster.workers()), f"{name} has a worker")
    wait_until(lambda: len(part_folders(folder)) >= 20, "some parts are there")
    made = len(part_folders(folder))
    cluster.kill(name)
    return made


def test_column_groups_have_the_bits_of_threads(cluster):
    by_threads, by_ray = (grouped.learner(each, held_out=ROWS) for each in (ONE_THREAD, settings(cluster, count=2)))
    for each in (by_threads, by_ray):
        update(each, 0)
    assert digest(by_ray) == digest(by_threads)
    assert by_ray.predict(0, 600).tobytes() == by_threads.predict(0, 600).tobytes()
    assert by_ray.predict_held_out().tobytes() == by_threads.predict_held_out().tobytes()
    assert by_ray.events() == []
    assert len(places(by_ray._workers)) == 2
    for each in (by_threads, by_ray):
        each.close()


def test_a_node_that_ray_takes_for_alive_and_that_is_dead_gets_no_new_worker(cluster):
    cluster.add("fourth")
    each = learner(settings(cluster, count=4))
    found = places(each._workers)
    cluster.kill_raylet("fourth")
    killed = {number: process for number, (node, process) in found.items() if node != "fourth"}
    assert killed
    for process in killed.values():
        kill(process)
    update(each, 0)  # long before Ray knows, which takes 15 s, unless this machine is very busy
    assert digest(each) == expected_digest([0])
    new = {number: place for number, place in places(each._workers).items() if place != found[number]}
    assert killed.keys() <= new.keys()
    assert "fourth" not in {node for node, _ in new.values()}
    each.close()


def test_a_worker_that_does_not_answer_in_time_is_replaced_on_another_node(cluster, tmp_path):
    asked, expected = tasks(shards=1)
    workers = ray_workers(setup_frame(tmp_path), 1, 60.0, cluster.address)
    workers.map(asked)
    node, process = place_of(workers, 0)
    workers._seconds = 10.0  # also of the worker that takes its place, on a busy machine
    os.kill(process, signal.SIGSTOP)
    (result,) = workers.map(asked)
    with contextlib.suppress(ProcessLookupError):  # Ray may have ended it by now
        os.kill(process, signal.SIGCONT)
    same(result, expected()[0])
    (text,) = workers.remarks()
    assert f"({node} at 127.0.0.1, process {process}) has not answered within 10 s" in text
    assert place_of(workers, 0)[0] != node
    workers.close()


def test_rows_that_a_node_does_not_see_are_sent_to_it(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = setup_of("linear", optimizer="adam", l2=1e-4).frame(ROWS, tmp_path / "rows")
    asked, expected = tasks(shards=2)
    workers = ray_workers(_relative(frame), 2, 60.0, cluster.address)  # from the gateway's folder, not from theirs
    for result, change in zip(workers.map(asked), expected(), strict=True):
        same(result, change)
    texts = workers.remarks()
    sent = sum(path.stat().st_size for path in (tmp_path / "rows").iterdir()) / 1e6
    assert len(texts) == 2
    assert all(
        text.endswith(f"does not see the party's block store: {sent:.1f} MB of rows were sent to it") for text in texts
    )
    workers.close()


def _relative(frame):
    rows = {
        name: {**place, "file": f"../rows/{Path(place['file']).name}"}
        if isinstance(place, dict) and "file" in place
        else place
        for name, place in frame.facts["rows"].items()
    }
    return Frame({**frame.facts, "rows": rows})


def test_another_version_of_what_results_depend_on_is_refused(cluster, tmp_path, monkeypatch):
    (tmp_path / "path" / "scipy-0.0.1.dist-info").mkdir(parents=True)
    (tmp_path / "path" / "scipy-0.0.1.dist-info" / "METADATA").write_text("Name: scipy\nVersion: 0.0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    workers = ray_workers(setup_frame(tmp_path), 1, 60.0, cluster.address)
    with pytest.raises(SettingsError, match=r"at 127\.0\.0\.1 has scipy [\d.]+, not 0\.0\.1; install the same on all"):
        workers.map(tasks(shards=1)[0])
    workers.close()


def test_a_set_up_that_cannot_work_and_an_actor_that_does_not_start_are_lost_with_what_is_known(cluster):
    gateway = RayGateway(cluster.address, Frame({"job": "none"}), 60.0)
    with pytest.raises(LineLost, match=r"^failed with KeyError: 'none'$"):
        gateway.line(0)
    gateway._seconds = 0.1
    with pytest.raises(LineLost, match=r"was not started by Ray \(is there a node with a free CPU\?\) within 0 s"):
        gateway.line(0)
    gateway.stop()


def test_without_a_cluster_or_its_token_the_error_says_so(cluster, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nowhere = RayGateway(f"127.0.0.1:{port}", Frame({"job": "shards"}), 30.0)
    with pytest.raises(LineLost, match=rf"has no line to Ray at 127\.0\.0\.1:{port}: nothing answers at"):
        nowhere.line(0)
    nowhere.stop()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    stranger = RayGateway(cluster.address, Frame({"job": "shards"}), 1.0)
    with pytest.raises(LineLost, match=r"had no line to Ray at .* within 1 s: .*token is missing or incorrect"):
        stranger.line(0)
    stranger.stop()
    assert gateways() == []
