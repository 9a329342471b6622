import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    SealedMetrics,
    Total,
    Welcome,
)
from fdml.protocol.wire import decode_from_server
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import PrivacySettings
from fdml.storage.arrays import pack_arrays, unpack_arrays
from fdml.storage.disk import FolderDisk
from fdml.storage.two_slots import TwoSlots
from tests.examples import examples
from tests.server.run_states import (
    HELD_OUT,
    PARTIES,
    ROWS,
    STEPS,
    definition_of,
    deliver,
    held_out,
    hello,
    labels,
    metrics,
    new_state,
    play,
    push,
    script_of,
)
from tests.storage.memory_disk import MemoryDisk, PowerCut

STALENESS = [0, 2]
SCRIPTS = {staleness: script_of(staleness, seed=1) for staleness in STALENESS}


def fingerprints(staleness):
    """Of the state after each message of the script, before the first one included."""
    state = new_state(staleness=staleness)
    found = [state.fingerprint()]
    for sender, message in SCRIPTS[staleness]:
        deliver(state, sender, message)
        found.append(state.fingerprint())
    return found


FINGERPRINTS = {staleness: fingerprints(staleness) for staleness in STALENESS}


def totals(answers, party):
    """The totals a party was sent, as bytes, by step."""
    sent = [raw for answer in answers for to, raw in answer if to == party]
    return {message.step: raw for raw in sent if isinstance(message := decode_from_server(raw), Total)}


def kinds(answer):
    return [(to, type(decode_from_server(raw))) for to, raw in answer]


# The script itself.


@pytest.mark.parametrize("staleness", STALENESS)
def test_a_run_goes_to_its_end_and_everyone_is_sent_everything(staleness):
    state, script = new_state(staleness=staleness), SCRIPTS[staleness]
    answers = play(state, script)
    for party in PARTIES:
        assert sorted(totals(answers, party)) == list(range(STEPS))
        assert state.has_finished(party)
    assert state.finished
    assert sorted(state.history) == [1, 2, 3]
    assert state.history[2] == metrics(2)
    sums = [
        message
        for answer in answers
        for to, raw in answer
        if to == "store" and isinstance(message := decode_from_server(raw), HeldOutTotal)
    ]
    assert [total.epoch for total in sums] == [1, 2, 3]
    np.testing.assert_array_equal(sums[0].values, sum(held_out(party, 1).release.values for party in PARTIES))


def test_a_stale_part_is_of_an_earlier_visit_of_the_same_block():
    state = new_state(staleness=2)
    answers = play(state, SCRIPTS[2])
    found = [decode_from_server(raw) for party in PARTIES for raw in totals(answers, party).values()]
    stale = [(total.step, pushed) for total in found for pushed in total.pushed_at if 0 <= pushed < total.step]
    assert stale
    visit = state.coordinator.schedule.visit
    assert all(visit(step).block == visit(pushed).block for step, pushed in stale)


# Joining.


def test_nobody_joined_means_no_rows_and_all_wait_for_the_labels():
    state = new_state()
    assert state.rows == 0
    assert state.waits_for("guard") == ["store"]
    assert not state.finished
    deliver(state, "guard", hello())
    assert state.rows == ROWS
    assert state.incarnation("guard") == 1


def test_labels_go_to_all_who_have_joined_and_later_to_those_who_join_late():
    state = new_state()
    assert kinds(deliver(state, "browser", hello())) == [("browser", Welcome)]
    assert kinds(deliver(state, "store", hello())) == [("store", Welcome)]
    answer = deliver(state, "store", labels())
    assert kinds(answer) == [("browser", Labels)]
    late = deliver(state, "guard", hello())
    assert kinds(late) == [("guard", Welcome), ("guard", Labels)]
    assert late[1][1] == answer[0][1]
    received = decode_from_server(late[1][1])
    assert received == labels()


def test_labels_may_come_again_but_not_others():
    state = new_state()
    deliver(state, "store", hello())
    deliver(state, "store", labels())
    before = state.fingerprint()
    changed = b"x" + labels().sealed[1:]
    with pytest.raises(MessageRefused, match="'store' sent other labels than before") as refused:
        deliver(state, "store", labels(sealed=changed))
    assert refused.value.refusal is Refusal.CONFLICT
    assert state.fingerprint() == before
    assert deliver(state, "store", labels()) == []


