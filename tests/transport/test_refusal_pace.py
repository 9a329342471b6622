from fdml.transport.refusal_pace import BURST, LONGEST_SECONDS, PER_SECOND, RefusalPace


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_first_refusals_of_a_caller_are_answered_at_once():
    pace = RefusalPace(Clock())
    assert [pace.seconds("ann") for _ in range(BURST)] == [0.0] * BURST


def test_a_caller_that_is_refused_often_waits_longer_and_longer_up_to_a_limit():
    pace = RefusalPace(Clock())
    waits = [pace.seconds("ann") for _ in range(1000)]
    assert waits == sorted(waits)
    assert abs(waits[BURST + 10] - 10 / PER_SECOND) < 1e-6
    assert waits[-1] == LONGEST_SECONDS


def test_another_caller_does_not_wait_for_it():
    pace = RefusalPace(Clock())
    for _ in range(1000):
        pace.seconds("mallory")
    assert pace.seconds("ann") == 0.0


def test_after_a_while_without_refusals_answers_come_at_once_again():
    clock = Clock()
    pace = RefusalPace(clock)
    for _ in range(1000):
        pace.seconds("ann")
    clock.now += LONGEST_SECONDS + 2 * BURST / PER_SECOND
    assert pace.seconds("ann") == 0.0


def test_in_the_long_run_so_many_refusals_are_answered_in_a_second():
    clock = Clock()
    pace = RefusalPace(clock)
    answered = 0
    while clock.now < 160.0:
        clock.now += pace.seconds("ann")
        answered += 1
    assert BURST + 60 * PER_SECOND * 0.9 <= answered <= BURST + 60 * PER_SECOND * 1.1
