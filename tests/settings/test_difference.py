import pytest

from fdml.settings import PrivacySettings, RunSettings, TrainingSettings
from fdml.settings.difference import difference_text, differences
from fdml.settings.evaluation import EvaluationSettings


def run(**values):
    return RunSettings(**{"parties": ("bank", "telco"), "label_party": "bank", **values})


def only(ours, theirs):
    (found,) = differences(ours, theirs)
    return found.setting, found.ours, found.theirs


def test_equal_settings_have_no_difference():
    assert differences(run(), run()) == ()
    assert difference_text(differences(run(), run()), "here", "at the server") == ""


def test_a_setting_is_named_by_its_place_with_both_values():
    ours, theirs = (run(training=TrainingSettings(epochs=epochs)) for epochs in (10, 20))
    text = difference_text(differences(ours, theirs), "here", "at the server")
    assert text == "training.epochs is 10 here, 20 at the server"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"task": "binary"}, {"task": "regression"}, ("task", '"binary"', '"regression"')),
        (
            {"evaluation": EvaluationSettings(stop_after=3)},
            {},
            ("evaluation.stop_after", "3", "not set"),
        ),
        (
            {"training": TrainingSettings(class_weight={"yes": 2.0})},
            {"training": TrainingSettings(class_weight={"yes": 3.0})},
            ("training.class_weight.yes", "2.0", "3.0"),
        ),
        (
            {"privacy": PrivacySettings(labels="private")},
            {},
            ("privacy.labels", '"private"', '"shared"'),
        ),
        ({"keys": {"telco": ("city",)}}, {}, ("keys.telco", '["city"]', "not set")),
    ],
)
def test_values_are_written_as_the_file_has_them(ours, theirs, expected):
    assert only(run(**ours), run(**theirs)) == expected


def test_parties_in_another_order_differ():
    setting, ours, theirs = only(run(), run(parties=("telco", "bank")))
    assert (setting, ours, theirs) == ("parties", '["bank", "telco"]', '["telco", "bank"]')


def test_a_table_in_place_of_a_word_names_both():
    ours = run(training=TrainingSettings(class_weight="balanced"))
    theirs = run(training=TrainingSettings(class_weight={"yes": 2.0}))
    found = {each.setting: (each.ours, each.theirs) for each in differences(ours, theirs)}
    assert found == {
        "training.class_weight": ('"balanced"', "not set"),
        "training.class_weight.yes": ("not set", "2.0"),
    }


def test_a_long_value_is_cut_and_many_differences_are_counted():
    ours = run(name="a", training=TrainingSettings(epochs=1, batch_size=1, passes=2, seed=1, lookahead=3))
    theirs = run(name="b", parties=("bank", *(f"party-{number}" for number in range(40))))
    found = differences(ours, theirs)
    assert max(len(each.theirs) for each in found) == 80
    text = difference_text(found, "here", "at party 'telco'")
    assert text.endswith("; and 2 more settings differ")
    assert text.startswith('name is "a" here, "b" at party \'telco\'; ')