def test_who_comes_back_is_sent_how_far_it_has_pushed():
    state = new_state()
    play(state, SCRIPTS[0][:20])
    for party in PARTIES:
        (_, raw), *_ = deliver(state, party, hello(2))
        assert decode_from_server(raw).pushed == state.coordinator.pushed(party)


def test_the_label_party_is_sent_which_epochs_it_has_scored_and_the_others_again():
    state = new_state()
    script = [(party, message) for party, message in SCRIPTS[0] if not isinstance(message, SealedMetrics)]
    answers = play(state, script)
    sums = {raw for answer in answers for to, raw in answer if isinstance(decode_from_server(raw), HeldOutTotal)}
    deliver(state, "store", metrics(2))
    welcome, *rest = (decode_from_server(raw) for _, raw in deliver(state, "store", hello(2, done=STEPS)))
    assert welcome.evaluated == (2,)
    assert [message.epoch for message in rest] == [1, 3]
    again = {raw for _, raw in deliver(state, "store", hello(2, done=STEPS))[1:]}
    assert again < sums
    assert kinds(deliver(state, "guard", hello(2, done=STEPS))) == [("guard", Welcome), ("guard", Labels)]


# Going on from the disk.


@pytest.mark.parametrize("staleness", STALENESS)
def test_opened_again_after_any_message_the_state_is_the_same_and_goes_on_the_same(staleness):
    script = SCRIPTS[staleness]
    whole = new_state(staleness=staleness)
    answers = play(whole, script)
    for stop in range(len(script) + 1):
        disk = MemoryDisk()
        state = new_state(disk, staleness=staleness)
        assert play(state, script[:stop]) == answers[:stop]
        again = new_state(disk, staleness=staleness)
        assert again.fingerprint() == state.fingerprint()
        assert play(again, script[stop:]) == answers[stop:]
        assert again.fingerprint() == whole.fingerprint()


def test_opened_again_after_every_message_the_state_is_the_same():
    whole = new_state(staleness=2)
    answers = play(whole, SCRIPTS[2])
    disk = MemoryDisk()
    for (sender, message), expected in zip(SCRIPTS[2], answers, strict=True):
        assert deliver(new_state(disk, staleness=2), sender, message) == expected
    assert new_state(disk, staleness=2).fingerprint() == whole.fingerprint()


def test_opening_writes_nothing():
    disk = MemoryDisk()
    play(new_state(disk), SCRIPTS[0][:20])
    before = dict(disk.files)
    new_state(disk)
    assert disk.files == before


def test_what_was_not_committed_is_gone_as_a_whole():
    disk = MemoryDisk()
    state = new_state(disk)
    play(state, SCRIPTS[0][:10])
    before = state.fingerprint()
    for sender, message in SCRIPTS[0][10:20]:
        state.take(sender, message)
    assert new_state(disk).fingerprint() == before
    state.commit()
    assert new_state(disk).fingerprint() == state.fingerprint()


def test_nothing_is_written_before_the_commit_and_one_commit_is_one_write():
    disk = MemoryDisk()
    state = new_state(disk)
    for sender, message in SCRIPTS[0]:
        state.take(sender, message)
    assert disk.writes == 0
    state.commit()
    assert disk.writes == 1
    state.commit()
    assert disk.writes == 1


def test_the_state_goes_on_from_a_real_folder(tmp_path):
    whole = new_state()
    play(whole, SCRIPTS[0])
    state = new_state(FolderDisk(tmp_path), rotate_bytes=2000)
    play(state, SCRIPTS[0][:25])
    state = new_state(FolderDisk(tmp_path), rotate_bytes=2000)
    play(state, SCRIPTS[0][25:])
    assert state.fingerprint() == whole.fingerprint()
    assert new_state(FolderDisk(tmp_path)).fingerprint() == whole.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize("rotate_bytes", [0, 300, 1000, 3000])
