"""Who brings what to a published model, by questions that parties answer anyway."""

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import DataError, SettingsError
from fdml.models.metrics import auc
from fdml.serving.absence import LabelledRows
from fdml.serving.asking import AskedRows
from fdml.serving.explaining import explain
from fdml.settings.serving import ServingSettings
from tests.serving.published import asker_of, federation, publication_of, run_of, texts, values_of

ROWS = 400
IDS = tuple(f"r{number}" for number in range(ROWS))
CALIBRATED = run_of(serving=ServingSettings(absent="calibrated"))
PAIR = ("ann", "bob")


def labelled(values, ids=IDS):
    random = np.random.default_rng(5)
    chance = 1.0 / (1.0 + np.exp(-2.0 * (values["ann"] + values["bob"])[:, 0]))
    return LabelledRows(AskedRows(texts(ids)), RowSet({}, (random.random(ROWS) < chance).astype(float), np.ones(ROWS)))


@pytest.fixture
def values():
    return values_of(rows=ROWS)


def test_shares_of_three_parties_add_up_and_noise_brings_nothing_certain(values):
    _, asker = federation(values, run=CALIBRATED, ids=IDS)
    rows = labelled(values)
    given = {**values, "cid": 0.1 * values["cid"]}
    _, asker = federation(given, run=CALIBRATED, ids=IDS)
    found = explain(asker, rows)
    shares = found.found.shares
    worth = auc(rows.labels.labels, sum(given.values())[:, 0], rows.labels.weights)
    assert found.found.worth.value == pytest.approx(worth, abs=1e-4)
    assert sum(each.value for each in shares.values()) == pytest.approx(worth - 0.5, abs=1e-4)
    assert shares["cid"].low <= 0.0 <= shares["cid"].high
    assert min(shares["ann"].low, shares["bob"].low) > 0.0
    assert (found.rows, found.asked, found.singly) == (ROWS, ROWS, True)


def test_two_parties_need_no_further_rule_and_no_question_but_the_usual_one(values):
    run = run_of(PAIR)
    _, asker = federation({name: values[name] for name in PAIR}, run=run, ids=IDS)
    found = explain(asker, labelled(values))
    assert not found.singly
    assert set(found.found.shares) == set(PAIR)


def test_three_parties_that_answer_only_whole_questions_are_not_asked(values):
    _, asker = federation(values, run=run_of(), ids=IDS)
    with pytest.raises(SettingsError, match='agree on absent = "calibrated"'):
        explain(asker, labelled(values))


def test_many_rows_go_in_several_questions_and_fewer_may_be_asked_for(values):
    _, asker = federation(values, run=CALIBRATED, ids=IDS)
    whole = explain(asker, labelled(values))
    asker.rows_at_once = 90
    assert explain(asker, labelled(values)) == whole
    assert explain(asker, labelled(values), most=100).asked == 100


def test_rows_that_a_party_does_not_hold_are_left_out(values):
    found, _ = federation(values, run=CALIBRATED, ids=IDS)
    found["bob"] = publication_of("bob", IDS[50:], values["bob"][50:], run=CALIBRATED)
    assert explain(asker_of(found, "ann"), labelled(values)).rows == ROWS - 50
    found["bob"] = publication_of("bob", ["other"], values["bob"][:1], run=CALIBRATED)
    with pytest.raises(DataError, match="none of 400 rows is held by all parties"):
        explain(asker_of(found, "ann"), labelled(values))


def test_a_party_that_is_away_is_named(values):
    _, asker = federation(values, run=CALIBRATED, ids=IDS, missing=("cid",))
    with pytest.raises(DataError, match="cid has not answered: it is not standing by"):
        explain(asker, labelled(values))


def test_only_the_label_party_has_what_it_takes(values):
    run = run_of(serving=ServingSettings(absent="calibrated", may_ask=("ann", "bob")))
    found, _ = federation(values, run=run, ids=IDS)
    with pytest.raises(SettingsError, match="explain there, not at 'bob'"):
        explain(asker_of(found, "bob"), labelled(values))
