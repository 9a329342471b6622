"""Chaos 6: a command whose output goes nowhere does its work to the end."""

import os
import subprocess
import sys

import pytest

from fdml.cli.lossy_output import LossyOutput
from fdml.cli.output import echo, stderr
from fdml.monitor.terminal import print_line

PRINTING = """
import sys
from fdml.cli.lossy_output import OUTPUTS, LossyOutput
from fdml.cli.output import echo, stderr, stdout
from fdml.monitor.terminal import print_line
for number in range(3000):
    echo(f"line {number} " + "x" * 60)
    print_line(stderr, f"remark {number}")
open(sys.argv[1], "w").write("done")
for name in OUTPUTS:
    LossyOutput(name).settle()
"""


def run_with(output, path):
    """Print much to an output that takes nothing."""
    return subprocess.run(
        [sys.executable, "-c", PRINTING, str(path)], stdout=output, stderr=output, timeout=60, check=False
    ).returncode


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no device that is always full")
def test_a_full_disk_behind_the_output_changes_nothing(tmp_path):
    with open("/dev/full", "w") as full:
        assert run_with(full, tmp_path / "done") == 0
    assert (tmp_path / "done").read_text() == "done"


@pytest.mark.slow
def test_a_broken_pipe_changes_nothing(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    assert run_with(writing, tmp_path / "done") == 0
    os.close(writing)
    assert (tmp_path / "done").read_text() == "done"


def test_an_output_that_is_closed_changes_nothing(tmp_path):
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", PRINTING, str(tmp_path / "done")],
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert (tmp_path / "done").read_text() == "done"


def test_what_can_be_written_is_written(capsys):
    echo("figures")
    print_line(stderr, "a remark")
    assert capsys.readouterr() == ("figures\n", "a remark\n")


def test_it_is_the_stream_of_now(monkeypatch, tmp_path):
    output = LossyOutput("stdout")
    with (tmp_path / "one").open("w") as one:
        monkeypatch.setattr(sys, "stdout", one)
        assert not output.isatty()
        assert output.fileno() == one.fileno()
        assert output.encoding.lower() == "utf-8"
        assert output.write("text") == 4
        output.flush()
    assert (tmp_path / "one").read_text() == "text"
    assert not output.isatty(), "the stream is closed"
    output.write("lost")
    output.flush()
    output.settle()
    monkeypatch.setattr(sys, "stdout", None)
    assert not output.isatty()
    assert output.encoding == "utf-8"
    assert output.write("lost") == 4
    output.flush()
    output.settle()
    with pytest.raises(OSError, match="there is no stdout"):
        output.fileno()