@pytest.mark.parametrize("staleness", STALENESS)
def test_snapshots_change_nothing(rotate_bytes, staleness):
    plain, disk = new_state(staleness=staleness), MemoryDisk()
    state = new_state(disk, staleness=staleness, rotate_bytes=rotate_bytes)
    for sender, message in SCRIPTS[staleness]:
        assert deliver(state, sender, message) == deliver(plain, sender, message)
        assert state.fingerprint() == plain.fingerprint()
        again = new_state(disk.copy(), staleness=staleness, rotate_bytes=rotate_bytes)
        assert again.fingerprint() == plain.fingerprint()
    assert "snapshot.1" in disk.files
    assert len(disk.files["journal"]) <= rotate_bytes + 500


def test_a_run_in_which_parties_have_checkpoints_gives_the_same_answers_with_snapshots_and_without():
    script = script_of(2, seed=3, checkpoints=True)
    plain = new_state(staleness=2)
    answers = play(plain, script)
    for rotate_bytes in (0, 1000):
        disk = MemoryDisk()
        for number, (sender, message) in enumerate(script):
            state = new_state(disk, staleness=2, rotate_bytes=rotate_bytes)
            assert deliver(state, sender, message) == answers[number]


@pytest.mark.slow
@examples(60)
@given(st.sampled_from(STALENESS), st.sampled_from([0, 700, 2000, 10**9]), st.integers(0, 80), st.data())
def test_after_a_power_cut_at_any_write_the_run_ends_the_same(staleness, rotate_bytes, writes, data):
    """Cut in an append, in saving a snapshot, between it and the new log: nothing acknowledged is lost."""
    script = SCRIPTS[staleness]
    whole = new_state(staleness=staleness)
    answers = play(whole, script)
    disk = MemoryDisk(writes_left=writes, torn=data.draw(st.integers(0, 400)))
    acknowledged = 0
    try:
        state = new_state(disk, staleness=staleness, rotate_bytes=rotate_bytes)
        for sender, message in script:
            deliver(state, sender, message)
            acknowledged += 1
    except PowerCut:
        pass
    state = new_state(disk.copy(), staleness=staleness, rotate_bytes=rotate_bytes)
    after = FINGERPRINTS[staleness].index(state.fingerprint())
    assert after in (acknowledged, acknowledged + 1)
    if after > acknowledged:
        deliver(state, *script[acknowledged])
    done = max(after, acknowledged)
    assert play(state, script[done:]) == answers[done:]
    assert state.has_finished("guard") == whole.has_finished("guard")


def test_a_power_cut_between_snapshot_and_new_log_applies_nothing_twice():
    whole = new_state()
    play(whole, SCRIPTS[0][:30])
    disk = MemoryDisk()
    state = new_state(disk)
    play(state, SCRIPTS[0][:29])
    state = new_state(disk, rotate_bytes=1)
    disk.writes_left = 2
    with pytest.raises(PowerCut):
        deliver(state, *SCRIPTS[0][29])
    assert "snapshot.1" in disk.files
    assert len(disk.files["journal"]) > 1000
    again = new_state(disk.copy(), rotate_bytes=1)
    assert again.fingerprint() == whole.fingerprint()
    assert play(again, SCRIPTS[0][30:]) == play(whole, SCRIPTS[0][30:])
    assert again.fingerprint() == whole.fingerprint()


# Damage.


def rotated(stop=30):
    """A disk with two snapshots, the state that wrote them, and the log as it was before the last of them."""
    disk, logs = MemoryDisk(), []
    state = new_state(disk, rotate_bytes=800)
    for sender, message in SCRIPTS[0][:stop]:
        logs.append(disk.files.get("journal", b""))
        deliver(state, sender, message)
    assert {"snapshot.0", "snapshot.1"} < set(disk.files)
    return disk, state, logs


def newest_snapshot(disk):
    return max(("snapshot.0", "snapshot.1"), key=lambda name: disk.files[name][8:16][::-1])


@pytest.mark.parametrize("stop", range(25, 45))
def test_a_damaged_snapshot_is_never_replaced_by_an_older_state_in_silence(stop):
    disk, _, _ = rotated(stop)
    name = newest_snapshot(disk)
    disk.files[name] = disk.files[name][:-1]
    with pytest.raises(StateCorrupt, match=r"the newest readable snapshot ends at \d+; .* a new name"):
        new_state(disk)


