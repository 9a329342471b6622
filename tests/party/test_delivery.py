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
    Push,
    Release,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)
from fdml.protocol.waited_for import WaitedFor

HELLO = Hello(b"r" * 32, b"a" * 32, 10, 2, 3, done=-1)


def push(step):
    return Push(step, Release(np.array([step])))


def total(step):
    return Total(step, np.array([10 * step]), (step, step))


def gradient(step):
    return Gradient(step, Release(np.array([step]), 9))


def held_out(epoch=1):
    return HeldOutPredictions(epoch, Release(np.zeros(1, np.int64)))


def sent(*messages):
    """A delivery on its first line, in charge of these messages."""
    delivery = Delivery(HELLO)
    delivery.connect()
    for message in messages:
        delivery.enqueue(message)
    return delivery


def polled(delivery):
    """All that has come and was not given yet."""
    messages = []
    while delivery.has_message:
        messages.append(delivery.poll())
    assert delivery.poll() is None
    return messages


def test_a_new_line_begins_with_hello_and_all_that_is_not_stored_in_order():
    messages = [push(0), push(1), held_out(), Checkpointed(0)]
    delivery = Delivery(HELLO)
    assert delivery.connect() == [HELLO]
    for message in messages:
        delivery.enqueue(message)
    assert delivery.connect() == [HELLO, *messages]
    assert delivery.connect() == [HELLO, *messages]


def test_what_is_stored_is_not_sent_again():
    delivery = sent(push(0), push(1), push(2))
    delivery.receive(Ack(1))
    assert delivery.connect()[1:] == [push(0), push(1), push(2)]
    delivery.receive(Ack(3))
    assert delivery.connect()[1:] == [push(2)]


def test_counts_begin_anew_with_every_line_and_hello_counts():
    delivery = sent(push(0), push(1), push(2))
    delivery.receive(Ack(2))
    delivery.connect()
    delivery.receive(Ack(1))
    assert not delivery.all_stored
    delivery.receive(Ack(2))
    assert delivery.connect()[1:] == [push(2)]
    delivery.receive(Ack(2))
    assert delivery.all_stored


def test_a_count_that_comes_twice_or_late_is_counted_once():
    delivery = sent(push(0), push(1), push(2))
    for count in (2, 2, 1, 2):
        delivery.receive(Ack(count))
    assert delivery.connect()[1:] == [push(1), push(2)]


def test_a_count_of_more_than_was_sent_takes_no_later_message():
    delivery = sent(push(0))
    delivery.receive(Ack(9))
    assert delivery.all_stored
    delivery.enqueue(push(1))
    assert delivery.connect()[1:] == [push(1)]


def test_messages_enqueued_without_a_line_go_out_with_the_next():
    delivery = Delivery(HELLO)
    delivery.enqueue(push(0))
    assert delivery.connect() == [HELLO, push(0)]
    delivery.receive(Ack(2))
    assert delivery.all_stored


def test_the_party_is_welcome_once_per_line_and_is_given_every_welcome():
    """Each names the epochs that the server has metrics of by then."""
    delivery = Delivery(HELLO)
    delivery.connect()
    assert not delivery.welcomed
    delivery.receive(Welcome(4, (1, 2)))
    assert delivery.welcomed
    delivery.connect()
    assert not delivery.welcomed
    delivery.receive(Welcome(5, (1, 2, 3)))
    assert polled(delivery) == [Welcome(4, (1, 2)), Welcome(5, (1, 2, 3))]


def test_a_total_is_given_once():
    delivery = sent(push(0))
    assert not delivery.has_message
    assert delivery.poll() is None
    delivery.receive(total(0))
    assert delivery.has_message
    assert polled(delivery) == [total(0)]


def test_messages_are_given_in_the_order_in_which_they_came():
    delivery, stopped = sent(push(0), push(1)), Stopped("browser", 2)
    for message in (total(0), stopped, HeldOutTotal(1, np.array([5])), total(1)):
        delivery.receive(message)
    assert [type(message) for message in polled(delivery)] == [Total, Stopped, HeldOutTotal, Total]


def test_acknowledgements_and_whom_to_wait_for_are_not_given():
    delivery = sent(push(0))
    delivery.receive(Ack(2))
    delivery.receive(Waiting((WaitedFor("browser"),)))
    assert polled(delivery) == []


def test_a_gradient_is_an_answer_as_a_total_is():
    delivery = sent(push(0), push(1))
    delivery.receive(gradient(0))
    assert delivery.connect()[1:] == [push(1)]
    assert polled(delivery) == [gradient(0)]
    delivery.receive(gradient(0))
    assert polled(delivery) == []


def test_a_gradient_of_its_own_is_sent_until_it_is_stored():
    """That the party was answered says nothing of what it made of the answer."""
    delivery = sent(push(0), gradient(0))
    delivery.receive(total(0))
    assert delivery.connect()[1:] == [gradient(0)]


def test_the_end_of_a_run_is_no_total():
    delivery = sent(push(0), push(1), push(2))
    delivery.receive(total(1))
    delivery.receive(Stopped("browser", 2))
    polled(delivery)
    assert delivery.done == 1, "nothing was done with step 2"
    assert delivery.connect()[0].done == 1


def test_a_total_that_comes_again_is_dropped():
    delivery = sent(push(0), push(1))
    for step in (0, 1):
        delivery.receive(total(step))
    assert delivery.poll() == total(0)
    delivery.receive(total(0))
    delivery.receive(total(1))
    assert polled(delivery) == [total(1)]


