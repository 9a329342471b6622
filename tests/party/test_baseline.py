"""The label party's features alone: what they would have given, that nothing of it leaves, and that no crash shows."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import DataError
from fdml.events import Compared, Evaluated
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import auc
from fdml.party.baseline import AloneTraining, card_evaluation
from fdml.party.checkpoint import SavedState
from fdml.party.plan import Plan
from fdml.protocol.messages import Checkpointed, Push
from fdml.settings import GradientGuardSettings, GuardSettings, PrivacySettings, TrainingSettings
from tests.party.sessions import (
    BROWSER,
    STORE,
    ArrayData,
    Clock,
    SmallRun,
    again,
    hold,
    order_of,
    saved_on,
    with_training,
)

RUN = SmallRun(rows=50)


def compared_at(side):
    found = side.events_of(Compared)
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def held():
    return hold(RUN)


@pytest.fixture(scope="module")
def without():
    return hold(replace(RUN, baseline="none"))


def alone_in_process(run, side, **options):
    """The same rows trained by the label party as the only party of a run."""
    member, shared = run.member(STORE), side.store.shared_rows()
    rows, (labels, _) = member.data.rows(shared), member.data.labels(shared)
    plan = Plan(run.training.model_copy(update={"exchanges": None}), {STORE: member.model}, STORE, "logistic", 2)
    train = RowSet({STORE: rows.train}, labels.train, labels.train_weights)
    held_out = RowSet({STORE: rows.held_out}, labels.held_out, labels.held_out_weights)
    return train_in_process(plan, train, held_out=held_out, in_turns=True, **options), held_out


def test_the_baseline_is_the_label_party_as_the_only_party_of_a_run(held):
    result, held_out = alone_in_process(RUN, held[STORE])
    found = compared_at(held[STORE])
    expected = auc(held_out.labels, result.score(held_out.parts)[:, 0], held_out.weights)
    assert found.alone == pytest.approx(expected, abs=1e-9)
    assert found.figures["log_loss"] == pytest.approx(result.evaluations[2].test_loss, abs=1e-6)


def test_the_gain_is_of_the_figures_that_the_run_ends_with(held):
    found, last = compared_at(held[STORE]), held[STORE].events_of(Evaluated)[-1]
    assert (found.party, found.epoch, found.metric) == (STORE, last.epoch, "auc")
    assert found.joint == last.test_metric
    assert found.gain == pytest.approx(found.joint - found.alone, abs=1e-12)
    assert found.low <= found.gain <= found.high
    assert found.rows == 10
    assert f"over {STORE} alone" in found.text


def test_only_the_label_party_compares(held):
    assert not held[BROWSER].events_of(Compared)
    assert held[BROWSER].store.bundles[0].evaluated is None


def test_the_bundle_has_what_was_found(held):
    (bundle,) = held[STORE].store.bundles
    assert bundle.evaluated.compared == compared_at(held[STORE])


def test_the_baseline_releases_nothing(held, without):
    """The same messages with the same values, but for the hash of settings that differ by the baseline."""
    for name in RUN.settings.parties:
        with_it, without_it = (sides[name].channel.sent for sides in (held, without))
        assert [type(each) for each in with_it] == [type(each) for each in without_it]
        for one, other in zip(with_it, without_it, strict=True):
            if isinstance(one, Push):
                assert (one.step, one.release.values.tobytes()) == (other.step, other.release.values.tobytes())
        assert isinstance(with_it[-1], type(without_it[-1]))
        assert sides_count(held[name]) == sides_count(without[name])


def sides_count(side):
    """What the party's ledger has counted, by kind."""
    return [(each.purpose, each.number) for each in side.events if type(each).__name__ == "Released"]


def test_the_joint_model_is_the_same_to_the_bit_without_a_baseline(held, without):
    for name in RUN.settings.parties:
        assert held[name].parameters() == without[name].parameters()
    assert not without[STORE].events_of(Compared)


def test_it_comes_after_all_that_others_wait_for_and_before_the_model_is_written(held):
    order = order_of(held[STORE].effects)
    assert order.index("emit Compared") < order.index("WriteBundle")
    sent = [name for name in order[order.index("emit Compared") :] if name.startswith("send")]
    assert [name.split()[1] for name in sent] == ["Finished"]


def test_a_start_from_any_checkpoint_finds_the_same(held):
    side, expected = held[STORE], compared_at(held[STORE])
    for disk in side.store.after_checkpoint:
        start = again(RUN, side, saved=saved_on(disk), disk=disk.copy())
        assert compared_at(start) == expected
        assert start.store.bundles[0].evaluated == side.store.bundles[0].evaluated


@pytest.mark.slow
def test_a_start_from_any_checkpoint_finds_the_same_where_held_out_rows_choose_the_epoch():
    run = with_training(replace(RUN, stop_after=1), epochs=8, learning_rate=5.0)
    side = hold(run)[STORE]
    expected = compared_at(side)
    assert expected.epoch == side.store.bundles[0].evaluated.epoch
    for disk in side.store.after_checkpoint:
        assert compared_at(again(run, side, saved=saved_on(disk), disk=disk.copy())) == expected


