"""The benchmark of what cannot be measured here."""

from dataclasses import replace

import pytest

from benchmarks.scale import _KNOWN, MEASURED, _line, exchanges, setups
from fdml.protocol.agreed_training import agreed_training
from fdml.settings import TrainingSettings
from simulator.timed import epoch_of
from simulator.timed_setup import Setup


def test_all_axes_are_there():
    found = list(setups().values())
    for axis in ("rows", "parties", "shards", "round_trip", "lookahead", "line", "server_cores"):
        assert len({getattr(setup, axis) for setup in found}) > 1, axis


def test_exchanges_are_those_of_the_defaults_up_to_a_limit():
    agreed = agreed_training(TrainingSettings(), 1_000_000, 3)
    blocks = -(-1_000_000 // (agreed.batch_size * int(agreed.batches_per_block)))
    assert exchanges(1_000_000, 3) == blocks < 64
    assert exchanges(1_000_000_000, 3) == 64


def test_what_was_measured_is_simulated_within_a_quarter():
    for seconds, setup in _KNOWN.values():
        assert epoch_of(setup, MEASURED).seconds == pytest.approx(seconds, rel=0.25)


def test_a_line_of_the_report_says_what_was_busy():
    setup = replace(Setup(), parties=2, rows=1000, blocks=2)
    line = _line("small", setup, epoch_of(setup, MEASURED))
    assert line["contender"] == f"small: bound by {line['bound_by']}"
    assert line["setup"]["rows"] == 1000
    assert 0.0 <= line["busy"]["server"] <= 1.0
