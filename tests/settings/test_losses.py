"""The loss of a run: which fit a task, and the level of a quantile."""

import pytest

from fdml.errors import SettingsError
from fdml.settings import RunSettings, run_hash
from fdml.settings.hash import training_hash
from fdml.settings.losses import loss_for, split_loss, thousandths_of


def run(**values):
    return RunSettings(parties=("a", "b"), label_party="a", **{"task": "regression", **values})


@pytest.mark.parametrize(
    ("quantile", "name"), [(None, "quantile"), (0.5, "quantile"), (0.9, "quantile(0.9)"), (0.001, "quantile(0.001)")]
)
def test_the_level_is_in_the_name_of_a_quantile_but_for_the_median(quantile, name):
    assert run(loss="quantile", quantile=quantile).chosen_loss == name
    assert loss_for("regression", name) == name, "a name that was found stays as it is"
    assert split_loss(name) == ("quantile", 0.5 if quantile is None else quantile)
    assert thousandths_of(name) == round(1000 * (0.5 if quantile is None else quantile))


@pytest.mark.parametrize("name", ["poisson", "squared", "quantile(2)", "quantile()", "quantile(0.9", "my loss"])
def test_other_names_have_no_level(name):
    assert split_loss(name) == (name, None)
    assert thousandths_of(name) is None


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0, 0.1234])
def test_a_level_that_is_none_is_refused_with_an_example(level):
    with pytest.raises(SettingsError, match=r"quantile is .*between 0 and 1 with at most three decimals, 0\.9 for"):
        run(loss="quantile", quantile=level)


def test_a_level_without_a_quantile_is_refused():
    with pytest.raises(SettingsError, match=r"quantile is 0\.9, and loss 'poisson' has none; set loss = \"quantile\""):
        run(loss="poisson", quantile=0.9)
    with pytest.raises(SettingsError, match="loss 'squared' has none"):
        run(quantile=0.5)


@pytest.mark.parametrize(("task", "loss"), [("binary", "poisson"), ("multiclass", "quantile"), ("regression", "gamma")])
def test_a_loss_that_does_not_fit_the_task_is_refused_with_those_that_do(task, loss):
    with pytest.raises(SettingsError, match=f"loss '{loss}' does not fit task '{task}'; it takes "):
        run(task=task, loss=loss)


@pytest.mark.parametrize("loss", ["poisson", "quantile"])
def test_labels_stay_private_only_with_losses_of_classes(loss):
    with pytest.raises(SettingsError, match=f"cannot train with loss '{loss}'; it takes logistic or softmax"):
        run(loss=loss, privacy={"labels": "private"})


def test_another_level_is_another_run():
    runs = [run(loss="quantile", quantile=level) for level in (0.1, 0.9)]
    assert run_hash(runs[0]) != run_hash(runs[1])
    assert training_hash(runs[0]) != training_hash(runs[1])


RANKED = {"parties": ("shop", "bank"), "label_party": "shop", "loss": "pairwise"}


def test_labels_that_are_shared_are_refused_with_what_to_write():
    with pytest.raises(SettingsError, match='labels = "private"'):
        RunSettings(**RANKED)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"training": {"joint": "fm"}}, "joint"),
        ({"training": {"absence": 0.2}}, "absence"),
        ({"training": {"exchanges": 4}}, "exchanges"),
        ({"training": {"class_weight": "balanced"}}, "class_weight"),
        ({"task": "multiclass"}, "pairwise"),
        ({"serving": {"ask": "unsure"}}, "ask"),
    ],
)
def test_what_cannot_be_ranked_is_refused(wrong, named):
    with pytest.raises((SettingsError, ValueError), match=named):
        RunSettings(**{**RANKED, "privacy": {"labels": "private"}, **wrong})


@pytest.mark.parametrize("epsilon", [0.5, 2.0, "off"])
@pytest.mark.parametrize("server", ["plain", "blind"])
def test_a_ranking_goes_with_any_label_epsilon_and_server(epsilon, server):
    run = RunSettings(**RANKED, privacy={"labels": "private", "label_epsilon": epsilon, "server": server})
    assert run.chosen_loss == "pairwise"
    assert run.task == "binary"
