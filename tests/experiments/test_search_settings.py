"""tune.toml: the runs that follow from it, and what is refused before anything starts."""

import tomllib

import pytest

from fdml.errors import SettingsError
from fdml.experiments.search_settings import Range, SearchSettings, read_search
from fdml.settings.file import written_table
from tests.federation.homes import write_homes

RUN = 'name = "first"\nlabel_party = "ann"\n[training]\nepochs = 3\nbatch_size = 16\n'
GRID = '[search]\ntraining.epochs = [2, 5]\ntraining.learning_rate = ["auto", 0.1, 0.5]\n'
RANGES = '[search.training]\nepochs = {low = 2, high = 40}\nlearning_rate = {low = 0.001, high = 1.0, scale = "log"}\n'


@pytest.fixture
def home(tmp_path):
    write_homes(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def search_of(home, text, name="rates"):
    (home / "tune.toml").write_text(f'name = "{name}"\n{text}')
    return read_search(home / "tune.toml")


def test_a_grid_has_a_run_for_every_combination_the_first_setting_changing_slowest(home):
    found = search_of(home, GRID)
    assert [each.name for each in found.candidates] == [f"rates-{number}" for number in range(1, 7)]
    values = [tuple(each.changes.values()) for each in found.candidates]
    assert values == [(2, "auto"), (2, 0.1), (2, 0.5), (5, "auto"), (5, 0.1), (5, 0.5)]
    assert [each.run.training.epochs for each in found.candidates] == [2, 2, 2, 5, 5, 5]


def test_every_run_keeps_the_other_settings_and_says_which_search_it_is_of(home):
    for candidate in search_of(home, GRID).candidates:
        assert candidate.run.training.batch_size == 16
        assert candidate.run.search == "rates"
        assert candidate.run.parties == ("ann", "bob", "cid")
        assert candidate.values["training"]["batch_size"] == 16
        assert "name" not in candidate.values


def test_a_range_in_a_grid_is_cut_into_steps(home):
    text = '[search]\ntraining.learning_rate = {low = 0.001, high = 1.0, scale = "log", steps = 4}\n'
    assert [each.changes["training.learning_rate"] for each in search_of(home, text).candidates] == [
        0.001,
        0.01,
        0.1,
        1.0,
    ]
    with pytest.raises(SettingsError, match="needs `steps`"):
        search_of(home, "[search]\ntraining.learning_rate = {low = 0.1, high = 1.0}\n")


def test_a_random_search_follows_from_its_seed_and_more_runs_keep_the_first_ones(home):
    ten, twelve, other = (
        search_of(home, f'method = "random"\nruns = {runs}\nseed = {seed}\n{RANGES}')
        for runs, seed in ((10, 1), (12, 1), (10, 2))
    )
    changes = [each.changes for each in twelve.candidates]
    assert [each.changes for each in ten.candidates] == changes[:10]
    assert [each.changes for each in other.candidates] != changes[:10]
    assert len({tuple(each.values()) for each in changes}) == 12
    for each in changes:
        assert isinstance(each["training.epochs"], int)
        assert 2 <= each["training.epochs"] <= 40
        assert 0.001 <= each["training.learning_rate"] <= 1.0


def test_a_logarithmic_range_draws_as_many_small_numbers_as_large_ones(home):
    found = search_of(home, 'method = "random"\nruns = 200\n' + RANGES)
    small = sum(each.changes["training.learning_rate"] < 0.0316 for each in found.candidates)
    assert 70 <= small <= 130


def test_lists_are_drawn_without_repeats_and_too_many_are_refused(home):
    text = 'method = "random"\nruns = {}\n' + GRID
    assert len({str(each.changes) for each in search_of(home, text.format(6)).candidates}) == 6
    with pytest.raises(SettingsError, match="hardly 7 different settings"):
        search_of(home, text.format(7))


def test_a_party_s_own_model_is_searched_under_its_name(home):
    found = search_of(home, "[search.models.ann]\nl2 = [0.1, 0.2]\n[search.models.bob]\nl2 = [0.3]\n")
    assert [each.models for each in found.candidates] == [
        {"ann": {"l2": 0.1}, "bob": {"l2": 0.3}},
        {"ann": {"l2": 0.2}, "bob": {"l2": 0.3}},
    ]
    assert found.candidates[0].run.model_copy(update={"name": "rates-2"}) == found.candidates[1].run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[search]\ntraining.seed = [1, 2]\n", "search.training.seed would test every run on other rows"),
        ("[search]\nevaluation.holdout = [0.1]\n", "on other rows"),
        ('[search]\nalign = ["ecdh"]\n', "search.align cannot be searched"),
        ('[search]\nparties = [["ann"]]\n', "cannot be searched"),
        ("[search]\ntraining = [1]\n", "cannot be searched"),
        ("[search]\nmodels.ann = [1]\n", "cannot be searched"),
        ("[search]\nmodels.eve.l2 = [1]\n", "'eve' is none of ann, bob, cid"),
        ("[search]\ntraining.epochs = 3\n", "give a list of values"),
        ("[search]\ntraining.epochs = []\n", "give a list of values"),
        ("[search]\n", "is empty"),
        ("[search]\ntraining.epochs = {low = 5, high = 2}\n", "a range from 5 to 2 is empty"),
        ('[search]\ntraining.l = {low = 0, high = 2, scale = "log"}\n', "takes numbers above 0"),
        ("[search]\ntraining.epochs = [2, 0]\n", r"run 'rates-2' of the search \(training.epochs = 0\): .*epochs"),
        ("[search]\ntraining.epoch = [2]\n", "did you mean 'epochs'"),
        ('method = "random"\n[search]\ntraining.epochs = [1]\n', "needs `runs`"),
        ("runs = 5\n" + GRID, "the grid has 6 runs, over 5"),
        ("runs = 1001\n" + GRID, "over 1000"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_name(home, text, words):
    with pytest.raises(SettingsError, match=words):
        search_of(home, text)


def test_a_run_toml_in_its_place_is_refused(home):
    with pytest.raises(SettingsError, match=r"this is a run\.toml; give a tune\.toml"):
        read_search(home / "run.toml")


def test_a_search_needs_a_name_that_can_name_folders(home):
    with pytest.raises(SettingsError, match=r"search name '\.\./up' cannot name a folder"):
        search_of(home, GRID, name="../up")


def test_whole_numbers_stay_whole_and_shares_do_not():
    assert Range(low=2, high=9).is_whole
    assert not Range(low=0, high=1).is_whole
    assert not Range(low=0.5, high=4).is_whole
    assert Range(low=1, high=1000, scale="log").at(0.5) == 32


def test_a_search_in_python_has_the_same_rules():
    found = SearchSettings(name="few", search={"training": {"epochs": [1], "staleness": [0, 1]}})
    assert found.spaces == {"training.epochs": [1], "training.staleness": [0, 1]}


def test_a_written_table_is_read_back_as_it_was():
    values = {"name": "a b", "training": {"epochs": 3, "class_weight": {"a.b": 2.0, "yes": 1e-05}}, "none": None}
    assert tomllib.loads(written_table(values)) == {key: value for key, value in values.items() if key != "none"}