def test_a_snapshot_of_an_older_version_is_refused():
    disk, _, _ = rotated()
    slots = TwoSlots(disk, "snapshot")
    arrays = unpack_arrays(slots.load())
    facts = json.loads(str(arrays["facts"]))
    del facts["format"]
    slots.save(pack_arrays({**arrays, "facts": np.array(json.dumps(facts))}))
    with pytest.raises(StateCorrupt, match=r"the stored run is of an older fdml; finish it .* a new name"):
        new_state(disk)


def test_a_damaged_snapshot_is_no_loss_while_the_log_before_it_is_there():
    whole = new_state()
    play(whole, SCRIPTS[0][:30])
    disk = MemoryDisk()
    play(new_state(disk, rotate_bytes=800), SCRIPTS[0][:29])
    assert "snapshot.0" in disk.files
    state = new_state(disk, rotate_bytes=1)
    disk.writes_left = 2
    with pytest.raises(PowerCut):
        deliver(state, *SCRIPTS[0][29])
    name = newest_snapshot(disk)
    disk.files[name] = disk.files[name][:-1] + b"?"
    assert new_state(disk.copy()).fingerprint() == whole.fingerprint()


def test_a_damaged_log_is_refused():
    disk = MemoryDisk()
    play(new_state(disk), SCRIPTS[0])
    content = bytearray(disk.files["journal"])
    content[500] ^= 1
    disk.files["journal"] = bytes(content)
    with pytest.raises(StateCorrupt, match="the log 'journal' is damaged"):
        new_state(disk)


def test_the_log_of_another_run_is_not_gone_on_with():
    disk = MemoryDisk()
    play(new_state(disk), SCRIPTS[0])
    with pytest.raises(
        StateCorrupt, match=r"the log does not fit this run \(party .* run.toml .*\); give the run a new name"
    ):
        RunState.open(RunDefinition(definition_of().settings, b"x" * 32), disk)


# Parties that start again.


@pytest.mark.slow
@pytest.mark.parametrize("staleness", STALENESS)
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("rotate_bytes", [500, 10**9])
def test_a_party_that_starts_again_is_served_the_same_bytes_again(staleness, reopened, rotate_bytes):
    script = SCRIPTS[staleness]
    for stop in range(4, len(script) + 1, 3):
        disk = MemoryDisk()
        state = new_state(disk, staleness=staleness, rotate_bytes=rotate_bytes)
        answers = play(state, script[:stop])
        if reopened:
            state = new_state(disk, staleness=staleness, rotate_bytes=rotate_bytes)
        for party in PARTIES:
            before = totals(answers, party)
            for done in range(-1, len(before) + 1):
                again = deliver(state, party, hello(2, done))
                assert {to for to, _ in again} == {party}
                assert totals([again], party) == {step: raw for step, raw in before.items() if step > done}
                assert list(totals([again], party)) == sorted(totals([again], party))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_party_that_starts_again_and_repeats_its_pushes_disturbs_nobody(reopened):
    script, disk = SCRIPTS[2], MemoryDisk()
    whole = new_state(staleness=2)
    answers = play(whole, script)
    for stop in range(4, len(script), 5):
        disk = MemoryDisk()
        state = new_state(disk, staleness=2)
        play(state, script[:stop])
        if reopened:
            state = new_state(disk, staleness=2)
        deliver(state, "guard", hello(2))
        for party, message in script[:stop]:
            if party == "guard" and not isinstance(message, Hello):
                assert deliver(state, party, message) == []
        assert play(state, script[stop:]) == answers[stop:]


def test_totals_are_forgotten_after_a_checkpoint():
    state = new_state()
    answers = play(state, SCRIPTS[0])
    deliver(state, "guard", Checkpointed(5))
    again = totals([deliver(state, "guard", hello(2))], "guard")
    assert again == {step: raw for step, raw in totals(answers, "guard").items() if step > 5}
    assert len(totals([deliver(state, "browser", hello(2))], "browser")) == STEPS


