"""Somebody missing under absent = "calibrated": the others' sum, recalibrated to labelled rows, and always said."""

import json

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.models.calibration import calibrate
from fdml.serving.absence import AbsenceCalibrations, LabelledRows
from fdml.serving.asking import AskedRows
from fdml.settings.serving import ServingSettings
from tests.serving.published import ask, asker_of, publication_of, run_of, texts, values_of

ROWS = 400
IDS = tuple(f"r{number}" for number in range(ROWS))
RUN = run_of(serving=ServingSettings(absent="calibrated"))


def labels_of(values):
    """Drawn by the probability that the sum of all parts says."""
    chance = 1.0 / (1.0 + np.exp(-sum(values.values())[:, 0]))
    return (np.random.default_rng(5).random(ROWS) < chance).astype(float)


@pytest.fixture
def values():
    return {name: 2.0 * each for name, each in values_of(rows=ROWS).items()}


def calibrated_asker(values, *, missing=(), run=RUN, ids=None, path=None):
    """An asker of the label party that has labels of all rows; `ids` are other rows that a party holds."""
    held = {name: (ids or {}).get(name, IDS) for name in values}
    found = {
        name: publication_of(name, held[name], each[[IDS.index(row) for row in held[name]]], run=run)
        for name, each in values.items()
    }
    asker = asker_of(found, "ann", missing=missing)
    labels = RowSet({}, labels_of(values), np.ones(ROWS))

    def sample(most):
        return LabelledRows(AskedRows(texts(IDS[:most])), labels.take(np.arange(min(most, ROWS))))

    asker.calibration_without = AbsenceCalibrations(asker, sample, path)
    return asker


def expected(values, missing):
    """The calibration of the others' sum to all labels, by the same rule."""
    score = sum(each for name, each in values.items() if name not in missing)
    return calibrate("logistic", score, RowSet({}, labels_of(values), np.ones(ROWS))).apply(score)


@pytest.mark.parametrize("missing", [("bob",), ("cid",), ("bob", "cid")])
def test_a_missing_party_leaves_a_recalibrated_score_that_says_so(values, missing):
    answers = ask(calibrated_asker(values, missing=missing), IDS[:10])
    assert answers.has_score.all()
    assert answers.score.tolist() == pytest.approx(expected(values, missing)[:10], abs=1e-9)
    assert answers.missing_text(answers.lacks[0]) == ",".join(missing)
    assert all("not standing by" in answers.absent[name] for name in missing)


def test_with_all_there_the_score_is_as_ever(values):
    answers = ask(calibrated_asker(values), IDS[:5])
    assert answers.score.tolist() == sum(values.values())[:5].tolist()
    assert not answers.lacks.any()


def test_the_recalibrated_score_is_better_than_the_bare_sum_of_the_others(values):
    labels = labels_of(values)
    without = expected(values, ("cid",))[:, 0]
    bare = (values["ann"] + values["bob"])[:, 0]

    def loss(score):
        return np.mean(np.logaddexp(0.0, score) - labels * score)

    assert loss(without) < loss(bare)
    found = ask(calibrated_asker(values, missing=("cid",)), IDS).score[:, 0]
    assert loss(found) == pytest.approx(loss(without))


def test_rows_that_a_party_does_not_hold_are_read_without_it_and_the_others_as_ever(values):
    asker = calibrated_asker(values, ids={"bob": IDS[5:]})
    answers = ask(asker, [IDS[0], IDS[10]])
    assert answers.score[1].tolist() == sum(values.values())[10].tolist()
    assert answers.score[0, 0] == pytest.approx(float(expected(values, ("bob",))[0, 0]), abs=1e-9)
    assert answers.missing_text(answers.lacks[0]) == "bob"
    assert answers.missing_text(answers.lacks[1]) == ""


def test_a_row_that_the_asker_itself_does_not_hold_is_read_without_it(values):
    asker = calibrated_asker(values, ids={"ann": IDS[5:]})
    answers = ask(asker, [IDS[0]])
    assert answers.has_score.all()
    assert answers.missing_text(answers.lacks[0]) == "ann"


def test_a_row_that_nobody_holds_has_no_score(values):
    answers = ask(calibrated_asker(values), ["stranger"])
    assert not answers.has_score.any()


def test_a_calibration_is_kept_and_used_when_it_can_no_longer_be_fitted(values, tmp_path):
    path = tmp_path / "absence.json"
    first = ask(calibrated_asker(values, missing=("cid",), path=path), IDS[:3])
    assert json.loads(path.read_text())["without"].keys() == {"cid"}
    again = calibrated_asker(values, missing=("cid",), path=path)
    again.calibration_without._labelled = lambda _: pytest.fail("it was kept")
    assert ask(again, IDS[:3]).score.tolist() == first.score.tolist()


def test_a_damaged_or_older_file_is_fitted_again(values, tmp_path):
    path = tmp_path / "absence.json"
    expected_scores = ask(calibrated_asker(values, missing=("cid",)), IDS[:3]).score.tolist()
    for content in (
        "no json",
        json.dumps({"layout": "fdml absence 1", "version": "other", "without": {"cid": [9.0, [9.0]]}}),
    ):
        path.write_text(content)
        assert ask(calibrated_asker(values, missing=("cid",), path=path), IDS[:3]).score.tolist() == expected_scores


def test_all_single_absences_can_be_fitted_while_everybody_is_there(values, tmp_path):
    asker = calibrated_asker(values, path=tmp_path / "absence.json")
    assert asker.calibration_without.fit_single() == []
    assert json.loads((tmp_path / "absence.json").read_text())["without"].keys() == {"ann", "bob", "cid"}


def test_too_few_labelled_rows_leave_a_row_without_a_score(values):
    asker = calibrated_asker(values, missing=("cid",))
    few = RowSet({}, labels_of(values)[:20], np.ones(20))
    asker.calibration_without = AbsenceCalibrations(asker, lambda _: LabelledRows(AskedRows(texts(IDS[:20])), few))
    answers = ask(asker, IDS[:2])
    assert not answers.has_score.any()
    assert answers.missing_text(answers.lacks[0]) == "cid"


def test_an_asker_without_labels_gets_no_score_without_a_party(values):
    run = run_of(serving=ServingSettings(absent="calibrated", may_ask=("ann", "bob")))
    found = {name: publication_of(name, IDS, each, run=run) for name, each in values.items()}
    answers = ask(asker_of(found, "bob", missing=("cid",)), IDS[:2])
    assert not answers.has_score.any()
    assert ask(asker_of(found, "bob"), IDS[:2]).score.tolist() == sum(values.values())[:2].tolist()


def test_labelled_rows_that_the_asker_no_longer_holds_are_not_fitted_to(values):
    """Their own part is not in the sum, which would bend scale and offset."""
    kept = IDS[100:]
    answers = ask(calibrated_asker(values, missing=("cid",), ids={"ann": kept}), kept[:5])
    rows = np.arange(100, ROWS)
    score = (values["ann"] + values["bob"])[rows]
    fitted = calibrate("logistic", score, RowSet({}, labels_of(values)[rows], np.ones(len(rows))))
    assert answers.score.tolist() == pytest.approx(fitted.apply(score[:5]), abs=1e-9)
