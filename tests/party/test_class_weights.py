import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.class_weights import numbered, weighted_by_class
from fdml.party.plan import Plan
from fdml.protocol.messages import Labels
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings

TRAIN = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 2.0])
NAMES = LabelEncoding("multiclass", np.array(["blue", "green", "red"]))


def label_set(weights=None):
    return LabelSet(3, TRAIN, np.array([1.0, 0.0]), np.ones(6) if weights is None else weights, np.array([1.0, 3.0]))


def weighted(class_weight, encoding=None, weights=None):
    return weighted_by_class(label_set(weights), TrainingSettings(class_weight=class_weight), encoding)


def test_balanced_weights_are_those_of_scikit_learn():
    found = weighted("balanced")
    assert found.train_weights == pytest.approx(compute_sample_weight("balanced", TRAIN))
    assert found.held_out_weights.tolist() == [1.0, 3.0], "held-out rows are measured as they are"


def test_balanced_classes_have_the_same_weight_in_all_whatever_their_rows_weigh():
    found = weighted("balanced", weights=np.array([0.5, 0.5, 2.0, 1.0, 1.5, 0.5])).train_weights
    assert [found[number == TRAIN].sum() for number in range(3)] == pytest.approx([2.0, 2.0, 2.0])


def test_a_table_weighs_classes_by_name_and_the_mean_stays_one():
    found = weighted({"red": 4.0}, NAMES).train_weights
    assert found / found[0] == pytest.approx([1, 1, 1, 1, 4, 4])
    assert found.mean() == pytest.approx(1.0)
    assert weighted({"2": 4.0}).train_weights == pytest.approx(found), "without an encoding classes are numbers"


@pytest.mark.parametrize(
    ("classes", "name"), [(np.array([0, 1]), "1"), (np.array([0.0, 1.0]), "1"), (np.array([False, True]), "True")]
)
def test_classes_are_written_as_in_the_label_column(classes, name):
    assert numbered({name: 2.0}, LabelEncoding("binary", classes)) == {"1": 2.0}


def test_without_class_weights_nothing_changes():
    labels = label_set()
    assert weighted_by_class(labels, TrainingSettings(), None) is labels


def test_a_class_that_is_not_there_is_named():
    with pytest.raises(SettingsError, match="names 'pink', which is none of the 3 classes"):
        weighted({"pink": 2.0}, NAMES)
    with pytest.raises(SettingsError, match="names '7'; classes are numbered 0 to 2 here"):
        weighted({"7": 2.0})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"task": "regression"}, "class_weight is for classes"),
        ({"privacy": PrivacySettings(labels="private")}, "could disclose private labels"),
    ],
)
def test_where_there_are_no_shared_classes_it_is_refused(other, message):
    with pytest.raises(SettingsError, match=message):
        RunSettings(parties=("a", "b"), label_party="a", training=TrainingSettings(class_weight="balanced"), **other)


def test_balanced_weights_find_the_rare_class_of_99_to_1():
    """Without them the model calls nobody positive: that is right for 99 of 100 rows, and of no use."""
    random = np.random.default_rng(3)
    labels = (random.random(4000) < 0.01).astype(np.float64)
    X = (random.normal(size=(4000, 4)) + 1.2 * labels[:, None]).astype(np.float32)
    rows = RowSet({"p0": as_rows(X[:, :2]), "p1": as_rows(X[:, 2:])}, labels, np.ones(4000))
    recall, seen = {}, {}
    for class_weight in (None, "balanced"):
        training = TrainingSettings(
            epochs=5, batch_size=50, batches_per_block=8, learning_rate=0.2, class_weight=class_weight
        )
        plan = Plan(training, {"p0": model_settings(), "p1": model_settings()}, "p0", "logistic", 2)
        sent = []
        outcome = train_in_process(plan, rows, tap=lambda _, message, sent=sent: sent.append(message))
        score = outcome.score(rows.parts)[:, 0]
        recall[class_weight] = np.mean(score[labels == 1] > 0)
        (seen[class_weight],) = {len(message.sealed) for message in sent if isinstance(message, Labels)}
    assert recall[None] < 0.2
    assert recall["balanced"] > 0.8
    assert seen["balanced"] == seen[None] + 8 * 4000, "the weights travel sealed with the labels"
