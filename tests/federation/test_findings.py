import pytest

from fdml.federation.findings import (
    COMPARED,
    EXPLAINED,
    Brought,
    OtherSchemes,
    found_schemes,
    keep_comparison,
    keep_shares,
    read_comparison,
    read_shares,
)
from fdml.models.shapley import PartyShares
from fdml.monitor.history import EpochRecord, Gain, LearningCurve
from tests.server.run_states import definition_of

SHARES = PartyShares(
    Gain(0.9, 0.88, 0.92),
    0.5,
    {"ann": Gain(0.3, 0.28, 0.32), "bob": Gain(0.1, None, None)},
    {"ann": Gain(0.25, 0.2, 0.3), "bob": Gain(0.05, 0.0, 0.1)},
)
CURVES = [
    LearningCurve("LR", scheme, (EpochRecord(1, 1.0, 0.5, loss, metric),))
    for scheme, loss, metric in (("alone", 0.4, 0.8), ("late fusion", 0.35, 0.85), ("joint", 0.3, 0.9))
]


def test_who_brings_what_is_read_as_it_was_kept(tmp_path):
    assert read_shares(tmp_path) is None
    keep_shares(tmp_path, "ab12", "auc", 240, SHARES)
    assert read_shares(tmp_path) == Brought("ab12", "auc", 240, SHARES.shares, SHARES.without)
    assert (tmp_path / EXPLAINED).stat().st_mode & 0o077 == 0, "figures are made of labels"


@pytest.mark.parametrize("version", ["", "ab12"])
def test_a_comparison_is_of_exactly_these_settings(tmp_path, version):
    run = definition_of().settings
    found = found_schemes("auc", 800, 2, CURVES, version)
    keep_comparison(tmp_path, run, found)
    figures = {"alone": (0.4, 0.8), "late fusion": (0.35, 0.85), "joint": (0.3, 0.9)}
    assert read_comparison(tmp_path, run) == found == OtherSchemes("auc", 800, 2, figures, version)
    other = run.model_copy(update={"training": run.training.model_copy(update={"seed": run.training.seed + 1})})
    assert read_comparison(tmp_path, other) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"run": "x"}', '{"version": 1, "metric": "auc", "rows": "x"}', "null"]
)
def test_a_damaged_file_is_left_out(text, tmp_path):
    for name in (EXPLAINED, COMPARED):
        (tmp_path / name).write_text(text)
    assert read_shares(tmp_path) is None
    assert read_comparison(tmp_path, definition_of().settings) is None


def test_a_folder_that_takes_none_of_it_ends_no_command(tmp_path):
    keep_shares(tmp_path / "not" / "there", "ab12", "auc", 240, SHARES)
    assert read_shares(tmp_path / "not" / "there") is None