def test_checkpoints_of_parties_are_not_logged():
    """After a restart the totals are there again until the party sends its checkpoint again: more than needed, never less."""
    disk = MemoryDisk()
    state = new_state(disk)
    play(state, SCRIPTS[0])
    full = state.fingerprint()
    log = disk.files["journal"]
    deliver(state, "guard", Checkpointed(5))
    forgetful = state.fingerprint()
    assert forgetful != full
    assert disk.files["journal"] == log
    again = new_state(disk)
    assert again.fingerprint() == full
    deliver(again, "guard", Checkpointed(5))
    assert again.fingerprint() == forgetful


# What is refused.


def refusals():
    """Of every kind of message one that breaks a rule beyond its form; sender, message, refusal, text."""
    state = new_state()
    play(state, SCRIPTS[0][:4])
    zero = np.zeros(4, np.int64)
    return {
        "hello of another run": ("guard", hello(run_hash=b"y" * 32), Refusal.MISMATCH, "run.toml"),
        "labels of another party": ("guard", labels(), Refusal.NOT_PERMITTED, "'guard' sent labels; only 'store' may"),
        "labels too many": ("store", labels(sealed=labels().sealed + b"x"), Refusal.INVALID, "bytes of sealed labels"),
        "labels too few": ("store", labels(sealed=labels().sealed[1:]), Refusal.INVALID, "bytes of sealed labels"),
        "classes of another task": ("store", labels(classes=3), Refusal.INVALID, "3 classes; the task is 'binary'"),
        "a step left out": ("guard", Push(9999, push(state, "guard", 1).release), Refusal.GAP, "pushed step 9999"),
        "a checkpoint before it was served": ("guard", Checkpointed(STEPS), Refusal.GAP, "has a checkpoint after step"),
        "an epoch too many": ("guard", replace(held_out("guard", 1), epoch=4), Refusal.GAP, "epoch 4 of 3"),
        "metrics of another party": ("guard", metrics(1), Refusal.NOT_PERMITTED, "'guard' sent metrics; only 'store'"),
        "metrics of an epoch too many": ("store", metrics(4), Refusal.GAP, "epoch 4 of 3"),
        "metrics of epoch 0": ("store", replace(metrics(1), epoch=0), Refusal.GAP, "epoch 0 of 3"),
        "finished before the end": ("guard", Finished(b"m" * 32), Refusal.GAP, "'guard' sent that it has finished, "),
        "a wrong size": (
            "guard",
            HeldOutPredictions(1, replace(held_out("guard", 1).release, values=zero)),
            Refusal.INVALID,
            "has 3",
        ),
    }


REFUSED = refusals()


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("stop", [3, 4, 20])
def test_a_refused_message_changes_nothing_here_or_on_disk(what, stop):
    sender, message, refusal, text = REFUSED[what]
    disk = MemoryDisk()
    state = new_state(disk)
    play(state, SCRIPTS[0][:stop])
    before, files = state.fingerprint(), dict(disk.files)
    needs_labels = isinstance(message, (Push, Checkpointed, HeldOutPredictions, Finished)) or (
        isinstance(message, SealedMetrics) and sender == "store"
    )
    early = stop == 3 and needs_labels
    with pytest.raises(MessageRefused, match="the labels have not come yet" if early else text) as refused:
        deliver(state, sender, message)
    assert refused.value.refusal is (Refusal.GAP if early else refusal)
    assert state.fingerprint() == before
    state.commit()
    assert disk.files == files


def test_labels_before_anyone_has_joined_are_refused():
    state = new_state()
    before = state.fingerprint()
    with pytest.raises(MessageRefused, match="'store' sent labels before saying hello") as refused:
        deliver(state, "store", labels())
    assert refused.value.refusal is Refusal.INVALID
    assert state.fingerprint() == before


def test_a_finished_party_cannot_finish_with_another_model():
    state = new_state()
    play(state, SCRIPTS[0])
    before = state.fingerprint()
    with pytest.raises(MessageRefused, match="'guard' finished before with another model") as refused:
        deliver(state, "guard", Finished(b"z" * 32))
    assert refused.value.refusal is Refusal.CONFLICT
    assert state.fingerprint() == before
    assert deliver(state, "guard", Finished(b"\2" * 32)) == []


