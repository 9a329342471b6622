"""Circuit breakers: when they open, whom they leave alone, and what closes them."""

from fdml.serving.online.breakers import OPENS_AFTER, Breakers

LATE = {"bob": "no answer within 1 s"}
AWAY = {"bob": "it is not standing by (`fdml up`)"}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def opened(why=LATE, clock=None):
    breakers = Breakers(["bob", "cid"], clock or Clock())
    for _ in range(OPENS_AFTER):
        breakers.note(["bob", "cid"], why)
    return breakers


def test_a_party_is_left_alone_after_some_questions_without_an_answer():
    breakers = Breakers(["bob", "cid"], Clock())
    for _ in range(OPENS_AFTER - 1):
        breakers.note(["bob", "cid"], LATE)
        assert breakers.away() == {}
    breakers.note(["bob", "cid"], LATE)
    assert breakers.away().keys() == {"bob"}


def test_who_is_missing_is_known_from_the_first_question_on():
    breakers = Breakers(["bob", "cid"], Clock())
    assert breakers.missing() == {}
    breakers.note(["bob", "cid"], AWAY)
    assert breakers.missing() == AWAY


def test_an_answer_in_between_begins_the_count_anew():
    breakers = Breakers(["bob", "cid"], Clock())
    for _ in range(3):
        for _ in range(OPENS_AFTER - 1):
            breakers.note(["bob"], AWAY)
        breakers.note(["bob"], {})
    assert breakers.away() == {}


def test_one_answer_closes_it():
    breakers = opened()
    breakers.note(["bob"], {})
    assert breakers.away() == {}
    assert breakers.missing() == {}


def test_a_refusal_is_an_answer():
    breakers = Breakers(["bob"], Clock())
    for _ in range(OPENS_AFTER + 1):
        breakers.note(["bob"], {"bob": "its privacy budget is spent; its operator sees the accounts"})
    assert breakers.away() == {}


def test_a_party_that_was_not_asked_stays_as_it_was():
    breakers = opened()
    breakers.note(["cid"], {})
    assert breakers.away().keys() == {"bob"}


def test_the_reason_is_the_last_one_and_says_since_when():
    clock = Clock()
    breakers = opened(clock=clock)
    clock.now += 7
    assert breakers.away() == {"bob": "no answer within 1 s; it is tried again since 7 s"}
    breakers.note(["bob"], AWAY)
    clock.now += 1
    assert breakers.away() == {"bob": "it is not standing by (`fdml up`); it is tried again since 8 s"}
