"""The driver, on sessions that are written down effect by effect."""

from pathlib import Path

import pytest

from fdml.errors import ExchangeError, FdmlError, PeerTimeout
from fdml.events import Remark
from fdml.party.checkpoint import Checkpoint, FinishedModel, Progress, SavedState
from fdml.party.driver import SessionDriver, run_alignment, run_session
from fdml.party.effects import (
    Emit,
    Flush,
    PartyResult,
    Receive,
    SaveAlignment,
    SaveCheckpoint,
    SaveResult,
    Send,
    WriteBundle,
    WriteStatement,
)
from fdml.party.session import PartySession
from fdml.privacy.statement import Statement
from fdml.protocol.messages import Checkpointed, SealedMetrics, Stop, Welcome
from tests.party.sessions import STORE, Clock, ScriptedChannel, SmallRun, hold, training_part

STATEMENT = Statement("run", STORE, plain_line=False, spent=(), exposures=())
RESULT = FinishedModel({}, b"m" * 32, reported=False)
CHECKPOINT = Checkpoint({}, 3, {}, Progress())
BUNDLE = WriteBundle(
    parameters={}, calibration=None, labels=None, evaluated=None, spent=(), alignment_hash=b"a" * 32, model=None
)


class Delivered:
    """Stands where a session stands, for what is brought to it."""

    def __init__(self):
        self.messages = []

    def deliver(self, message):
        self.messages.append(message)


class Calls:
    """A store that writes down what it is asked to keep."""

    def __init__(self):
        self.calls = []

    def write_bundle(self, bundle):
        self.calls.append(("write_bundle", bundle))
        return Path("model")

    def __getattr__(self, name):
        return lambda value: self.calls.append((name, value))


class WaitingChannel(ScriptedChannel):
    """A channel on which the next message comes while it is waited for, or an error does."""

    def __init__(self, coming, error=None):
        super().__init__([])
        self._coming, self._error, self.waits = list(coming), error, []

    def wait(self, ready, what):
        self.waits.append(what)
        if not self._coming:
            raise self._error
        self._script.append(self._coming.pop(0))
        assert ready()


def effects(*each, result="end"):
    yield from each
    return result


def driver_of(work, channel=None, store=None):
    channel = channel or ScriptedChannel([])
    session, events = Delivered(), []
    return SessionDriver(work, session, channel, store or Calls(), events.append), session, channel, events


@pytest.fixture(scope="module")
def shared():
    return hold(SmallRun())[STORE].store.shared_rows()


def test_every_effect_is_carried_out_in_its_order(shared):
    store = Calls()
    work = effects(
        Emit(Remark(STORE, "hello")),
        SaveAlignment(shared),
        Send(Stop(4)),
        SaveCheckpoint(CHECKPOINT),
        WriteStatement(STATEMENT),
        BUNDLE,
        Flush(),
        SaveResult(RESULT),
    )
    driver, _, channel, events = driver_of(work, store=store)
    assert not driver.advance()
    assert [name for name, _ in store.calls] == [
        "save_alignment", "save_checkpoint", "write_statement", "write_bundle", "save_result"
    ]  # fmt: skip
    assert (events, channel.sent) == ([Remark(STORE, "hello")], [Stop(4)])
    assert (driver.result, driver.bundle) == ("end", Path("model"))


def test_an_effect_is_carried_out_before_the_next_is_asked_for():
    channel, seen = ScriptedChannel([]), []

    def work():
        yield Send(Stop(1))
        seen.append(list(channel.sent))
        yield Send(Stop(2))

    driver_of(work(), channel)[0].advance()
    assert seen == [[Stop(1)]]


def test_a_message_is_delivered_for_each_receive():
    channel = ScriptedChannel([Welcome(1), Welcome(2)])
    driver, session, _, _ = driver_of(effects(Receive("for {}"), Receive("for {}"), Receive("at last for {}")), channel)
    assert driver.advance()
    assert session.messages == [Welcome(1), Welcome(2)]
    assert (driver.is_ready, driver.is_waiting, driver.waits_for) == (False, True, "at last for {}")


def test_a_flush_is_ready_once_everything_is_stored():
    channel = ScriptedChannel([])
    channel.all_stored = False
    driver, *_ = driver_of(effects(Flush()), channel)
    assert driver.advance()
    assert driver.is_waiting
    channel.all_stored = True
    assert not driver.advance()
    assert driver.has_ended


