"""Two checkouts compared in turns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import against
from benchmarks.against import BAR, alternate, fastest, opened, ratios, run
from fdml.errors import FdmlError, SettingsError

DRIVER = """
import json, os, sys
from pathlib import Path
with open("processes", "a") as log:
    log.write(f"{os.getpid()} ")
print(json.dumps(["work", f"only in {Path.cwd().name}"]), flush=True)
for line in sys.stdin:
    with open("asked", "a") as log:
        log.write(line)
    print(1.5, flush=True)
"""


class Stopwatch:
    """A tree that takes the same time for everything, and notes when it was asked."""

    def __init__(self, name, seconds, log):
        self.names = ["one", "other", f"only in {name}"]
        self._name, self._seconds, self._log = name, seconds, log

    def seconds(self, work):
        self._log.append((work, self._name))
        return self._seconds


@pytest.fixture
def log():
    return []


@pytest.fixture
def trees(log):
    return {"old": Stopwatch("old", 2.0, log), "new": Stopwatch("new", 2.1, log)}


def test_the_trees_take_turns_and_the_one_that_begins_changes(trees, log):
    assert fastest(trees, "one") == {"old": 2.0, "new": 2.1}
    firsts = [first for (_, first), _ in zip(log[::2], log[1::2], strict=True)]
    assert firsts == ["new", "old"] * (len(log) // 4)
    assert {work for work, _ in log} == {"one"}


def test_the_first_run_does_not_count_and_of_the_others_the_fastest_does(log):
    times = iter([0.5, 3.0, 2.0, 4.0, 5.0, 6.0])
    tree = Stopwatch("old", 0.0, log)
    tree.seconds = lambda _: next(times)
    assert fastest({"old": tree}, "one") == {"old": 2.0}


def test_every_round_has_new_processes_and_what_only_one_tree_has_is_not_compared(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    monkeypatch.setattr(against, "_DRIVER", driver)
    folders = {name: tmp_path / name for name in ("old", "new")}
    for folder in folders.values():
        folder.mkdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    seconds = alternate(folders, cache, (10, 10), 3, str)
    assert seconds == {"work": {"old": [1.5] * 3, "new": [1.5] * 3}}
    assert len(set((cache / "old" / "processes").read_text().split())) == 3
    assert alternate(folders, cache, (10, 10), 1, str, "wor") == {"work": {"old": [1.5], "new": [1.5]}}
    assert alternate(folders, cache, (10, 10), 1, str, "gRPC") == {}


def test_a_ratio_is_formed_inside_each_round():
    found = ratios({"work": {"old": [1.0, 4.0, 2.0], "new": [1.1, 4.0, 1.0]}})
    assert found["work: new/old time"] == {"median": 1.0, "min": 0.5, "max": 1.1, "at_most": BAR}


def test_a_tree_answers_from_a_process_that_is_not_in_its_folder(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    monkeypatch.setattr(against, "_DRIVER", driver)
    folder = tmp_path / "tree"
    folder.mkdir()
    with opened(folder, tmp_path / "cache", (10, 10)) as tree:
        assert tree.names == ["work", "only in cache"]
        assert tree.seconds("work") == 1.5
    assert (tmp_path / "cache" / "asked").read_text() == "work\n"
    assert list(folder.iterdir()) == [], "the checkout stays as it is"


def test_a_tree_whose_workloads_fail_is_named(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text("raise SystemExit(3)")
    monkeypatch.setattr(against, "_DRIVER", driver)
    with pytest.raises(FdmlError, match="tree"), opened(tmp_path / "tree", tmp_path / "cache", (10, 10)):
        pass


@pytest.mark.parametrize("folder", [None, Path("nowhere")])
def test_without_an_older_checkout_there_is_nothing_to_compare(folder):
    with pytest.raises(SettingsError, match="no checkout of fdml"):
        run(str, old=folder)


def test_a_name_that_no_workload_has_is_an_error(tmp_path, monkeypatch):
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    monkeypatch.setattr(against, "_DRIVER", driver)
    with pytest.raises(SettingsError, match="no workload of both checkouts has 'gRPC' in its name"):
        run(str, old=against._OWN, rounds=1, only="gRPC")


@pytest.mark.slow
def test_every_workload_of_this_checkout_gives_seconds(tmp_path):
    here = Path(against.__file__).parents[1]
    driver = subprocess.run(
        [sys.executable, str(here / "benchmarks" / "against_driver.py"), "2000", "4000"],
        input="exchange, in process, 16 batches per block\nspeed, LR joint\nspeed, NN pooled\n",
        env={**os.environ, "PYTHONPATH": str(here)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    names, *seconds = map(json.loads, driver.stdout.splitlines())
    assert len(names) == 10
    assert all(each > 0 for each in seconds)
    assert len(seconds) == 3
