"""Joint training that ranks rows within groups: it equals pooled descent, and does what a plain logistic loss cannot."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import FdmlError
from fdml.experiments.in_process import train_in_process
from fdml.models.ranking.order import ranking_figures
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.messages import Gradient, Labels, Push
from fdml.settings import PrivacySettings, TrainingSettings

OPEN = PrivacySettings(labels="private", label_epsilon="off")
PARTIES = ("shop", "bank")


def groups_with_offsets(seed, groups=120, size=8):
    """Within a group a higher column means a better row; groups with higher columns have fewer positives (Simpson).

    Two columns, one at each party. The offset of a group is -4 times its own level, of which its columns tell.
    """
    random = np.random.default_rng(seed)
    rows = groups * size
    group = random.permutation(np.repeat(np.arange(groups), size))
    level = random.normal(size=groups)[group]
    within = random.normal(size=(rows, 2))
    odds = 1.5 * within.sum(axis=1) - 4.0 * level
    labels = (random.random(rows) < 1.0 / (1.0 + np.exp(-odds))).astype(np.float64)
    columns = (within + level[:, None]).astype(np.float32)
    parts = {name: as_rows(columns[:, at : at + 1]) for at, name in enumerate(PARTIES)}
    return RowSet(parts, labels, np.ones(rows), group), columns.astype(np.float64)


def plan_of(loss, kind="linear", model=None, **training):
    settings = TrainingSettings(**{"epochs": 6, "batch_size": 40, "seed": 3, **training})
    models = {name: model_settings(kind, **(model or {})) for name in PARTIES}
    return Plan(settings, models, "shop", loss, 2)


def figure(plan, privacy, seed=1):
    trained, tested = groups_with_offsets(1)[0], groups_with_offsets(2)[0]
    result = train_in_process(plan, trained, privacy=privacy, in_turns=True)
    return ranking_figures(result.score(tested.parts), tested)["group_auc"]


def test_one_batch_of_all_rows_equals_pooled_descent_on_all_pairs():
    rows, columns = groups_with_offsets(1, groups=12)
    plain = {"optimizer": "sgd", "learning_rate": 0.3, "l2": 0.01, "precision": "double"}
    plan = plan_of(
        "pairwise", model=plain, epochs=5, batch_size=len(rows), batches_per_block=1, lookahead=0, lr_decay="constant",
        value_bits=64,
    )  # fmt: skip
    result = train_in_process(plan, rows, privacy=OPEN, in_turns=True)
    weights = np.zeros(2)
    for _ in range(5):
        scores, pull = columns @ weights, np.zeros(len(rows))
        for i in range(len(rows)):
            for j in np.flatnonzero((rows.groups == rows.groups[i]) & (rows.labels != rows.labels[i])):
                sign = 2.0 * rows.labels[i] - 1.0
                pull[i] -= sign / (1.0 + np.exp(sign * (scores[i] - scores[j]))) / 7.0
        weights -= 0.3 * (columns.T @ pull / len(rows) + 0.01 * weights)
    assert result.score(rows.parts)[:, 0] - result.score(rows.parts)[0, 0] == pytest.approx(
        columns @ weights - columns[0] @ weights, abs=1e-5
    )


def test_ranking_finds_the_order_within_groups_where_a_logistic_loss_finds_the_groups():
    assert figure(plan_of("logistic"), OPEN) < 0.4
    assert figure(plan_of("pairwise"), OPEN) > 0.8


@pytest.mark.parametrize("kind", ["mlp", "fm", "trees"])
def test_other_kinds_of_models_rank_as_well(kind):
    assert figure(plan_of("pairwise", kind), OPEN) > 0.72


def test_randomised_labels_leave_the_order_as_it_is():
    """A pair's weight does not depend on labels, so flips of them shrink scores and turn no pair around."""
    assert figure(plan_of("pairwise"), PrivacySettings(labels="private", label_epsilon=2.0)) > 0.78


def test_the_label_party_watches_the_loss_of_pairs():
    rows, heard = groups_with_offsets(1)[0], {}
    train_in_process(plan_of("pairwise"), rows, privacy=OPEN, in_turns=True, on_loss=heard.__setitem__)
    losses = [heard[epoch] for epoch in sorted(heard)]
    assert len(losses) == 6
    assert losses[-1] < losses[1] < 0.3


def test_held_out_rows_are_told_of_by_their_order_within_groups():
    rows, held_out = groups_with_offsets(1)[0], groups_with_offsets(2)[0]
    result = train_in_process(plan_of("pairwise"), rows, held_out=held_out, privacy=OPEN, in_turns=True)
    found = result.evaluations[6]
    assert found.figures == pytest.approx(ranking_figures(result.score(held_out.parts), held_out), abs=1e-3)
    assert found.test_metric == found.figures["group_auc"]


def test_groups_reach_the_others_by_gradients_alone():
    """Other groups of the same rows: until the first gradient nothing that the label party sends differs."""
    rows, heard = groups_with_offsets(1, groups=20)[0], []
    for groups in (rows.groups, np.roll(rows.groups, 3)):
        sent = []

        def tap(sender, message, sent=sent):
            if sender == "shop":
                sent.append(message)

        train_in_process(
            plan_of("pairwise", epochs=2), replace(rows, groups=groups), privacy=OPEN, in_turns=True, tap=tap
        )
        first = next(at for at, message in enumerate(sent) if isinstance(message, Gradient))
        heard.append([(type(message), getattr(message, "sealed", b"")) for message in sent[:first]])
        heard.append([message.release.values.tobytes() for message in sent[:first] if isinstance(message, Push)])
    assert heard[0] == heard[2]
    assert heard[1] == heard[3]
    assert heard[1]
    assert all(sealed == b"" for kind, sealed in heard[0] if kind is Labels)


def test_rows_without_groups_end_the_run_with_the_setting():
    rows = groups_with_offsets(1)[0]
    with pytest.raises(FdmlError, match=r"data\.group"):
        train_in_process(
            plan_of("pairwise"), RowSet(rows.parts, rows.labels, rows.weights), privacy=OPEN, in_turns=True
        )
