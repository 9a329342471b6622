"""ask = "unsure": the label party answers alone where it is sure, and the answer says which rows were asked for."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import SettingsError
from fdml.models.calibration import Calibration, calibrate
from fdml.serving.absence import AbsenceCalibrations, LabelledRows
from fdml.serving.asking import AskedRows
from fdml.serving.batch import AskedTable, predict_batch
from fdml.serving.column import Column
from fdml.serving.unsure import is_unsure
from fdml.settings.serving import ServingSettings
from tests.serving.published import IDS as FEW
from tests.serving.published import (
    answerer_of,
    ask,
    asker_of,
    codes_of,
    federation,
    keys_of,
    publication_of,
    run_of,
    texts,
    values_of,
)
from tests.serving.test_absence import IDS, ROWS, labels_of

RUN = run_of(serving=ServingSettings(ask="unsure"))


class Asked:
    """A line that writes down how many rows it was asked for."""

    def __init__(self, line):
        self._line, self.questions = line, 0

    def exchange(self, questions, seconds):
        self.questions += len(questions)
        return self._line.exchange(questions, seconds)


@pytest.fixture(scope="module")
def values():
    return {name: 3.0 * each for name, each in values_of(rows=ROWS).items()}


def unsure_asker(values, *, run=RUN, missing=(), path=None, held=IDS):
    found = {name: publication_of(name, IDS, each, run=run) for name, each in values.items() if name != "ann"}
    found = {"ann": publication_of("ann", held, values["ann"][: len(held)], run=run), **found}
    asker = asker_of(found, "ann", missing=missing)
    labels = RowSet({}, labels_of(values), np.ones(ROWS))

    def sample(most):
        return LabelledRows(AskedRows(texts(IDS[:most])), labels.take(np.arange(min(most, ROWS))))

    asker.calibration_without = AbsenceCalibrations(asker, sample, path)
    return asker


def alone_of(values):
    """The label party's own part, read for the absence of all others, and its probability."""
    score = calibrate("logistic", values["ann"], RowSet({}, labels_of(values), np.ones(ROWS))).apply(values["ann"])
    return score[:, 0], 1.0 / (1.0 + np.exp(-score[:, 0]))


def test_outside_the_band_it_answers_alone_and_inside_it_jointly(values):
    answers = ask(unsure_asker(values), IDS)
    alone, chance = alone_of(values)
    inside = (chance > 0.1) & (chance < 0.9)
    assert 0 < inside.sum() < ROWS
    assert answers.asked.tolist() == inside.tolist()
    assert answers.score[inside].tolist() == sum(values.values())[inside].tolist(), "as if all had been asked"
    assert answers.score[~inside, 0] == pytest.approx(alone[~inside], abs=1e-9)
    assert answers.has_score.all()
    assert not answers.lacks[inside].any()
    assert answers.lacks[~inside].tolist() == [[False, True, True]] * int((~inside).sum())


def test_the_answer_says_who_answered_and_that_nobody_is_missing(values):
    answers = ask(unsure_asker(values), IDS)
    patterns, which = answers.patterns()
    told = [(answers.answered_text(each), answers.missing_text(each), answers.why_text(each)) for each in patterns]
    assert {told[at] for at, asked in zip(which, answers.asked, strict=True) if asked} == {("ann,bob,cid", "", "")}
    assert {told[at] for at, asked in zip(which, answers.asked, strict=True) if not asked} == {("ann", "", "")}


def test_only_the_unsure_rows_are_told_to_the_others(values):
    asker = unsure_asker(values)
    seen = []
    whole = asker._round

    def watched(rows, parties, seconds):
        seen.append(rows.ids.to_pylist())
        return whole(rows, parties, seconds)

    asker._round = watched
    answers = ask(asker, IDS)
    assert seen == [[row for row, asked in zip(IDS, answers.asked, strict=True) if asked]]


def test_where_it_is_sure_of_all_rows_nobody_is_asked(values):
    asker = unsure_asker(values)
    asker._line = Asked(asker._line)
    _, chance = alone_of(values)
    sure = [row for row, each in zip(IDS, chance, strict=True) if each < 0.1]
    answers = ask(asker, sure)
    assert not answers.asked.any()
    assert asker._line.questions == 0
    asker = unsure_asker(values, missing=("bob", "cid"))
    assert ask(asker, sure).has_score.all(), "nor does it matter that they are away"


def test_a_missing_party_is_said_of_the_rows_that_were_asked_for(values):
    answers = ask(unsure_asker(values, missing=("bob",)), IDS)
    assert np.array_equal(answers.has_score, ~answers.asked)
    patterns, which = answers.patterns()
    first = int(np.flatnonzero(answers.asked)[0])
    assert "bob" in answers.missing_text(patterns[which[first]])
    assert "not standing by" in answers.why_text(patterns[which[first]])


def test_a_row_that_the_label_party_does_not_hold_is_asked_for(values):
    answers = ask(unsure_asker(values, held=IDS[:-1]), [IDS[-1], "stranger"])
    assert answers.asked.all()
    assert not answers.has_score.any(), 'absent = "fail"'


def test_the_same_rows_are_asked_for_after_a_restart(values, tmp_path):
    first = ask(unsure_asker(values, path=tmp_path / "absence.json"), IDS)
    again = ask(unsure_asker(values, path=tmp_path / "absence.json"), IDS)
    assert again.score.tobytes() == first.score.tobytes()
    assert again.asked.tolist() == first.asked.tolist()


def test_without_a_calibration_all_rows_are_asked_for(values):
    asker = unsure_asker(values)
    asker.calibration_without = lambda _: None
    answers = ask(asker, IDS)
    assert answers.asked is None
    assert answers.score.tolist() == sum(values.values()).tolist()


