"""What every channel must pass: the whole conversation of a party with the server. One more channel is one more
entry of `NETWORKS`."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fdml.align.split import split_rows
from fdml.errors import InvariantBroken, MessageRefused, PeerTimeout, Refusal
from fdml.protocol.alignment_messages import (
    SERVER,
    Consent,
    Fetch,
    KeyCheck,
    KeyOffer,
    Post,
    RowCounts,
    RowsPlan,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.messages import (
    Ack,
    Checkpointed,
    Finished,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)
from fdml.protocol.schedule import schedule_of
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from tests.contracts.networks import NETWORKS
from tests.transport.served import OFFER

PARTIES = ("ann", "bob")
ROWS, HELD_OUT = 11, 3
ALL_ROWS = ROWS + HELD_OUT
SOON = 20.0


def settings_of(*, private=False, peer_timeout_seconds=SOON, value_bits=64):
    """A run of ann, who has the labels, and bob: blocks of four rows and a last one of three, four epochs."""
    return RunSettings(
        parties=PARTIES,
        label_party="ann",
        task="multiclass" if private else "binary",
        training=TrainingSettings(
            epochs=4,
            batch_size=2,
            batches_per_block=2,
            seed=7,
            peer_timeout_seconds=peer_timeout_seconds,
            value_bits=value_bits,
        ),
        evaluation=EvaluationSettings(holdout=HELD_OUT / ALL_ROWS),
        privacy=PrivacySettings(labels="private" if private else "shared"),
    )


class Run:
    """Two parties' channels, and what each has been given."""

    def __init__(self, network, settings):
        self.network = network
        self.settings = settings
        self.schedule = schedule_of(ROWS, settings.training)
        self.width = 2 if settings.privacy.labels == "private" else 1
        self.channels = {party: network.channel(party) for party in PARTIES}
        self.given = {party: [] for party in PARTIES}

    @property
    def state(self):
        return self.network.session.state

    def take_in(self):
        """Poll all that has come."""
        for party, channel in self.channels.items():
            while (message := channel.poll()) is not None:
                self.given[party].append(message)

    def received(self, party, kind):
        self.take_in()
        return [message for message in self.given[party] if isinstance(message, kind)]

    def until(self, party, kind, count=1):
        """Wait for so many messages of a kind; gives them."""
        self.network.settle(lambda: len(self.received(party, kind)) >= count)
        return self.received(party, kind)

    def stored(self):
        """Wait until the server has stored all that was sent."""
        self.network.settle(lambda: all(channel.all_stored for channel in self.channels.values()))

    def offer(self):
        """Let all parties offer their rows, and wait for the plan that follows from it."""
        for channel in self.channels.values():
            channel.send(Post(OFFER))
            channel.send(Fetch(RowsPlan, SERVER))
        for party in self.channels:
            self.until(party, RowsPlan)

    def align(self):
        self.offer()
        for channel in self.channels.values():
            channel.send(Post(Tokens(by_position=RowCounts(ALL_ROWS))))
            channel.send(Fetch(RowSummary, SERVER))
        for party, channel in self.channels.items():
            self.until(party, RowSummary)
            channel.send(Post(Consent(True)))
            channel.send(Fetch(SharedRowIndex, SERVER))
        return {party: self.until(party, SharedRowIndex)[0] for party in PARTIES}

    def hello(self, done=-1):
        digest = self.received("ann", SharedRowIndex)[0].digest
        return Hello(run_hash(self.settings), digest, ROWS, HELD_OUT, 1, done)

    def labels(self):
        if self.settings.privacy.labels == "private":
            return Labels(2)
        return Labels(2, bytes(Labels.sealed_size("binary", 2, ALL_ROWS)))

    def join(self):
        """Everything up to the labels."""
        self.align()
        for channel in self.channels.values():
            channel.send(self.hello())
        self.channels["ann"].send(self.labels())
        self.until("bob", Labels)
        return self

    def values(self, party, step):
        shape = (self.schedule.visit(step).size, self.width)
        return np.random.default_rng([PARTIES.index(party), step]).integers(-(2**35), 2**35, shape)

    def sum_of(self, step):
        return sum(self.values(party, step) for party in PARTIES)

    def send_refused(self, party, message):
        """Send something that is refused, and raise what the channel raises then or later."""
        self.channels[party].send(message)
        self.network.raise_refusal(self.channels[party])

    def push(self, party, step):
        self.channels[party].send(Push(step, Release(self.values(party, step))))


