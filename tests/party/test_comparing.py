"""What a run brings over an earlier version, by which figure, and what the rule says of it."""

import numpy as np
import pytest

from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import RowSet
from fdml.errors import LabelError
from fdml.events import Evaluated
from fdml.models.calibration import Calibration
from fdml.models.metrics import mean_loss
from fdml.models.task_metrics import task_metrics
from fdml.party.comparing import compared_version
from fdml.party.earlier import EarlierModel
from fdml.settings import RunSettings

VERSION = "0123456789abcdef" * 2
EARLIER = EarlierModel(VERSION, "october", lambda _, __: np.zeros((0, 1)))


class HeldOut:
    """Held-out rows with the figures of a binary task."""

    def __init__(self, labels):
        self.rows = RowSet({}, labels, np.ones(len(labels)))

    def figures(self, score):
        return task_metrics("binary", "logistic", score, self.rows)

    def loss_of(self, score):
        return mean_loss("logistic", score, self.rows)


def compared(promotion=None, better=1.0, rows=400):
    random = np.random.default_rng(5)
    labels = (random.random(rows) < 0.4).astype(np.float64)
    old = (labels + random.normal(size=rows))[:, None]
    new = (better * labels + random.normal(size=rows))[:, None]
    held_out = HeldOut(labels)
    run = RunSettings(parties=("ann", "bob"), label_party="ann", from_version=VERSION, promotion=promotion)
    found = Evaluated("ann", 3, test_loss=held_out.loss_of(new), figures=held_out.figures(new))
    return compared_version(run, found, EARLIER, (new, old), held_out), held_out, old


def test_the_figures_are_those_of_the_earlier_score_on_the_same_rows():
    found, held_out, old = compared(better=2.0)
    assert found.figures == held_out.figures(old)
    assert found.test_loss == held_out.loss_of(old)
    assert found.gain == found.new - found.old > 0.05
    assert found.low < found.gain < found.high
    assert (found.version, found.run, found.epoch, found.rows) == (VERSION, "october", 3, 400)
    assert found.promoted is None
    assert found.text.startswith("joint brings +")
    assert "AUC over version 01234567 (run october)" in found.text


@pytest.mark.parametrize("better", [0.2, 2.0])
@pytest.mark.parametrize("metric", ["auc", "test_loss", "brier", "average_precision"])
def test_a_better_model_is_promoted_by_any_figure_and_a_worse_one_by_none(metric, better):
    found, _, _ = compared({"metric": metric}, better)
    assert found.promoted is (better > 1.0)
    assert (found.gain > 0) is (better > 1.0), "a lower loss is a gain"
    assert found.metric == metric
    assert ("; promoted: " in found.text) is (better > 1.0)


def test_it_must_be_better_by_as_much_as_the_rule_says():
    gain = compared({}, 2.0)[0].gain
    assert compared({"at_least": gain}, 2.0)[0].promoted is True
    assert compared({"at_least": gain + 1e-9}, 2.0)[0].promoted is False
    worse = compared({}, 0.2)[0].gain
    assert compared({"at_least": worse}, 0.2)[0].promoted is True


def test_a_figure_that_is_not_known_promotes_nothing():
    found, _, _ = compared({"metric": "r2", "at_least": -100.0})
    assert (found.promoted, found.gain) == (False, None)
    assert "is not known" in found.text


def test_an_earlier_score_is_calibrated_and_read_in_the_units_of_now():
    labels = LabelEncoding("regression", None, centre=10.0, spread=2.0)
    earlier = EarlierModel(VERSION, "october", EARLIER.predict, labels, Calibration(0.5, np.array([1.0])))
    now = LabelEncoding("regression", None, centre=4.0, spread=8.0)
    found = earlier.score(np.array([[2.0], [-4.0]]), now)
    own_units = 10.0 + 2.0 * np.array([[2.0], [-1.0]])
    assert np.allclose(found * 8.0 + 4.0, own_units)
    assert np.array_equal(EARLIER.score(np.ones((2, 1)), now), np.ones((2, 1)))


def test_an_earlier_score_of_counts_moves_by_the_logarithm_of_their_means():
    before, now = (LabelEncoding("regression", None, spread=mean, link="log") for mean in (2.0, 8.0))
    earlier = EarlierModel(VERSION, "october", EARLIER.predict, before)
    found = earlier.score(np.array([[0.5]]), now)
    assert now.inverse_transform(found) == pytest.approx(before.inverse_transform(np.array([[0.5]])))


def test_scores_by_another_link_cannot_be_compared():
    counts, plain = (LabelEncoding("regression", None, link=link) for link in ("log", "identity"))
    earlier = EarlierModel(VERSION, "october", EARLIER.predict, plain)
    earlier.check_labels(plain)
    with pytest.raises(LabelError, match=r"scores by the log link, and version .* by the identity link; leave"):
        earlier.check_labels(counts)


def test_the_same_classes_can_be_compared_and_others_cannot():
    two, three = (LabelEncoding("multiclass", np.array(names)) for names in (["a", "b"], ["a", "b", "c"]))
    earlier = EarlierModel(VERSION, "october", EARLIER.predict, two)
    earlier.check_labels(two)
    earlier.check_labels(None)
    EARLIER.check_labels(three)
    for other in (three, LabelEncoding("multiclass", np.array(["a", "x"]))):
        with pytest.raises(LabelError, match="not the same ones"):
            earlier.check_labels(other)