def test_another_asker_than_the_label_party_asks_for_all(values):
    run = run_of(serving=ServingSettings(ask="unsure", may_ask=("bob",)))
    found = {name: publication_of(name, IDS, each, run=run) for name, each in values.items()}
    answers = ask(asker_of(found, "bob"), IDS[:9])
    assert answers.asked is None
    assert answers.score.tolist() == sum(values.values())[:9].tolist()


def test_a_batch_has_a_column_that_says_which_rows_were_asked_for(values, tmp_path):
    asker = unsure_asker(values)
    assert asker.calibration_without(frozenset(["bob", "cid"])) is not None
    asker.rows_at_once = 150

    def blocks(size):
        for start in range(0, ROWS, size):
            yield pa.table({"id": IDS[start : start + size]}), AskedRows(texts(IDS[start : start + size]))

    result = predict_batch(asker, AskedTable(b"d", ROWS, blocks), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    asked = found.column("asked").to_pylist()
    assert result.asked == sum(asked)
    assert result.missing == {"ann": 0, "bob": 0, "cid": 0}
    assert asked == ask(unsure_asker(values), IDS).asked.tolist()
    assert {name for name, was in zip(found.column("answered").to_pylist(), asked, strict=True) if not was} == {"ann"}


def test_of_several_classes_the_likeliest_counts():
    chances = np.array([[0.95, 0.03, 0.02], [0.5, 0.3, 0.2], [0.1, 0.9, 0.0]])
    assert is_unsure(chances, (0.1, 0.9)).tolist() == [False, True, False]
    assert is_unsure(np.array([0.05, 0.1, 0.5, 0.9, 0.99]), (0.1, 0.9)).tolist() == [False, False, True, False, False]
    run = run_of(task="multiclass", serving=ServingSettings(ask="unsure"))
    values = values_of(width=3)
    found = {name: publication_of(name, FEW, 4 * each, run=run) for name, each in values.items()}
    asker = asker_of(found, "ann")
    asker.calibration_without = lambda missing: Calibration(1.0, np.zeros(3)) if missing == {"bob", "cid"} else None
    answers = ask(asker, FEW)
    assert 0 < answers.asked.sum() < len(FEW)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "regression", "serving": {"ask": "unsure"}}, "goes by probabilities, and loss 'squared' gives none"),
        ({"loss": "hinge", "serving": {"ask": "unsure"}}, "loss 'hinge' gives none"),
        ({"serving": {"band": (0.9, 0.1)}}, "has nothing inside; the first is the smaller one"),
        ({"serving": {"band": (0.1, 1.2)}}, "band"),
        ({"serving": {"ask": "sometimes"}}, "'all' or 'unsure'"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, message):
    with pytest.raises(SettingsError, match=message):
        run_of(**settings)


# Live features


def live_of(party, ids, part):
    codes = codes_of(part)
    return Column.of(keys_of(("ann", "bob", "cid"), party).tokens_of(texts(ids)), codes, codes)


def test_a_part_that_comes_with_the_question_takes_the_place_of_the_stored_one():
    values = values_of()
    _, asker = federation(values)
    live = live_of("ann", [FEW[3], "new"], [[5.0], [1.0]])
    answers = asker.ask(AskedRows(texts(FEW[:6]), live=live))
    wanted = sum(values.values())[:6].copy()
    wanted[3] += 5.0 - values["ann"][3]
    assert answers.score.tolist() == wanted.tolist()
    assert ask(asker, FEW[:6]).score.tolist() == sum(values.values())[:6].tolist(), "the stored part is as it was"


def test_a_row_that_only_the_others_hold_has_a_score_with_live_features():
    values = values_of()
    run = run_of()
    found = {name: publication_of(name, FEW, each, run=run) for name, each in values.items() if name != "ann"}
    found = {"ann": publication_of("ann", FEW[1:], values["ann"][1:], run=run), **found}
    asker = asker_of(found, "ann")
    assert not ask(asker, FEW[:1]).has_score.any()
    answers = asker.ask(AskedRows(texts(FEW[:1]), live=live_of("ann", FEW[:1], [[0.25]])))
    assert answers.score.tolist() == [[0.25 + float(values["bob"][0, 0]) + float(values["cid"][0, 0])]]
    assert not answers.lacks.any()


def test_whether_it_is_sure_goes_by_live_features(values):
    asker = unsure_asker(values)
    _, chance = alone_of(values)
    row = IDS[int(np.argmin(np.abs(chance - 0.5)))]
    assert ask(asker, [row]).asked.all()
    answers = asker.ask(AskedRows(texts([row]), live=live_of("ann", [row], [[30.0]])))
    assert not answers.asked.any()
    assert answers.probability[0] > 0.9


def test_an_answerer_never_sees_live_features():
    """They are added at the asker alone: the answer to a question is the same with them and without."""
    values, run = values_of(), run_of()
    found = {name: publication_of(name, FEW, each, run=run) for name, each in values.items()}
    seen = []

    class Recording:
        def exchange(self, questions, seconds):
            seen.extend(len(each.sealed) for each in questions)
            return {each.party: answerer_of(found[each.party]).answer(_from("ann", each)) for each in questions}

    asker = asker_of(found, "ann")
    asker._line = Recording()
    asker.ask(AskedRows(texts(FEW[:3]), live=live_of("ann", FEW[:3], [[1.0]] * 3)))
    asker.ask(AskedRows(texts(FEW[:3])))
    assert seen[:2] == seen[2:]


def _from(asker, question):
    """As the relay hands it on: it names who asks."""
    return type(question)(question.number, question.run, asker, question.sealed)
