from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.party.delivery import Delivery
from fdml.protocol.messages import (
    Ack,
    Checkpointed,
    Finished,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Metrics,
    Push,
    Release,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)

HELLO = Hello(b"r" * 32, b"a" * 32, 10, 2, 3, done=-1)


def push(step):
    return Push(step, Release(np.array([step])))


def total(step):
    return Total(step, np.array([10 * step]), (step, step))


def gradient(step):
    return Gradient(step, Release(np.array([step]), 9))


def posted(*messages):
    courier = Delivery(HELLO)
    courier.connect()
    for message in messages:
        courier.post(message)
    return courier


def test_a_new_line_begins_with_hello_and_all_that_is_not_stored_in_order():
    messages = [push(0), push(1), HeldOutPredictions(1, Release(np.zeros(1, np.int64))), Checkpointed(0)]
    courier = Delivery(HELLO)
    assert courier.connect() == [HELLO]
    for message in messages:
        courier.post(message)
    assert courier.connect() == [HELLO, *messages]
    assert courier.connect() == [HELLO, *messages]


def test_what_is_stored_is_not_sent_again():
    courier = posted(push(0), push(1), push(2))
    courier.hear(Ack(1))
    assert courier.connect()[1:] == [push(0), push(1), push(2)]
    courier.hear(Ack(3))
    assert courier.connect()[1:] == [push(2)]


def test_counts_begin_anew_with_every_line_and_hello_counts():
    courier = posted(push(0), push(1), push(2))
    courier.hear(Ack(2))
    courier.connect()
    courier.hear(Ack(1))
    assert not courier.all_stored
    courier.hear(Ack(2))
    assert courier.connect()[1:] == [push(2)]
    courier.hear(Ack(2))
    assert courier.all_stored


def test_a_count_that_comes_twice_or_late_is_counted_once():
    courier = posted(push(0), push(1), push(2))
    for count in (2, 2, 1, 2):
        courier.hear(Ack(count))
    assert courier.connect()[1:] == [push(1), push(2)]


def test_a_count_of_more_than_was_sent_takes_no_later_message():
    courier = posted(push(0))
    courier.hear(Ack(9))
    assert courier.all_stored
    courier.post(push(1))
    assert courier.connect()[1:] == [push(1)]


def test_messages_posted_without_a_line_go_out_with_the_next():
    courier = Delivery(HELLO)
    courier.post(push(0))
    assert courier.connect() == [HELLO, push(0)]
    courier.hear(Ack(2))
    assert courier.all_stored


def test_the_party_is_welcome_once_per_line():
    courier = Delivery(HELLO)
    courier.connect()
    assert not courier.welcomed
    courier.hear(Welcome(4, (1, 2)))
    assert courier.welcomed
    assert courier.evaluated == {1, 2}
    courier.connect()
    assert not courier.welcomed


def test_a_total_is_given_out_once():
    courier = posted(push(0))
    assert courier.take(0) is None
    courier.hear(total(0))
    assert courier.take(0) == total(0)
    assert courier.take(0) is None


def test_a_gradient_is_an_answer_as_a_total_is():
    courier = posted(push(0), push(1))
    courier.hear(gradient(0))
    assert courier.connect()[1:] == [push(1)]
    assert courier.take(0) == gradient(0)
    courier.hear(gradient(0))
    assert courier.take(0) is None


def test_a_gradient_of_its_own_is_sent_until_it_is_stored():
    """That the party was answered says nothing of what it made of the answer."""
    courier = posted(push(0), gradient(0))
    courier.hear(total(0))
    assert courier.connect()[1:] == [gradient(0)]


def test_the_end_answers_every_step_that_has_no_answer_of_its_own():
    courier = posted(push(0), push(1), push(2))
    courier.hear(total(1))
    courier.hear(Stopped("browser", 1))
    assert courier.take(0) is None
    assert courier.take(1) == total(1)
    assert courier.take(1) == courier.take(2) == Stopped("browser", 1)
    assert courier.done == 1, "the end is no total: nothing was done with step 2"


@pytest.mark.parametrize("steps", [(3, 1), (1, 3), (3, 1, 2)])
def test_of_several_ends_the_first_counts_in_whatever_order_they_come(steps):
    courier = Delivery(HELLO)
    for step in steps:
        courier.hear(Stopped(f"party {step}", step))
    assert courier.take(0) is None
    assert courier.take(1) == Stopped("party 1", 1)


def test_an_epoch_is_settled_once_its_sum_has_come_or_was_judged_or_never_comes():
    courier = Delivery(HELLO)
    courier.hear(HeldOutTotal(1, np.array([5])))
    courier.hear(Welcome(4, (2,)))
    assert [courier.is_settled(epoch, 3) for epoch in (1, 2, 3, 4)] == [True, True, False, False]
    courier.hear(Stopped("browser", 9))
    assert [courier.is_settled(epoch, 3) for epoch in (3, 4)] == [False, True]
    courier.hear(Stopped("guard", 8))
    assert courier.is_settled(3, 3), "two blocks of the third epoch are not all of it"


def test_a_total_that_comes_again_after_it_was_taken_is_dropped():
    courier = posted(push(0), push(1))
    for step in (0, 1):
        courier.hear(total(step))
    courier.take(0)
    courier.hear(total(0))
    courier.hear(total(1))
    assert sorted(courier.answers) == [1]