def test_with_stop_after_the_baseline_keeps_its_best_epoch_too():
    run = with_training(replace(RUN, stop_after=2), epochs=8, learning_rate=5.0)
    side = hold(run)[STORE]
    result, held_out = alone_in_process(run, side, stop_after=2)
    expected = result.evaluations[result.best_epoch]
    assert compared_at(side).figures["log_loss"] == pytest.approx(expected.test_loss, abs=1e-6)
    assert result.best_epoch < 8
    assert len(held_out.labels) == 10


def test_few_exchanges_are_no_setting_of_a_party_alone():
    training = TrainingSettings(epochs=4, exchanges=2, batch_size=2, learning_rate=0.1, checkpoint_seconds=0.0)
    run = replace(RUN, training=training, every="end")
    side = hold(run)[STORE]
    result, _ = alone_in_process(run, side)
    assert compared_at(side).figures["log_loss"] == pytest.approx(result.evaluations[4].test_loss, abs=1e-6)


def test_private_labels_are_not_randomised_for_a_model_that_nobody_sees():
    run = replace(RUN, privacy=PrivacySettings(labels="private", label_epsilon=0.1))
    exact = replace(RUN, privacy=PrivacySettings(labels="private", label_epsilon="off"))
    one, other = (compared_at(hold(each)[STORE]) for each in (run, exact))
    assert one.figures == other.figures


def test_a_run_of_one_party_has_no_baseline(held):
    class Single(SmallRun):
        @property
        def settings(self):
            return super().settings.model_copy(update={"parties": (STORE,)})

    side = hold(Single(rows=50))[STORE]
    assert side.events_of(Evaluated)
    assert not side.events_of(Compared)


def test_a_failure_leaves_the_baseline_out_and_the_joint_model_as_it_is(held):
    class BreakingData(ArrayData):
        def rows(self, shared):
            object.__setattr__(self, "counts", (*self.counts, 1))
            if len(self.counts) > 1:
                raise DataError("the disk is gone; bring it back")
            return super().rows(shared)

    class BreakingRun(SmallRun):
        def member(self, party, disk=None, shared=None):
            member = super().member(party, disk, shared)
            return replace(member, data=BreakingData(member.data.features, member.data.values))

    start = again(BreakingRun(rows=50), held[STORE], saved=SavedState())
    assert not start.events_of(Compared)
    assert "no baseline, as training on store's features alone failed: the disk is gone; bring it back" in (
        start.remarks()
    )
    assert start.parameters() == held[STORE].parameters()
    assert start.store.bundles[0].evaluated.compared is None


def test_a_party_without_features_has_no_baseline(held):
    class Featureless(SmallRun):
        def member(self, party, disk=None, shared=None):
            member = super().member(party, disk, shared)
            if party == BROWSER:
                return member
            return replace(member, data=ArrayData(member.data.features[:, :0], member.data.values))

    sides = hold(Featureless(rows=50))
    assert sides[STORE].events_of(Evaluated)
    assert not sides[STORE].events_of(Compared)


def test_the_server_hears_of_a_long_training_alone_by_the_clock():
    run = with_training(RUN, epochs=4, peer_timeout_seconds=1.0)
    side = hold(run, clock=Clock(each=0.4))[STORE]
    kinds = [type(each) for each in side.channel.sent]
    after = side.channel.sent[max(at for at, kind in enumerate(kinds) if kind.__name__ == "SealedMetrics") + 1 : -1]
    assert {type(each) for each in after} == {Checkpointed}
    assert len({each.step for each in after}) == 1


def test_noise_in_training_keeps_the_baseline_out_of_the_model_files(held):
    (bundle,) = held[STORE].store.bundles

    class Found:
        result = bundle.evaluated

    private = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    assert card_evaluation(Found, private) == replace(bundle.evaluated, compared=None)
    assert card_evaluation(Found, GuardSettings()) == bundle.evaluated


def test_a_baseline_that_has_not_converged_is_told():
    class Learnable(SmallRun):
        def member(self, party, disk=None, shared=None):
            member = super().member(party, disk, shared)
            features = np.repeat(2.0 * member.data.values[:, None] - 1.0, 3, axis=1).astype(np.float32)
            return replace(member, data=ArrayData(features, member.data.values))

    found = compared_at(hold(with_training(Learnable(rows=50), epochs=5, learning_rate=0.01))[STORE])
    assert found.convergence == "falling"
    assert "(store alone: not converged: the loss still falls" in found.text


def test_the_losses_of_the_training_alone_go_with_its_epochs(held):
    member, shared = RUN.member(STORE), held[STORE].store.shared_rows()
    labels, _ = member.data.labels(shared)
    training = AloneTraining(member, member.data.rows(shared), labels, shared)
    assert list(training.epochs()) == [1, 2]
    assert len(training.losses) == 2
    assert training.losses[1] < training.losses[0]
