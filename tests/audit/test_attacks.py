import pytest

from fdml.audit.attacks import ATTACKS, chosen, results
from fdml.audit.result import not_applicable, passed_if
from fdml.errors import SettingsError
from fdml.settings import PrivacySettings
from tests.audit.recorded import small


def test_the_attacks_are_numbered_and_in_order():
    numbers = [int(name.removeprefix("A")) for name in ATTACKS]
    assert numbers == sorted(set(numbers))
    assert {*range(1, 15), 17} <= set(numbers)


@pytest.mark.parametrize(
    ("only", "names"),
    [("A4,A5", ["A4", "A5"]), ("a12, a2 ,", ["A2", "A12"]), (None, list(ATTACKS)), ("A5,A5", ["A5"])],
)
def test_attacks_are_chosen_by_name_in_any_case_and_run_in_order(only, names):
    assert chosen(only) == names


def test_an_attack_that_is_not_there_is_named():
    with pytest.raises(SettingsError, match=r"there is no attack 'A99'; there are A1, A2, .*A12"):
        chosen("A4,A99")


def test_every_attack_says_something_of_every_run():
    """One that has nothing to work on says why."""
    recording = small("ab", privacy=PrivacySettings(server="blind"))
    for name in ("A1", "A2", "A3", "A5", "A7", "A10", "A17"):
        found = list(results(recording, [name]))
        assert found
        for each in found:
            assert each.test == name
            assert each.title
            assert each.view
            assert each.reason
            assert (each.outcome == "NOT APPLICABLE") == (each.score is None)


def test_results_come_in_the_order_asked_for():
    recording = small("ab")
    assert [each.test for each in results(recording, ["A7", "A1"])] == ["A7", "A1"]


# One result


@pytest.mark.parametrize(("passes", "outcome"), [(True, "PASS"), (False, "FAIL")])
def test_a_result_passes_or_fails_and_knows_its_gain(passes, outcome):
    found = passed_if(passes, "A4", "title", "server", score=0.75, baseline=0.5, bar="<= 0.3", reason="why")
    assert (found.outcome, found.gain, found.details) == (outcome, 0.25, {})


@pytest.mark.parametrize(("score", "baseline"), [(None, 0.5), (0.5, None), (None, None)])
def test_without_score_or_baseline_there_is_no_gain(score, baseline):
    found = passed_if(True, "A4", "title", "server", score=score, baseline=baseline, bar="", reason="")
    assert found.gain is None


def test_what_does_not_apply_has_a_reason_and_no_figures():
    found = not_applicable("A4", "title", "server", "nothing to see")
    assert (found.outcome, found.reason) == ("NOT APPLICABLE", "nothing to see")
    assert (found.score, found.baseline, found.gain, found.bar) == (None, None, None, "")