def test_hello_says_which_totals_were_given():
    delivery = sent(push(0), push(1))
    for step in (0, 1):
        delivery.receive(total(step))
    assert delivery.connect()[0].done == -1
    delivery.poll()
    assert delivery.connect()[0].done == 0
    assert delivery.connect()[0].incarnation == HELLO.incarnation


def test_a_party_that_goes_on_from_a_checkpoint_is_given_no_older_totals():
    delivery = Delivery(Hello(b"r" * 32, b"a" * 32, 10, 2, 3, done=4))
    delivery.receive(total(4))
    delivery.receive(total(5))
    assert delivery.connect()[0].done == 4
    assert polled(delivery) == [total(5)]


def test_a_push_that_was_answered_is_not_sent_again():
    """Its total shows that it was stored; the server may have forgotten it since, as the party has saved its state."""
    delivery = sent(push(0), push(1), Checkpointed(0))
    delivery.receive(total(0))
    assert delivery.connect()[1:] == [push(1), Checkpointed(0)]
    delivery.receive(Ack(3))
    assert delivery.all_stored


def test_an_answer_does_not_disturb_the_count_of_the_line_it_came_by():
    delivery = sent(push(0), push(1), push(2))
    delivery.receive(total(0))
    delivery.receive(Ack(2))
    assert delivery.connect()[1:] == [push(1), push(2)]


def test_a_held_out_total_is_given_once_though_it_comes_on_every_line():
    delivery = Delivery(HELLO)
    found = HeldOutTotal(1, np.array([5]))
    for _ in range(2):
        delivery.connect()
        delivery.receive(found)
    assert polled(delivery) == [found]
    delivery.connect()
    delivery.receive(found)
    assert not delivery.has_message


def test_labels_are_given_once_though_they_come_on_every_line():
    delivery, given_labels = Delivery(HELLO), Labels(2, b"sealed")
    for _ in range(2):
        delivery.connect()
        delivery.receive(given_labels)
    assert polled(delivery) == [given_labels]


def test_gradients_held_out_predictions_metrics_and_stops_that_are_not_stored_are_named_for_the_checkpoint():
    """Pushes are in the worker's own state; these would be lost with the process."""
    metrics = SealedMetrics(1, b"sealed")
    predictions = held_out()
    delivery = sent(push(0), predictions, gradient(0), push(1), metrics, Checkpointed(0), Stop(2))
    assert delivery.unacknowledged == [predictions, gradient(0), metrics, Stop(2)]
    delivery.receive(Ack(3))
    assert delivery.unacknowledged == [gradient(0), metrics, Stop(2)]
    delivery.connect()
    assert delivery.unacknowledged == [gradient(0), metrics, Stop(2)]
    delivery.receive(Ack(4))
    assert delivery.unacknowledged == [Stop(2)]
    delivery.receive(Ack(6))
    assert delivery.unacknowledged == []


def test_whom_to_wait_for_is_known_until_an_answer_comes():
    delivery = sent(push(0))
    delivery.receive(Waiting((WaitedFor("browser"),)))
    assert delivery.waits_for == (WaitedFor("browser"),)
    delivery.receive(total(0))
    assert delivery.waits_for == ()


class PlainServer:
    """Stores what comes, says how much of the line is stored, answers every push; its answers may be lost."""

    def __init__(self):
        self.stored, self.line = [], deque()

    def connect(self, messages):
        self.line, self.taken = deque(messages), 0

    def take(self):
        """Act on the line's next message; gives the answers, in order."""
        message = self.line.popleft()
        self.taken += 1
        answers = []
        if isinstance(message, Hello):
            done = {each.step for each in self.stored if isinstance(each, Push)}
            answers = [Welcome(max(done, default=-1)), *(total(step) for step in sorted(done) if step > message.done)]
        elif message not in self.stored:
            self.stored.append(message)
            answers = [total(message.step)] if isinstance(message, Push) else []
        return [*answers, Ack(self.taken)]


@given(st.data())
def test_over_any_line_that_breaks_anywhere_everything_is_stored_once_and_in_order(data):
    delivery, server = Delivery(HELLO), PlainServer()
    messages = deque([push(0), push(1), held_out(), Checkpointed(0), push(2), Finished(b"m" * 32)])
    everything, given_steps = list(messages), []

    def send_next():
        delivery.enqueue(messages[0])
        server.line.append(messages.popleft())

    server.connect(delivery.connect())
    for turn in range(200):
        broken = turn < 60
        action = data.draw(st.sampled_from(["send", "take", "break"])) if broken else "take"
        if action == "send" and messages:
            send_next()
        elif action == "take" and server.line:
            answers = server.take()
            arrived = data.draw(st.integers(0, len(answers))) if broken else len(answers)
            for answer in answers[:arrived]:
                delivery.receive(answer)
            if arrived < len(answers):
                server.connect(delivery.connect())
        elif action == "break":
            server.connect(delivery.connect())
        given_steps += [message.step for message in polled(delivery) if isinstance(message, Total)]
        if not broken and messages:
            send_next()
        if not server.line and not delivery.all_stored:
            server.connect(delivery.connect())
    assert server.stored == everything
    assert delivery.all_stored
    assert given_steps == [0, 1, 2]


@pytest.mark.parametrize("count", [0, 1])
def test_storing_hello_stores_nothing_else(count):
    delivery = sent(push(0))
    delivery.receive(Ack(count))
    assert not delivery.all_stored
