"""Evaluation of labelled rows by asking for them."""

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import DataError
from fdml.models.metrics import mean_loss
from fdml.serving.absence import LabelledRows
from fdml.serving.asking import AskedRows
from fdml.serving.evaluating import evaluate
from tests.serving.published import IDS, asker_of, federation, publication_of, texts, values_of


def labelled(ids, labels):
    return LabelledRows(AskedRows(texts(ids)), RowSet({}, np.asarray(labels, float), np.ones(len(ids))))


@pytest.fixture
def values():
    return values_of()


def test_the_figures_are_those_of_the_joint_scores(values):
    _, asker = federation(values)
    score = sum(values.values())
    labels = (score[:, 0] > 0.2).astype(float)
    found = evaluate(asker, labelled(IDS, labels))
    assert found.loss == mean_loss("logistic", score, RowSet({}, labels, np.ones(len(IDS))))
    assert found.figures["auc"] == 1.0
    assert (found.rows, found.scored, found.complete, found.why) == (40, 40, 40, ())


def test_many_rows_go_in_several_questions_and_change_nothing(values):
    _, asker = federation(values)
    labels = np.arange(40) % 2
    whole = evaluate(asker, labelled(IDS, labels))
    asker.rows_at_once = 7
    assert evaluate(asker, labelled(IDS, labels)) == whole


def test_rows_without_a_score_are_left_out_and_said(values):
    found, _ = federation(values)
    found["bob"] = publication_of("bob", IDS[5:], values["bob"][5:])
    result = evaluate(asker_of(found, "ann"), labelled(IDS, np.arange(40) % 2))
    assert (result.rows, result.scored, result.complete) == (40, 35, 35)
    assert result.why == ("bob: unknown id",)


def test_no_score_at_all_is_an_error_that_says_why(values):
    _, asker = federation(values, missing=("cid",))
    with pytest.raises(DataError, match="none of 2 rows has a score: cid: it is not standing by"):
        evaluate(asker, labelled(IDS[:2], [0, 1]))