def runs_over(kind):
    """Gives what makes runs over one kind of network; all are closed in the end."""
    made = []

    def make(**options):
        settings = settings_of(**options)
        made.append(kind(settings, rows=ROWS, held_out=HELD_OUT))
        return Run(made[-1], settings)

    yield make
    for network in made:
        network.close()


@pytest.fixture(params=NETWORKS)
def begin(request):
    yield from runs_over(NETWORKS[request.param])


@pytest.fixture(params=[name for name, kind in NETWORKS.items() if kind.can_break])
def breakable(request):
    """A run over lines that can break."""
    for begin in runs_over(NETWORKS[request.param]):
        yield begin()


@pytest.fixture(params=[name for name, kind in NETWORKS.items() if kind.can_wait])
def blocking(request):
    """A run over channels that a thread can wait at, with a short peer timeout."""
    kind = NETWORKS[request.param]
    for begin in runs_over(kind):
        yield begin(peer_timeout_seconds=kind.peer_timeout)


# Alignment.


def test_what_one_party_posts_the_other_fetches(begin):
    run = begin()
    run.offer()
    offer = KeyOffer(b"p" * 32)
    run.channels["bob"].send(Fetch(KeyOffer, "ann"))
    assert run.received("bob", KeyOffer) == []
    assert not run.channels["bob"].has_message
    run.channels["ann"].send(Post(offer))
    assert run.until("bob", KeyOffer) == [offer]
    run.stored()


def test_alignment_requests_are_answered_in_order_and_each_once(begin):
    run = begin()
    run.offer()
    for party, byte in (("ann", b"a"), ("bob", b"b")):
        run.channels[party].send(Post(KeyOffer(byte * 32)))
        run.channels[party].send(Post(KeyCheck(byte * 32)))
    for kind, sender in ((KeyCheck, "bob"), (KeyOffer, "bob"), (KeyCheck, "bob")):
        run.channels["ann"].send(Fetch(kind, sender))
    run.network.settle(lambda: len(run.received("ann", KeyOffer | KeyCheck)) >= 3)
    assert run.received("ann", KeyOffer | KeyCheck) == [KeyCheck(b"b" * 32), KeyOffer(b"b" * 32), KeyCheck(b"b" * 32)]


def test_all_parties_find_the_same_shared_rows(begin):
    found = begin().align()
    assert found["ann"].digest == found["bob"].digest
    assert found["bob"].train.tolist() == list(range(ALL_ROWS))
    assert len(split_rows(ALL_ROWS, HELD_OUT / ALL_ROWS, 7)[0]) == ROWS


def test_a_refused_post_ends_the_line_of_its_sender_only(begin):
    run = begin()
    run.offer()
    with pytest.raises((MessageRefused, InvariantBroken), match="party 'bob' has a file without rows"):
        run.send_refused("bob", Post(Tokens(by_position=RowCounts(0))))
    run.channels["ann"].send(Post(KeyOffer(b"p" * 32)))
    run.network.settle(lambda: run.channels["ann"].all_stored)


# Training.


def test_a_party_is_welcomed_and_gets_the_labels(begin):
    run = begin().join()
    assert run.until("bob", Welcome) == [Welcome(-1)]
    assert run.received("bob", Labels) == [run.labels()]
    assert run.until("ann", Welcome) == [Welcome(-1)]
    assert run.received("ann", Labels) == []


def test_a_push_of_each_party_gives_both_the_sum(begin):
    run = begin().join()
    for party in PARTIES:
        run.push(party, 0)
    for party in PARTIES:
        (total,) = run.until(party, Total)
        assert (total.step, total.pushed_at) == (0, (0, 0))
        np.testing.assert_array_equal(total.values.reshape(-1, 1), run.sum_of(0))


