"""A party's session as a plain object: its effects in order, and what a further start makes of saved state."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.align.sealed_metrics import open_metrics
from fdml.errors import ExchangeError, LabelError, MessageRefused, PeerTimeout, Refusal, ServerUnreachable, StateCorrupt
from fdml.events import (
    Compared,
    EpochDone,
    Evaluated,
    Finished,
    Joined,
    Released,
    Reliability,
    Remark,
    StepDone,
    Stopped,
)
from fdml.party.checkpoint import FinishedModel, SavedState
from fdml.party.effects import Emit, Flush, SaveResult, Send
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.protocol import messages
from fdml.protocol.messages import Checkpointed, HeldOutPredictions, Hello, Labels, Push, SealedMetrics, Total, Welcome
from fdml.settings import GuardSettings, PrivacySettings
from fdml.storage.arrays import hash_arrays
from tests.party.sessions import (
    BROWSER,
    ROWS,
    STORE,
    Clock,
    ScriptedChannel,
    Side,
    SmallRun,
    again,
    hold,
    order_of,
    saved_on,
    training_part,
    with_training,
)

NOISE = GuardSettings(clip=5.0, noise="gaussian", sigma=0.5, epsilon=1000.0)
TRAINING_PART = [
    "send Push 0", "emit Released", "send Push 1", "emit Released",
    "receive", "send Push 2", "emit Released", "emit StepDone", "save checkpoint 0",
    "receive", "send Push 3", "emit Released", "emit StepDone", "emit LargestPart", "emit EpochDone",
    "send HeldOutPredictions 1", "emit Released", "save checkpoint 1", "send Checkpointed 0",
    "receive", "emit StepDone", "save checkpoint 2", "send Checkpointed 1",
    "receive", "emit StepDone", "emit LargestPart", "emit EpochDone",
    "send HeldOutPredictions 2", "emit Released", "save checkpoint 3", "send Checkpointed 2",
]  # fmt: skip
LAST_PART = [
    "WriteStatement", "WriteBundle", "Flush", "save result", "send Finished", "Flush", "save result, reported",
    "emit Finished",
]  # fmt: skip


@pytest.fixture(scope="module")
def held():
    """Both parties of a run in which every step is saved and every epoch evaluated."""
    return hold(SmallRun())


def sent(side, *kinds):
    return [message for message in side.channel.sent if isinstance(message, kinds)]


def pushes(side):
    return {push.step: push.release.values.tobytes() for push in sent(side, Push)}


def opened(side):
    """The metrics that a party sent, as another party reads them."""
    key = side.store.shared_rows().key
    return [open_metrics(key, each) for each in sent(side, SealedMetrics)]


# The order of effects


def test_a_party_first_finds_its_rows_and_stores_them_once_the_server_has_all_it_posted(held):
    order = order_of(held[BROWSER].effects)
    end = order.index("send Hello")
    assert order[0] == "emit Remark"
    assert order[1] == "SaveRowsOffer"
    assert set(order[2 : end - 5]) == {"send Post", "send Fetch", "receive"}
    assert order[end - 5 : end] == ["Flush", "SaveGeneration", "Flush", "SaveAlignment", "emit Aligned"]


def test_the_label_party_says_hello_gives_the_labels_trains_scores_and_finishes_in_this_order(held):
    order = order_of(held[STORE].effects)
    scored = [
        "receive", "emit Evaluated", "emit Evaluated", "save checkpoint 3", "save checkpoint 3",
        "send SealedMetrics 1", "send SealedMetrics 2",
    ]  # fmt: skip
    assert order[order.index("send Hello") :] == [
        "send Hello", "send Labels", "emit Scheduled", "emit Joined", *TRAINING_PART, *scored,
        "emit Reliability", "emit Compared", *LAST_PART
    ]  # fmt: skip


def test_another_party_waits_for_the_labels_and_scores_nothing(held):
    order = order_of(held[BROWSER].effects)
    assert order[order.index("send Hello") :] == [
        "send Hello", "receive", "emit Scheduled", "emit Joined", *TRAINING_PART, *LAST_PART
    ]  # fmt: skip


def test_a_party_of_which_nothing_has_to_last_saves_no_checkpoint_and_gives_up_totals_every_eighth_step():
    sides = hold(with_training(SmallRun(), epochs=10), durable=False)
    order = order_of(sides[BROWSER].effects)
    assert not [name for name in order if name.startswith("save checkpoint")]
    assert [message.step for message in sent(sides[BROWSER], Checkpointed)] == [7, 15]


def test_a_checkpoint_holds_the_pushes_that_were_sent_before_it(held):
    """What is sent after a state was saved must be in that state, else a restart would send something else."""
    for at, disk in enumerate(held[STORE].store.after_checkpoint):
        number = min(at, 3)  # the last are of the end, with what was scored there
        assert saved_on(disk).checkpoint.worker["position"].tolist()[:2] == [number + 1, min(number + 2, 3)]


def test_totals_are_given_up_only_once_two_newer_checkpoints_are_safe(held):
    """The newest may be damaged; then the party goes on from the one before it."""
    steps = [message.step for message in sent(held[STORE], Checkpointed)]
    saved = [saved_on(disk).checkpoint.step for disk in held[STORE].store.after_checkpoint]
    assert saved == [0, 1, 2, 3, 3, 3]
    assert steps == saved[:3]


def test_state_is_saved_when_its_time_has_come_and_at_the_end():
    run = with_training(SmallRun(), checkpoint_seconds=1000.0)
    sides = hold(run)
    assert [saved_on(disk).checkpoint.step for disk in sides[STORE].store.after_checkpoint] == [3, 3, 3]
    slow = again(run, sides[STORE], clock=Clock(each=200.0))
    steps = [saved_on(disk).checkpoint.step for disk in slow.store.after_checkpoint]
    assert steps[-3:] == [3, 3, 3]
    assert 3 < len(steps) < 6, "a look at the clock takes 200 s, and a step some looks"


def test_a_checkpoint_takes_with_it_what_the_channel_has_not_brought_to_the_server(held):
    channel = ScriptedChannel(training_part(held[STORE]))
    channel.on_their_way = [SealedMetrics(1)]
    side = Side(SmallRun(), STORE, channel, shared=held[STORE].store.shared_rows())
    side.driver.advance()
    assert saved_on(side.disk).checkpoint.unacknowledged[0] == SealedMetrics(1)


def test_the_phases_follow_each_other(held):
    side = held[STORE]
    session = Side(SmallRun(), STORE, ScriptedChannel([])).session
    assert session.phase == "aligning", "the driver has asked for the first effect"
    fresh = Side(SmallRun(), STORE, ScriptedChannel(training_part(side)), shared=side.store.shared_rows())
    seen = []
    while not fresh.driver.has_ended:
        seen.append(fresh.session.phase)
        fresh.driver.step()
    assert list(dict.fromkeys(seen)) == ["starting", "labelling", "training", "evaluating", "finished"]


# Events


def test_listeners_get_every_release_step_and_epoch(held):
    side = held[STORE]
    assert [(each.purpose, each.number) for each in side.events_of(Released)] == [
        ("push", 0), ("push", 1), ("push", 2), ("push", 3), ("held-out", 1), ("held-out", 2)
    ]  # fmt: skip
    assert side.events_of(StepDone) == [StepDone(STORE, step, 0) for step in range(4)]
    assert side.events_of(EpochDone) == [EpochDone(STORE, 1), EpochDone(STORE, 2)]
    assert side.events_of(Joined) == [Joined(STORE, 0)]
    assert isinstance(side.events[-1], Finished)


def test_a_step_names_the_lag_of_its_total(held):
    side = held[BROWSER]
    script = [
        Total(each.step, each.values, (each.step, -1)) if isinstance(each, Total) and each.step < 2 else each
        for each in training_part(side)
    ]
    run = with_training(SmallRun(), staleness=3)
    late = Side(run, BROWSER, ScriptedChannel(script), shared=side.store.shared_rows())
    late.driver.advance()
    assert [each.lag for each in late.events_of(StepDone)] == [1, 2, 0, 0]


def test_every_release_that_was_sent_has_its_event(held):
    for side in held.values():
        assert len(side.events_of(Released)) == len(sent(side, Push, HeldOutPredictions, messages.Gradient))


# Resuming


@pytest.mark.parametrize("party", [STORE, BROWSER])
def test_from_any_checkpoint_a_party_goes_on_with_the_same_messages_to_the_same_model(held, party):
    run, side = SmallRun(), held[party]
    for at, disk in enumerate(side.store.after_checkpoint):
        number = min(at, 3)
        start = again(run, side, saved=saved_on(disk), disk=disk.copy())
        assert start.driver.has_ended
        assert start.parameters() == side.parameters()
        assert sent(start, Hello)[0].done == number
        assert start.events_of(Joined) == [Joined(party, number + 1)]
        assert pushes(start).items() <= pushes(side).items()
        assert set(pushes(start)) == set(range(number + 1, 4)), "what is not answered is sent again, nothing else"
        assert start.result.model_hash == side.result.model_hash
        assert start.result.resumed_at == number + 1


@pytest.mark.parametrize("party", [STORE, BROWSER])
def test_under_noise_a_further_start_sends_the_bytes_that_were_stored(party):
    run = SmallRun(guards={STORE: NOISE, BROWSER: NOISE})
    sides = hold(run)
    side = sides[party]
    for disk in side.store.after_checkpoint:
        start = again(run, side, saved=saved_on(disk), disk=disk.copy())
        assert start.parameters() == side.parameters()
        assert pushes(start).items() <= pushes(side).items()
        assert start.store.statements == side.store.statements, "no release is counted twice"


def test_what_the_server_may_not_have_is_sent_again_before_anything_new(held):
    side = held[STORE]
    disk = side.store.after_checkpoint[1]
    saved = saved_on(disk)
    lost = sent(side, HeldOutPredictions)[0]
    checkpoint = type(saved.checkpoint)(**{**vars(saved.checkpoint), "unacknowledged": (lost,)})
    start = again(SmallRun(), side, saved=SavedState(2, checkpoint), disk=disk.copy())
    first = next(message for message in start.channel.sent if not isinstance(message, Hello | Labels))
    assert first is lost
    assert [each.epoch for each in sent(start, HeldOutPredictions)] == [1, 2]


def test_seconds_of_training_go_on_from_the_checkpoint(held):
    disk = held[STORE].store.after_checkpoint[-1]
    saved = saved_on(disk)
    progress = type(saved.checkpoint.progress)(50.0, saved.checkpoint.progress.pending, 2)
    checkpoint = type(saved.checkpoint)(**{**vars(saved.checkpoint), "progress": progress})
    start = again(SmallRun(), held[STORE], saved=SavedState(2, checkpoint), disk=disk.copy())
    assert start.result.seconds == 50.0
    assert start.events_of(Finished) == [Finished(STORE, 50.0)]


def test_the_wait_for_the_first_total_is_no_training_and_later_waits_are(held):
    class SlowScript(ScriptedChannel):
        def poll(self):
            message = super().poll()
            clock.now += {Welcome: 0.0, Total: 10.0}.get(type(message), 0.0)
            return message

    clock = Clock()
    side = held[BROWSER]
    late = Side(SmallRun(), BROWSER, SlowScript(training_part(side)), shared=side.store.shared_rows(), clock=clock)
    late.driver.advance()
    assert late.result.seconds == 30.0
    assert late.result.waited == 40.0


@pytest.mark.parametrize(
    ("change", "named"),
    [({"guards": {STORE: GuardSettings(clip=3.0)}}, "guard"), ({"every": "end"}, r"run\.toml")],
)
def test_saved_state_of_other_settings_is_refused_before_anything_is_sent(held, change, named):
    disk = held[STORE].store.after_checkpoint[0]
    with pytest.raises(StateCorrupt, match=rf"belongs to another {named}; put it back, or give the run a new name"):
        Side(
            SmallRun(**change),
            STORE,
            channel := ScriptedChannel([]),
            saved=saved_on(disk),
            shared=held[STORE].store.shared_rows(),
        ).driver.advance()
    assert channel.sent == []


# Finishing


def test_the_result_is_saved_only_once_the_server_has_everything(held):
    for side in held.values():
        flushed = [number for number, effect in enumerate(side.effects) if isinstance(effect, Flush)]
        results = [number for number, effect in enumerate(side.effects) if isinstance(effect, SaveResult)]
        assert [number + 1 for number in flushed[-2:-1]] == results[:1]
        assert flushed[-1] + 1 == results[1], "it is marked as reported once the report is stored"


def test_a_flush_waits_until_everything_is_stored(held):
    side = held[BROWSER]
    channel = ScriptedChannel(training_part(side))
    channel.all_stored = False
    waiting = Side(SmallRun(), BROWSER, channel, shared=side.store.shared_rows())
    assert waiting.driver.advance()
    assert waiting.driver.waits_for == "for {} to store the last messages"
    assert not sent(waiting, messages.Finished)
    assert saved_on(waiting.disk).result is None
    channel.all_stored = True
    assert not waiting.driver.advance()
    assert saved_on(waiting.disk).result.reported


def test_the_result_has_the_hash_of_the_parameters_in_the_bundle_and_the_server_another_value(held):
    for side in held.values():
        (bundle,), (report,) = side.store.bundles, sent(side, messages.Finished)
        assert side.result.model_hash == hash_arrays(bundle.parameters)
        assert report.model_mac != side.result.model_hash
        assert bundle.alignment_hash == side.store.shared_rows().digest


def test_the_label_partys_bundle_has_the_last_metrics_and_the_others_have_none(held):
    (compared,) = held[STORE].events_of(Compared)
    assert held[STORE].store.bundles[0].evaluated == replace(held[STORE].events_of(Evaluated)[-1], compared=compared)
    assert held[BROWSER].store.bundles[0].evaluated is None


def test_a_result_that_was_saved_but_not_reported_is_reported_again_and_nothing_else_is_done(held):
    side = held[STORE]
    facts = saved_on(side.disk).result.facts
    result = FinishedModel(facts, b"m" * 32, reported=False)
    start = again(SmallRun(), side, saved=SavedState(4, None, result))
    assert order_of(start.effects) == [
        "emit Remark", "send Hello", "send Finished", "Flush", "save result, reported", "emit Finished"
    ]  # fmt: skip
    assert start.channel.sent[0].incarnation == 4
    mac = SmallRun().member(STORE).model_mac(b"m" * 32, side.store.shared_rows().digest)
    assert start.channel.sent[1] == messages.Finished(mac)
    assert start.result.model_hash == b"m" * 32
    assert saved_on(start.disk).result.reported


@pytest.mark.parametrize("kind", [Hello, messages.Finished])
def test_a_server_that_has_gone_after_the_last_party_finished_is_no_error(held, kind):
    side = held[STORE]
    result = FinishedModel(saved_on(side.disk).result.facts, b"m" * 32, reported=False)
    gone = {kind: ServerUnreachable("nobody answers")}
    start = again(SmallRun(), side, saved=SavedState(4, None, result), failing=gone)
    assert start.driver.has_ended
    assert start.remarks()[-1] == "this party had finished; the server is no longer there"
    assert saved_on(start.disk).result is None, "it is not marked as reported"


def test_a_server_that_goes_while_the_report_is_on_its_way_is_no_error_either(held):
    side = held[STORE]
    result = FinishedModel(saved_on(side.disk).result.facts, b"m" * 32, reported=False)
    channel = ScriptedChannel([])
    channel.all_stored = False
    start = Side(SmallRun(), STORE, channel, saved=SavedState(4, None, result), shared=side.store.shared_rows())
    assert start.driver.advance()
    start.driver.fail(ServerUnreachable("nobody answers"))
    assert not start.driver.advance()
    assert start.result.model_hash == b"m" * 32


def test_another_error_of_the_report_is_an_error(held):
    side = held[STORE]
    result = FinishedModel(saved_on(side.disk).result.facts, b"m" * 32, reported=False)
    refused = {messages.Finished: MessageRefused("another start is newer", Refusal.FENCED)}
    with pytest.raises(MessageRefused, match="another start is newer"):
        again(SmallRun(), side, saved=SavedState(4, None, result), failing=refused)


def test_a_party_that_had_finished_and_reported_sends_nothing(held):
    side = held[BROWSER]
    start = again(SmallRun(), side, saved=saved_on(side.disk))
    assert start.channel.sent == []
    assert start.remarks()[-1] == "this party had finished before; a new name begins another run"
    assert start.result.model_hash == side.result.model_hash


def test_a_result_of_other_settings_counts_for_nothing(held):
    side = held[STORE]
    result = FinishedModel({**saved_on(side.disk).result.facts, "data": "other"}, b"m" * 32, reported=True)
    start = again(SmallRun(), side, saved=SavedState(4, None, result))
    assert start.parameters() == side.parameters()
    assert start.result.model_hash != b"m" * 32


# Evaluating


def test_the_metrics_are_of_the_held_out_rows_and_sealed_as_they_are_emitted(held):
    found, emitted = opened(held[STORE]), held[STORE].events_of(Evaluated)
    assert [each.epoch for each in found] == [1, 2]
    local = ("run", "party", "figures", "chosen", "compared", "earlier", "reliability")
    assert [vars(each) for each in found] == [
        {name: value for name, value in vars(each).items() if name not in local} for each in emitted
    ]
    assert found[1].train_loss < found[0].train_loss


def test_evaluated_at_the_end_the_held_out_rows_are_predicted_once():
    sides = hold(SmallRun(every="end"))
    for side in sides.values():
        assert [each.epoch for each in sent(side, HeldOutPredictions)] == [2]
    order = order_of(sides[STORE].effects)
    assert order[order.index("send HeldOutPredictions 2") :] == [
        "send HeldOutPredictions 2", "emit Released", "receive", "emit Evaluated", "save checkpoint 3",
        "save checkpoint 3", "send SealedMetrics 2", "emit Reliability", "emit Compared", *LAST_PART
    ]  # fmt: skip
    assert order.index("save checkpoint 3") < order.index("send HeldOutPredictions 2")


def test_the_last_metrics_do_not_depend_on_when_the_rows_are_evaluated(held):
    ended = hold(SmallRun(every="end"))[STORE]
    assert ended.parameters() == held[STORE].parameters()
    (last,), (_, same) = ended.events_of(Evaluated), held[STORE].events_of(Evaluated)
    assert (last.train_loss, last.test_loss, last.test_metric) == (same.train_loss, same.test_loss, same.test_metric)


def test_without_held_out_rows_nothing_is_evaluated(held):
    side = held[STORE]
    shared = side.store.shared_rows()
    none = type(shared)(**{**vars(shared), "held_out": np.zeros(0, np.int64)})
    script = [each for each in training_part(side) if not isinstance(each, messages.HeldOutTotal)]
    alone = Side(SmallRun(), STORE, ScriptedChannel(script), shared=none)
    assert not alone.driver.advance()
    assert sent(alone, HeldOutPredictions, SealedMetrics) == []
    assert sent(alone, Hello)[0].held_out == 0
    assert alone.parameters() == side.parameters()
    assert alone.store.bundles[0].evaluated is None


def without_held_out_totals(side):
    """What a party was sent, where the server had the metrics of both epochs already, and so no totals any more."""
    return [
        Welcome(3, (1, 2)) if isinstance(each, Welcome) else each
        for each in training_part(side)
        if not isinstance(each, messages.HeldOutTotal)
    ]


def test_an_epoch_that_an_earlier_start_has_told_of_is_not_scored_again(held):
    side = held[STORE]
    disk = side.store.after_checkpoint[3]
    start = again(SmallRun(), side, saved=saved_on(disk), disk=disk.copy(), script=without_held_out_totals(side))
    assert start.driver.has_ended
    assert sent(start, SealedMetrics) == []


@pytest.mark.parametrize("damaged", [(), ("checkpoint.0",), ("checkpoint.1",)])
@pytest.mark.parametrize("every", ["epoch", "end"])
def test_killed_once_its_metrics_were_told_the_label_party_still_has_figures_and_scores(every, damaged):
    """Simulator, seed 196: the server had no total any more, and the bundle told of the epoch before."""
    run = SmallRun(every=every)
    side = hold(run)[STORE]
    disk = side.store.after_checkpoint[-1].copy()
    for name in damaged:
        disk.files[name] = b"damaged"
    start = again(run, side, saved=saved_on(disk), disk=disk.copy(), script=without_held_out_totals(side))
    assert start.driver.has_ended
    assert sent(start, HeldOutPredictions) == []
    assert [each.epoch for each in sent(start, SealedMetrics)] == [each.epoch for each in sent(side, SealedMetrics)]
    assert replace(start.store.bundles[0].evaluated, compared=None) == replace(
        side.store.bundles[0].evaluated, compared=None
    )
    assert len(start.events_of(Reliability)) == len(side.events_of(Reliability)) == 1
    assert start.store.statements[-1].as_text() == side.store.statements[-1].as_text()


def test_noise_on_held_out_predictions_is_remarked_once():
    sides = hold(SmallRun(guards={BROWSER: NOISE}))
    found = [text for text in sides[STORE].remarks() if text.startswith("the held-out predictions carry noise")]
    assert len(found) == 1
    assert "of 0.5 in all" in found[0]
    assert 'guard.evaluation = "exact"' in found[0]


# Private labels


def test_private_labels_stay_and_the_label_party_returns_a_gradient_for_every_step():
    sides = hold(SmallRun(privacy=PrivacySettings(labels="private")))
    (labels,) = sent(sides[STORE], Labels)
    assert (labels.classes, labels.sealed) == (2, b"")
    assert [each.step for each in sent(sides[STORE], messages.Gradient)] == [0, 1, 2, 3]
    assert {type(each) for each in training_part(sides[BROWSER])} == {Welcome, Labels, messages.Gradient}
    assert sent(sides[BROWSER], messages.Gradient) == []
    assert sides[BROWSER].events_of(StepDone) == [StepDone(BROWSER, step, 0) for step in range(4)]


def test_over_private_labels_the_metrics_that_leave_have_the_epoch_only():
    sides = hold(SmallRun(privacy=PrivacySettings(labels="private")))
    assert sent(sides[STORE], SealedMetrics) == [SealedMetrics(1), SealedMetrics(2)]
    assert all(each.test_loss is not None for each in sides[STORE].events_of(Evaluated)), "at home they are known"


@pytest.mark.parametrize("disk", [0, 1, 2, 3])
def test_a_label_party_of_private_labels_goes_on_from_any_checkpoint(disk):
    run = SmallRun(privacy=PrivacySettings(labels="private"))
    side = hold(run)[STORE]
    saved = side.store.after_checkpoint[disk]
    start = again(run, side, saved=saved_on(saved), disk=saved.copy())
    assert start.parameters() == side.parameters()
    assert [each.step for each in sent(start, messages.Gradient)] == list(range(disk + 1, 4))


def test_weights_of_private_labels_are_refused():
    with pytest.raises(LabelError, match=r"weights could disclose private labels; leave data\.weight out"):
        hold(SmallRun(privacy=PrivacySettings(labels="private"), weighted=True))


@pytest.mark.parametrize(("epsilon", "warned"), [("off", True), (2.0, False)])
def test_gradients_of_true_private_labels_come_with_a_warning(epsilon, warned):
    sides = hold(SmallRun(privacy=PrivacySettings(labels="private", label_epsilon=epsilon)))
    found = [text for text in sides[STORE].remarks() if "discloses its row's label" in text]
    assert bool(found) == warned


# Stopping


def spending(epochs):
    """A guard whose budget lasts for so many epochs."""
    budget = epsilon_of(Mechanism("gaussian", 1.0, 1.0), epochs, 1e-5)
    return GuardSettings(clip=1.0, noise="gaussian", sigma=1.0, epsilon=budget, delta=1e-5, evaluation="exact")


def test_a_run_ends_at_the_step_that_a_partys_budget_does_not_allow():
    sides = hold(SmallRun(guards={BROWSER: spending(1)}))
    assert [each.step for each in sent(sides[BROWSER], messages.Stop)] == [2]
    assert sent(sides[STORE], messages.Stop) == []
    assert [len(side.events_of(StepDone)) for side in sides.values()] == [2, 2]
    (here,), (there,) = sides[BROWSER].events_of(Stopped), sides[STORE].events_of(Stopped)
    assert here.step == there.step == 2
    assert there.reason == "the privacy budget of party 'browser' is spent"
    assert "one more release of block" in here.reason


def test_a_run_that_ends_early_is_evaluated_for_the_epochs_that_all_have_done():
    sides = hold(SmallRun(guards={BROWSER: spending(1)}))
    assert [each.epoch for each in sides[STORE].events_of(Evaluated)] == [1]
    at_end = hold(SmallRun(guards={BROWSER: spending(1)}, every="end"))
    assert [each.epoch for each in at_end[STORE].events_of(Evaluated)] == [2], "under the last epoch's number"


def test_the_end_of_a_run_is_saved_before_it_is_acted_on():
    side = hold(SmallRun(guards={BROWSER: spending(1)}))[STORE]
    order = order_of(side.effects)
    saved = [number for number, name in enumerate(order) if name == "save checkpoint 1"]
    assert len([number for number in saved if number < order.index("emit Stopped")]) == 3
    assert order.index("emit Stopped") < order.index("WriteBundle")


@pytest.mark.parametrize("damaged", ["checkpoint.0", "checkpoint.1"])
@pytest.mark.parametrize("party", [STORE, BROWSER])
def test_both_checkpoints_know_the_end_of_a_run_that_ends_early(party, damaged):
    """Simulator, seed 581: from an older state a party learned one total more before it heard of the end again."""
    side = hold(SmallRun(guards={BROWSER: spending(1)}))[party]
    newest = saved_on(side.store.after_checkpoint[-1]).checkpoint
    disk = side.store.after_checkpoint[-1].copy()
    disk.files[damaged] = b"damaged"
    left = saved_on(disk).checkpoint
    assert left.step == newest.step == 1
    assert {name: each.tobytes() for name, each in left.worker.items()} == {
        name: each.tobytes() for name, each in newest.worker.items()
    }


def test_a_budget_that_ends_training_early_is_remarked_before_it_begins():
    remarks = hold(SmallRun(guards={BROWSER: spending(1)}))[BROWSER].remarks()
    assert any("allows 1 of 2 releases of each row: training will end early" in text for text in remarks)


# What comes at the wrong time, and from whom


def test_a_message_of_training_during_the_alignment_is_an_error():
    side = Side(SmallRun(), BROWSER, ScriptedChannel([Welcome(-1)]))
    with pytest.raises(ExchangeError, match="the server sent Welcome during the alignment; restart both sides"):
        side.driver.advance()


def test_a_wait_says_what_for(held):
    side = held[BROWSER]
    shared = side.store.shared_rows()
    start = Side(SmallRun(), BROWSER, ScriptedChannel([]), shared=shared)
    assert start.driver.advance()
    assert start.driver.waits_for == "for {} to give the labels"
    untold = [each for each in training_part(side) if not isinstance(each, Total) or each.step < 2]
    start = Side(SmallRun(), BROWSER, ScriptedChannel(untold), shared=shared)
    assert start.driver.advance()
    assert start.driver.waits_for == "at step 2 for {}"
    unscored = [each for each in training_part(held[STORE]) if not isinstance(each, messages.HeldOutTotal)]
    start = Side(SmallRun(), STORE, ScriptedChannel(unscored), shared=held[STORE].store.shared_rows())
    assert start.driver.advance()
    assert start.driver.waits_for == "for {} to predict the held-out rows of epoch 1"


def test_an_error_of_the_channel_ends_the_session_with_its_checkpoint_in_place(held):
    side = held[BROWSER]
    script = [each for each in training_part(side) if not isinstance(each, Total) or each.step < 2]
    start = Side(SmallRun(), BROWSER, ScriptedChannel(script), shared=side.store.shared_rows())
    start.driver.advance()
    with pytest.raises(PeerTimeout, match="waited"):
        start.driver.fail(PeerTimeout("waited 5 s"))
    resumed = again(SmallRun(), side, saved=saved_on(start.disk), disk=start.disk.copy())
    assert resumed.parameters() == side.parameters()
    assert resumed.result.resumed_at == 2


def test_a_party_that_aligned_before_says_so_and_asks_nobody(held):
    start = again(SmallRun(), held[STORE])
    assert start.events[0] == Remark(STORE, "the rows were aligned before")
    assert isinstance(start.effects[1], Send)
    assert isinstance(start.effects[1].message, Hello)
    quiet = again(SmallRun(), held[STORE], durable=False)
    assert not isinstance(quiet.effects[0], Emit), "where nothing lasts there was no start before"


def test_hello_says_which_run_rows_and_start_this_is(held):
    (hello,) = sent(held[STORE], Hello)
    assert (hello.rows, hello.held_out, hello.incarnation, hello.done) == (ROWS - 2, 2, 1, -1)
    assert hello.alignment_hash == sent(held[BROWSER], Hello)[0].alignment_hash
