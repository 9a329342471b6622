"""What the benchmark of default settings compares, on few rows: that it measures what it says, not how fast it is."""

import tomllib

import pytest

from benchmarks.default_times import (
    AT_MOST,
    DEFAULTS,
    Candidate,
    Outcome,
    candidates,
    chosen_models,
    in_turns,
    times_of_best,
    write_home,
)
from benchmarks.speed import make_data
from fdml.errors import SettingsError
from fdml.protocol.agreed_training import agreed_training
from fdml.settings import TrainingSettings

PARTIES = ("p0", "p1", "p2")


def test_one_model_may_be_left_out_and_none_is_made_up():
    assert (chosen_models(""), chosen_models("NN")) == (["LR", "NN"], ["NN"])
    with pytest.raises(SettingsError, match="no model 'FM' here; --only takes LR or NN"):
        chosen_models("FM")


def test_the_first_candidate_sets_nothing_and_no_other_is_like_it():
    found = list(candidates(27_000, 3))
    assert found[0] == Candidate(DEFAULTS)
    assert len({each.name for each in found}) == len(found)
    assert all(each.training for each in found[1:])


@pytest.mark.parametrize("rows", [2_000, 27_000, 2_700_000])
def test_every_candidate_takes_as_many_epochs_as_the_defaults(rows):
    epochs = agreed_training(TrainingSettings(), rows, 3).epochs
    for each in candidates(rows, 3):
        assert agreed_training(TrainingSettings(**each.training), rows, 3).epochs == epochs, each.name


@pytest.mark.parametrize("rows", [27_000, 270_000])
def test_three_exchanges_are_three_blocks_of_an_epoch(rows):
    for each in [each for each in candidates(rows, 3) if "3 exchanges" in each.name]:
        agreed = agreed_training(TrainingSettings(**each.training), rows, 3)
        batches = -(-rows // agreed.batch_size)
        assert -(-batches // agreed.batches_per_block) == 3, each.name


def test_a_home_has_the_settings_of_its_candidate_and_no_others(tmp_path):
    home = tmp_path / "run"
    write_home(home, tmp_path, PARTIES, "mlp", Candidate("some", {"value_bits": 16}, {"l2": 0.5}))
    run = tomllib.loads((home / "run.toml").read_text())
    assert run["training"] == {"value_bits": 16}
    party = tomllib.loads((home / "p1" / "party.toml").read_text())
    assert party["model"] == {"kind": "mlp", "l2": 0.5}
    assert party["data"]["path"] == str(tmp_path / "p1.npz")


def test_the_best_is_the_fastest_of_those_that_are_as_good():
    found = {
        DEFAULTS: [Outcome(2.0, 0.8), Outcome(3.0, 0.8)],
        "faster": [Outcome(1.0, 0.7995), Outcome(2.0, 0.7995)],
        "fastest and worse": [Outcome(0.1, 0.79), Outcome(0.1, 0.79)],
        "slower and better": [Outcome(9.0, 0.9), Outcome(9.0, 0.9)],
    }
    ((name, ratio),) = times_of_best("LR", found).items()
    assert "(faster)" in name
    assert (ratio["min"], ratio["max"], ratio["at_most"]) == (1.5, 2.0, AT_MOST)


def test_where_no_candidate_is_faster_the_defaults_are_the_best():
    found = {DEFAULTS: [Outcome(1.0, 0.8)], "slower": [Outcome(2.0, 0.8)]}
    ((name, ratio),) = times_of_best("NN", found).items()
    assert f"({DEFAULTS})" in name
    assert ratio["median"] == 1.0


@pytest.mark.slow
def test_the_candidates_take_turns_as_processes(tmp_path):
    heard: list[str] = []
    found = in_turns(tmp_path, make_data(1500, "20/20/20"), "LR", 1, heard.append)
    assert list(found) == [each.name for each in candidates(1350, 3)]
    assert all(each.seconds > 0 and 0.4 < each.auc < 1 for (each,) in found.values())
    assert len(heard) == len(found)
    assert not (tmp_path / "run").exists(), "a run's folder goes when it is over"