def test_many_messages_arrive_in_order_and_each_total_is_given_once(begin):
    run = begin().join()
    for step in range(run.schedule.steps):
        for party in PARTIES:
            run.push(party, step)
    for party in PARTIES:
        totals = run.until(party, Total, run.schedule.steps)
        assert [total.step for total in totals] == list(range(run.schedule.steps))
        for total in totals:
            np.testing.assert_array_equal(total.values.reshape(-1, 1), run.sum_of(total.step))
    run.stored()
    assert run.network.session.status.refused == {}


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_differences_of_few_bits_come_back_as_the_sum_of_the_differences(begin, bits):
    run = begin(value_bits=bits).join()
    most, sums = 2 ** (bits - 1) - 1, []
    for step in range(run.schedule.steps):
        shape, is_first = (run.schedule.visit(step).size, 1), step < run.schedule.blocks
        parts = [np.random.default_rng([step, at]).integers(-most, most, shape, endpoint=True) for at in range(2)]
        for party, part in zip(PARTIES, parts, strict=True):
            codes = part.astype(np.int16)
            run.channels[party].send(Push(step, Release(codes) if is_first else Release(codes, 0, 0.0, bits, 2)))
        sums.append((parts[0] + parts[1], is_first))
    for party in PARTIES:
        for total, (expected, is_first) in zip(run.until(party, Total, len(sums)), sums, strict=True):
            away = (total.values.reshape(-1, 1) - expected) % (1 if is_first else 2**bits)
            assert (total.bits, total.values.dtype, np.count_nonzero(away)) == (0 if is_first else bits, np.int16, 0)
            assert not is_first or np.array_equal(total.values.reshape(-1, 1), expected)
    assert run.network.session.status.refused == {}


def test_what_was_sent_is_stored_at_the_server(begin):
    run = begin().join()
    for step in range(3):
        run.push("ann", step)
    run.stored()
    assert run.state.coordinator.pushed("ann") == 2
    assert run.channels["ann"].unacknowledged() == []


def test_acknowledgements_and_waits_are_not_given(begin):
    run = begin().join()
    run.push("ann", 0)
    run.stored()
    run.push("bob", 0)
    run.until("ann", Total)
    assert {type(message) for message in run.given["ann"]} <= {RowsPlan, RowSummary, SharedRowIndex, Welcome, Total}
    assert not {Ack, Waiting} & {type(message) for message in run.given["bob"]}


def test_has_message_says_whether_poll_gives_something(begin):
    run = begin().join()
    run.until("ann", Welcome)
    run.until("bob", Welcome)
    ann = run.channels["ann"]
    assert not ann.has_message
    assert ann.poll() is None
    run.push("ann", 0)
    run.push("bob", 0)
    run.network.settle(lambda: ann.has_message)
    assert isinstance(ann.poll(), Total)
    assert ann.poll() is None


def test_held_out_predictions_go_to_the_label_party_and_metrics_to_the_server(begin):
    run = begin().join()
    parts = {party: np.arange(HELD_OUT) + PARTIES.index(party) for party in PARTIES}
    for party in PARTIES:
        run.channels[party].send(HeldOutPredictions(1, Release(parts[party])))
    (total,) = run.until("ann", HeldOutTotal)
    np.testing.assert_array_equal(total.values, parts["ann"] + parts["bob"])
    run.channels["ann"].send(SealedMetrics(1))
    run.stored()
    assert run.state.history == {1: SealedMetrics(1)}
    assert run.received("bob", HeldOutTotal) == []


def test_with_private_labels_a_gradient_comes_instead_of_the_total(begin):
    run = begin(private=True).join()
    for party in PARTIES:
        run.push(party, 0)
    (total,) = run.until("ann", Total)
    gradient = Gradient(0, Release(total.values + 1, mask_id=1))
    run.channels["ann"].send(gradient)
    (given,) = run.until("bob", Gradient)
    np.testing.assert_array_equal(given.release.values.reshape(-1), gradient.release.values.reshape(-1))
    assert run.received("bob", Total) == []


def test_a_party_that_stops_ends_the_run_for_both(begin):
    run = begin().join()
    run.channels["bob"].send(Stop(0))
    for party in PARTIES:
        assert run.until(party, Stopped) == [Stopped("bob", 0)]


def test_a_run_goes_to_its_end(begin):
    run = begin().join()
    for step in range(run.schedule.steps):
        for party in PARTIES:
            run.push(party, step)
        for party in PARTIES:
            run.until(party, Total, step + 1)
            run.channels[party].send(Checkpointed(step))
    for party in PARTIES:
        run.channels[party].send(Finished(b"m" * 32))
    run.stored()
    assert run.state.finished
    for channel in run.channels.values():
        channel.close()


# Refusals.


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (SealedMetrics(1), Refusal.NOT_PERMITTED),
        (Finished(b"m" * 32), Refusal.GAP),
        (Stop(9), Refusal.GAP),
    ],
    ids=["what is for others to send", "the end before the end", "a stop out of turn"],
)
def test_a_refused_message_raises_and_the_other_party_goes_on(begin, message, refusal):
    run = begin().join()
    with pytest.raises(MessageRefused) as refused:
        run.send_refused("bob", message)
    assert refused.value.refusal is refusal
    run.push("ann", 0)
    run.network.settle(lambda: run.channels["ann"].all_stored)