def test_hello_says_which_totals_are_done():
    courier = posted(push(0), push(1))
    for step in (0, 1):
        courier.hear(total(step))
    assert courier.connect()[0].done == -1
    courier.take(0)
    assert courier.connect()[0].done == 0
    assert courier.connect()[0].incarnation == HELLO.incarnation


def test_a_courier_that_starts_behind_wants_no_older_totals():
    courier = Delivery(Hello(b"r" * 32, b"a" * 32, 10, 2, 3, done=4))
    courier.hear(total(4))
    courier.hear(total(5))
    assert sorted(courier.answers) == [5]
    assert courier.connect()[0].done == 4


def test_a_push_that_was_answered_is_not_sent_again():
    """Its total shows that it was stored; the server may have forgotten it since, as the party has kept its state."""
    courier = posted(push(0), push(1), Checkpointed(0))
    courier.hear(total(0))
    assert courier.connect()[1:] == [push(1), Checkpointed(0)]
    courier.hear(Ack(3))
    assert courier.all_stored


def test_an_answer_does_not_disturb_the_count_of_the_line_it_came_by():
    courier = posted(push(0), push(1), push(2))
    courier.hear(total(0))
    courier.hear(Ack(2))
    assert courier.connect()[1:] == [push(1), push(2)]


def test_a_verdict_is_given_out_once_though_it_comes_on_every_line():
    courier = Delivery(HELLO)
    verdict = HeldOutTotal(1, np.array([5]))
    for _ in range(2):
        courier.connect()
        courier.hear(verdict)
    assert courier.verdicts.pop(1) is verdict
    courier.connect()
    courier.hear(verdict)
    assert courier.verdicts == {}


def test_letters_are_the_gradients_trials_and_metrics_that_are_not_known_to_be_stored():
    """Pushes are in the worker's own state, and it says again that it stops; these would be lost with the process."""
    trial, metrics = HeldOutPredictions(1, Release(np.zeros(1, np.int64))), Metrics(1, 1.0, 0.5, 0.5, 0.9)
    courier = posted(push(0), trial, gradient(0), push(1), metrics, Checkpointed(0), Stop(2))
    assert courier.unacknowledged == [trial, gradient(0), metrics]
    courier.hear(Ack(3))
    assert courier.unacknowledged == [gradient(0), metrics]
    courier.connect()
    assert courier.unacknowledged == [gradient(0), metrics]
    courier.hear(Ack(4))
    assert courier.unacknowledged == []


def test_verdicts_are_taken_for_the_epochs_asked_for_and_others_wait():
    courier = Delivery(HELLO)
    for epoch in (3, 1, 2):
        courier.hear(HeldOutTotal(epoch, np.array([epoch])))
    assert [verdict.epoch for verdict in courier.take_verdicts({2, 1, 7})] == [1, 2]
    assert courier.take_verdicts({1, 2}) == []
    assert [verdict.epoch for verdict in courier.take_verdicts([3])] == [3]


def test_labels_and_whom_to_wait_for_are_kept():
    courier = Delivery(HELLO)
    given = Labels(2, b"sealed")
    courier.hear(given)
    assert courier.labels is given
    courier.hear(Waiting(("browser",)))
    assert courier.waits_for == ("browser",)
    courier.hear(total(0))
    assert courier.waits_for == ()


class PlainServer:
    """Stores what comes, says how much of the line is stored, answers every push; its words may be lost on the way."""

    def __init__(self):
        self.stored, self.line = [], deque()

    def connect(self, messages):
        self.line, self.taken = deque(messages), 0

    def take(self):
        """Act on the line's next message; gives what is said back, in order."""
        message = self.line.popleft()
        self.taken += 1
        said = []
        if isinstance(message, Hello):
            done = {each.step for each in self.stored if isinstance(each, Push)}
            said = [Welcome(max(done, default=-1)), *(total(step) for step in sorted(done) if step > message.done)]
        elif message not in self.stored:
            self.stored.append(message)
            said = [total(message.step)] if isinstance(message, Push) else []
        return [*said, Ack(self.taken)]


@given(st.data())
def test_over_any_line_that_breaks_anywhere_everything_is_stored_once_and_in_order(data):
    courier, server = Delivery(HELLO), PlainServer()
    messages = deque(
        [
            push(0),
            push(1),
            HeldOutPredictions(1, Release(np.zeros(1, np.int64))),
            Checkpointed(0),
            push(2),
            Finished(b"m" * 32),
        ]
    )
    everything, taken = list(messages), []
    server.connect(courier.connect())
    for breaks in range(200):
        action = data.draw(st.sampled_from(["post", "take", "break"])) if breaks < 60 else "take"
        if action == "post" and messages:
            courier.post(messages[0])
            server.line.append(messages.popleft())
        elif action == "take" and server.line:
            words = server.take()
            heard = data.draw(st.integers(0, len(words))) if breaks < 60 else len(words)
            for word in words[:heard]:
                courier.hear(word)
            if heard < len(words):
                server.connect(courier.connect())
        elif action == "break":
            server.connect(courier.connect())
        while (got := courier.take(len(taken))) is not None:
            taken.append(got.step)
        if breaks >= 60 and messages:
            courier.post(messages[0])
            server.line.append(messages.popleft())
        if not server.line and not courier.all_stored:
            server.connect(courier.connect())
    assert server.stored == everything
    assert courier.all_stored
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("count", [0, 1])
def test_storing_hello_stores_nothing_else(count):
    courier = posted(push(0))
    courier.hear(Ack(count))
    assert not courier.all_stored
