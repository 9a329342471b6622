"""The benchmarks' command, in a process of its own."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def benchmarks(*words):
    command = [sys.executable, "-m", "benchmarks", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_an_unknown_benchmark_lists_the_known_ones():
    run = benchmarks("colonels")
    assert run.returncode == 1
    assert "kernels" in run.stderr


def test_one_seed_of_the_protocol_can_be_run_again(tmp_path):
    run = benchmarks("protocol", "--first", 4711, "--seeds", 1, "--json", tmp_path / "seed.json")
    assert run.returncode == 0, run.stderr
    assert "4711" in run.stdout
    assert json.loads((tmp_path / "seed.json").read_text())["results"][0]["contender"] == "seeds"


def test_an_option_of_another_benchmark_is_refused():
    run = benchmarks("kernels", "--seeds", 1)
    assert run.returncode == 1
    assert "'kernels' takes no --seeds" in run.stderr
