"""docs/quickstart.md and the Python of docs/data.md, typed as they stand, but with one seed in place of three."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fdml.models import losses
from fdml.settings.choices import LOSSES_OF
from tests.docs.fenced import ROOT, block_of, blocks

pytestmark = pytest.mark.slow
PAGE = "docs/quickstart.md"
BY_MAKE = ("make demo", ". .venv/bin/activate")
"""Blocks that set up what the tests have."""
SECONDS = 600.0
PRINTING = [
    block for block in (*blocks(PAGE), *blocks("docs/data.md")) if block.language == "python" and "print(" in block.text
]


def saved():
    """By name, the files that the page says to save: the name stands in the line before the block."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    found = re.findall(r"`([\w/]+\.(?:py|toml))`:\n\n```(?:python|toml)\n(.*?)```", text, re.DOTALL)
    return dict(found)


def typed(command, folder):
    """What a shell prints in a folder, where `fdml` and `python` are those of the tests."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, words in {"fdml": [sys.executable, "-m", "fdml"], "python": [sys.executable]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "1"}
    ended = subprocess.run(
        ["sh", "-ec", command],
        cwd=folder,
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the page."""
    home = tmp_path_factory.mktemp("quickstart")
    for name, text in saved().items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def test_every_command_of_the_quickstart_ends_well(folder):
    found = [block for block in blocks(PAGE) if block.language == "sh" and not block.text.startswith(BY_MAKE)]
    said = [typed(block.text.replace("--seeds 3", "--seeds 1"), folder) for block in found]
    compared = [text for block, text in zip(found, said, strict=True) if "fdml compare" in block.text]
    assert len(compared) == 6
    assert all("joint" in text and "late fusion" in text for text in compared)
    assert {"figures.json", "plots.png"} <= {path.name for path in folder.iterdir()}


def test_the_page_has_the_files_that_its_commands_use():
    assert list(saved()) == [
        *("make_files.py", "make_parties.py", "run/federation.toml", "run/run.toml"),
        *(f"run/{party}/party.toml" for party in ("store", "browser", "security")),
    ]


@pytest.mark.parametrize("block", PRINTING, ids=str)
def test_the_python_of_a_page_runs(block, tmp_path):
    Path(tmp_path, "typed.py").write_text(block.text)
    assert typed("python typed.py", tmp_path).strip()


def test_the_loss_of_the_page_is_one(monkeypatch):
    monkeypatch.setattr(losses, "LOSSES", dict(losses.LOSSES))
    monkeypatch.setitem(LOSSES_OF, "regression", LOSSES_OF["regression"])
    exec(block_of("docs/models.md", "import numpy as np").text, {})
    found = losses.loss_named("gamma")
    score, labels = np.zeros((3, 1)), np.array([0.5, 1.0, 2.0])
    steps = np.array([found.value(score + sign * 1e-6, labels) for sign in (1.0, -1.0)])
    np.testing.assert_allclose(found.gradient(score, labels)[:, 0], (steps[0] - steps[1]) / 2e-6, atol=1e-6)