TASKS = [("binary", 2), ("multiclass", 2), ("multiclass", 256), ("multiclass", 257), ("regression", 0)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("task", "classes"), TASKS)
def test_labels_of_every_task_are_taken_with_weights_or_without(task, classes, weighted):
    state = new_state(task=task)
    deliver(state, "store", hello())
    deliver(state, "store", labels(classes, task=task, weighted=weighted))
    assert state.coordinator is not None
    assert state.width == (classes if task == "multiclass" else 1)


@pytest.mark.parametrize(
    ("task", "classes", "given"),
    [
        ("binary", 2, labels(0, task="regression")),
        ("regression", 0, labels()),
        ("multiclass", 256, labels(257, task="multiclass")),
        ("multiclass", 257, labels(256, task="multiclass")),
    ],
)
def test_labels_of_another_width_than_the_task_has_are_refused(task, classes, given):
    state = new_state(task=task)
    deliver(state, "store", hello())
    plain, weighted = (len(labels(classes, task=task, weighted=each).sealed) for each in (False, True))
    rows = ROWS + HELD_OUT
    expected = f"sent {len(given.sealed)} bytes of sealed labels; {rows} rows have {plain} or, with weights, {weighted}"
    with pytest.raises(MessageRefused, match=expected) as refused:
        deliver(state, "store", replace(given, classes=classes))
    assert refused.value.refusal is Refusal.INVALID
    assert state.coordinator is None


def test_where_labels_are_private_nothing_sealed_is_taken():
    definition = definition_of()
    private = definition.settings.model_copy(update={"privacy": PrivacySettings(labels="private")})
    state = RunState.open(replace(definition, settings=private), MemoryDisk())
    deliver(state, "store", hello())
    with pytest.raises(MessageRefused, match=r"14 rows have 0$") as refused:
        deliver(state, "store", labels())
    assert refused.value.refusal is Refusal.INVALID
    deliver(state, "store", labels(sealed=b""))
    assert state.coordinator is not None


@pytest.mark.parametrize(("task", "classes"), [("multiclass", 1), ("regression", 2), ("binary", 0), ("binary", 3)])
def test_classes_that_do_not_fit_the_task_are_refused(task, classes):
    state = new_state(task=task)
    deliver(state, "store", hello())
    with pytest.raises(MessageRefused) as refused:
        deliver(state, "store", labels(classes=classes))
    assert refused.value.refusal is Refusal.INVALID
    assert state.coordinator is None


def test_metrics_of_an_epoch_may_be_sent_again():
    """After a restart the seconds in it may differ, and so the sealed bytes."""
    state = new_state()
    play(state, SCRIPTS[0])
    deliver(state, "store", replace(metrics(2), sealed=metrics(3).sealed))
    assert state.history[2].sealed == metrics(3).sealed
    assert list(state.history) == [1, 2, 3]


# Without a disk.


@pytest.mark.parametrize("staleness", STALENESS)
def test_without_a_disk_the_answers_are_the_same_and_nothing_lasts(staleness):
    lasting = new_state(staleness=staleness)
    passing = RunState(definition_of(staleness))
    assert play(passing, SCRIPTS[staleness]) == play(lasting, SCRIPTS[staleness])
    assert passing.finished
    assert list(passing.history) == list(lasting.history)
    assert not RunState(definition_of(staleness)).finished


def test_without_a_disk_refusals_are_the_same():
    for sender, message, refusal, text in REFUSED.values():
        state = RunState(definition_of())
        play(state, SCRIPTS[0][:4])
        with pytest.raises(MessageRefused, match=text) as refused:
            deliver(state, sender, message)
        assert refused.value.refusal is refusal


def test_after_a_write_that_failed_nothing_more_is_made_durable_so_that_no_answer_leaves_a_gap():
    class FullOnce(MemoryDisk):
        is_full = False

        def append(self, name, content, **options):
            if self.is_full:
                self.is_full = False
                raise OSError("No space left on device")
            super().append(name, content, **options)

    disk = FullOnce()
    state = new_state(disk)
    deliver(state, "store", hello())
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        deliver(state, "browser", hello())
    with pytest.raises(StateCorrupt, match="the log could not be written; make room"):
        state.commit()
    assert new_state(disk).incarnation("browser") == 0, "what was not durable was not acknowledged"