# Waits.


def test_a_wait_ends_as_soon_as_the_message_comes(blocking):
    run = blocking.join()
    run.push("ann", 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run.channels["ann"].wait, lambda: bool(run.received("ann", Total)), "at step 0 for {}")
        run.push("bob", 0)
        waiting.result(SOON)
    np.testing.assert_array_equal(run.received("ann", Total)[0].values.reshape(-1, 1), run.sum_of(0))


@pytest.mark.slow
def test_a_wait_that_is_too_long_names_the_silent_party_and_can_be_taken_up_again(blocking):
    """Once the run is under way, with its first total."""
    run = blocking.join()
    for party in PARTIES:
        run.push(party, 0)
    run.channels["ann"].wait(lambda: len(run.received("ann", Total)) == 1, "at step 0 for {}")
    run.push("ann", 1)
    seconds = run.settings.training.peer_timeout_seconds
    with pytest.raises(PeerTimeout, match=rf"party 'ann' waited {seconds:g} s at step 1 for 'bob'; "):
        run.channels["ann"].wait(lambda: len(run.received("ann", Total)) == 2, "at step 1 for {}")
    run.push("bob", 1)
    run.channels["ann"].wait(lambda: len(run.received("ann", Total)) == 2, "at step 1 for {}")


# Broken lines.


def test_after_a_broken_line_everything_still_arrives_once(breakable):
    run = breakable.join()
    for step in range(run.schedule.steps):
        for party in PARTIES:
            run.push(party, step)
        if step % 5 == 2:
            run.network.break_lines()
    for party in PARTIES:
        totals = run.until(party, Total, run.schedule.steps)
        assert [total.step for total in totals] == list(range(run.schedule.steps))
        for total in totals:
            np.testing.assert_array_equal(total.values.reshape(-1, 1), run.sum_of(total.step))
    run.stored()
    assert run.network.session.status.refused == {}
    assert len(run.received("bob", Labels)) == 1


def test_a_line_that_breaks_while_nothing_is_sent_comes_back(breakable):
    run = breakable.join()
    for party in PARTIES:
        run.push(party, 0)
        run.until(party, Welcome)
    run.stored()
    run.network.break_lines()
    for party in PARTIES:
        assert run.until(party, Welcome, 2)[1] == Welcome(0)
    for party in PARTIES:
        run.push(party, 1)
    for party in PARTIES:
        assert [total.step for total in run.until(party, Total, 2)] == [0, 1]


def test_metrics_and_held_out_totals_survive_a_broken_line(breakable):
    run = breakable.join()
    for party in PARTIES:
        run.channels[party].send(HeldOutPredictions(1, Release(np.arange(HELD_OUT))))
    run.network.break_lines()
    run.until("ann", HeldOutTotal)
    run.channels["ann"].send(SealedMetrics(1))
    run.network.break_lines()
    run.stored()
    assert list(run.state.history) == [1]
    assert len(run.received("ann", HeldOutTotal)) == 1


def test_an_alignment_goes_on_over_broken_lines(breakable):
    run, alignment = breakable, breakable.network.session.alignment
    run.offer()
    run.channels["bob"].send(Fetch(KeyCheck, "ann"))
    run.channels["ann"].send(Post(KeyOffer(b"p" * 32)))
    run.network.settle(lambda: run.channels["ann"].all_stored and alignment.presence.is_here("bob"))
    run.network.break_lines()
    run.channels["ann"].send(Post(KeyCheck(b"c" * 32)))
    assert run.until("bob", KeyCheck) == [KeyCheck(b"c" * 32)]
    run.stored()


def test_what_a_restarted_party_would_not_make_again_is_known_until_it_is_stored(breakable):
    run = breakable.join()
    metrics = SealedMetrics(1)
    run.network.break_lines()
    run.channels["ann"].send(metrics)
    assert run.channels["ann"].unacknowledged() in ([metrics], [])
    run.stored()
    assert run.channels["ann"].unacknowledged() == []
    assert run.state.history == {1: metrics}


def test_a_closed_channel_leaves_the_server_to_the_others(begin):
    run = begin().join()
    run.push("bob", 0)
    run.stored()
    run.channels["bob"].close()
    run.push("ann", 0)
    assert run.until("ann", Total)[0].step == 0