def test_a_checkpoint_is_saved_with_what_the_channel_has_not_delivered():
    store, channel = Calls(), ScriptedChannel([])
    channel.on_their_way = [SealedMetrics(1)]
    driver_of(effects(SaveCheckpoint(CHECKPOINT)), channel, store)[0].advance()
    ((_, saved),) = store.calls
    assert (saved.step, saved.unacknowledged) == (3, (SealedMetrics(1),))


def test_an_alignment_is_saved_with_the_bytes_that_travelled(shared):
    store = Calls()
    driver_of(effects(SaveAlignment(shared)), store=store)[0].advance()
    ((_, saved),) = store.calls
    assert (saved.report.bytes_sent, saved.report.bytes_received) == ScriptedChannel.traffic
    assert saved.digest == shared.digest


def test_a_session_that_has_not_ended_has_no_result():
    driver, *_ = driver_of(effects(Receive("for {}")))
    with pytest.raises(FdmlError, match="has not ended"):
        _ = driver.result


def test_one_step_carries_out_one_effect():
    driver, _, channel, _ = driver_of(effects(Send(Stop(1)), Send(Stop(2))))
    driver.step()
    assert (channel.sent, driver.has_ended) == ([Stop(1)], False)
    driver.step()
    assert (channel.sent, driver.has_ended) == ([Stop(1), Stop(2)], True)


# Errors


def test_an_error_of_an_effect_is_raised_inside_the_session_which_may_know_a_way_out():
    def work():
        try:
            yield Send(Stop(1))
        except ExchangeError as error:
            yield Emit(Remark(STORE, str(error)))
        return "saved"

    channel = ScriptedChannel([], failing={Stop: ExchangeError("the line is gone")})
    driver, _, _, events = driver_of(work(), channel)
    assert not driver.advance()
    assert events == [Remark(STORE, "the line is gone")]
    assert driver.result == "saved"


def test_an_error_that_the_session_does_not_know_ends_it_and_no_later_effect_is_carried_out():
    channel = ScriptedChannel([], failing={Stop: ExchangeError("the line is gone")})
    driver, *_ = driver_of(effects(Send(Stop(1)), Send(Checkpointed(1))), channel)
    with pytest.raises(ExchangeError, match="the line is gone"):
        driver.advance()
    assert channel.sent == []


def test_a_store_that_fails_fails_the_party():
    class Full(Calls):
        def save_checkpoint(self, checkpoint):
            raise OSError("no space left")

    driver, _, channel, _ = driver_of(effects(SaveCheckpoint(CHECKPOINT), Send(Stop(1))), store=Full())
    with pytest.raises(OSError, match="no space left"):
        driver.advance()
    assert channel.sent == [], "nothing leaves after a save that failed"


def test_a_message_that_another_thread_took_is_an_error_and_no_wait_for_ever():
    class Stolen(ScriptedChannel):
        has_message = True

    driver, *_ = driver_of(effects(Receive("for {}")), Stolen([]))
    with pytest.raises(FdmlError, match="another thread has taken it"):
        driver.advance()


# In the calling thread


def side_session(side):
    """A further start of a party that has aligned its rows."""
    return PartySession(SmallRun().member(STORE, shared=side.store.shared_rows()), SavedState(), Clock())


def test_run_session_waits_on_the_channel_and_gives_the_result_with_the_bundle():
    side = hold(SmallRun())[STORE]
    channel = WaitingChannel(training_part(side))
    found = run_session(side_session(side), channel, Calls(), lambda _: None)
    assert isinstance(found, PartyResult)
    assert found.model_hash == side.result.model_hash
    assert found.bundle == Path("model")
    assert list(dict.fromkeys(channel.waits)) == [
        *(f"at step {step} for {{}}" for step in range(4)),
        *(f"for {{}} to predict the held-out rows of epoch {epoch}" for epoch in (1, 2)),
    ]
    assert len(channel.waits) == len(training_part(side))


def test_a_wait_that_ends_in_an_error_is_raised_to_the_caller():
    side = hold(SmallRun())[STORE]
    channel = WaitingChannel([], PeerTimeout("party 'store' waited 5 s at step 0 for 'browser'"))
    with pytest.raises(PeerTimeout, match="at step 0 for 'browser'"):
        run_session(side_session(side), channel, Calls(), lambda _: None)
    assert channel.waits == ["at step 0 for {}"]


def test_run_alignment_aligns_and_does_nothing_else():
    side = hold(SmallRun())[STORE]
    channel = WaitingChannel([])
    found = run_alignment(side_session(side), channel, Calls(), lambda _: None)
    assert found.digest == side.store.shared_rows().digest
    assert channel.sent == []
