"""What a person reads of a run while it goes on."""

from dataclasses import replace

import pytest

from fdml.monitor.live import LiveFacts, LiveRun, duration
from fdml.monitor.status import PartyStatus, RunStatus
from tests.monitor.sample_events import Clock

FACTS = LiveFacts("first", "ann", ("ann", "bob"), 60.0, rows_per_step=100.0, blocks=10, epochs=20)


def party(name, served=41, waits_for=(), seconds=0.0, **more):
    return PartyStatus(
        name,
        connected=more.pop("connected", True),
        pushed=served,
        served=served,
        waits_for=waits_for,
        waiting_seconds=seconds,
        incarnation=more.pop("incarnation", 1),
        **more,
    )


def status(*parties, steps=200, **more):
    return RunStatus("first", steps, parties or (party("ann"), party("bob")), **more)


def looked(*found, facts=FACTS, every=1.0):
    """A run that was looked at so often, one after the other."""
    clock = Clock()
    live = LiveRun(facts, clock)
    for each in found:
        clock.now += every
        live.note(each)
    return live, clock


def sentence(*parties, **more):
    live, _ = looked(status(*parties, **more))
    return live.sentence


def test_the_sentence_has_step_epoch_and_time_left():
    live, _ = looked(status(party("ann", 31), party("bob", 31)), status(party("ann", 41), party("bob", 41)))
    assert live.sentence.text == "Step 42 of 200, epoch 5 of 20, about 16 s left."
    assert (live.sentence.level, live.sentence.advice) == ("", "")


def test_the_step_is_that_of_the_slowest_party():
    live, _ = looked(status(party("ann", 50), party("bob", 9)))
    assert live.step == 10
    assert live.sentence.text.startswith("Step 10 of 200, epoch 2 of 20")


def test_a_short_wait_is_not_said_as_every_step_has_some():
    assert "aiting" not in sentence(party("ann", waits_for=("bob",), seconds=0.4), party("bob")).text


def test_who_is_waited_for_is_named_with_since_when_and_what_to_do():
    found = sentence(party("ann", waits_for=("bob",), seconds=2.1), party("bob"))
    assert found.text == "Waiting for bob, 2.1 s so far. Step 42 of 200, epoch 5 of 20."
    assert found.level == "waiting"
    assert found.advice.startswith("Ask bob whether its process runs")
    assert found.advice.endswith("ann (this party) gives up in 58 s (peer_timeout_seconds); started again, it goes on.")


def test_the_page_of_who_holds_up_the_run_says_that_it_is_this_party():
    found = sentence(party("ann"), party("bob", waits_for=("ann",), seconds=2.1))
    assert found.text.startswith("Waiting for ann (this party), 2.1 s so far.")
    assert found.advice.startswith("See here whether its process runs")


def test_past_half_of_the_time_out_it_is_late():
    assert sentence(party("ann", waits_for=("bob",), seconds=30.5), party("bob")).level == "late"
    assert sentence(party("ann", waits_for=("bob",), seconds=29.5), party("bob")).level == "waiting"


def test_in_a_chain_of_waits_the_one_that_waits_for_nobody_is_named():
    found = sentence(
        party("ann", waits_for=("bob",), seconds=9.0),
        party("bob", waits_for=("cyd",), seconds=9.0),
        party("cyd"),
    )
    assert "Waiting for cyd, 9.0 s so far" in found.text
    assert "bob" not in found.text


def test_a_party_that_is_gone_is_said_so_and_how_it_comes_back():
    found = sentence(party("ann", waits_for=("bob",), seconds=12.0), party("bob", connected=False, gone_seconds=12.0))
    assert found.text.startswith("Waiting for bob, 12 s so far; bob is gone for 12 s. ")
    assert found.advice.startswith("Start `fdml join` again at bob: it goes on where it stopped.")


def test_a_party_that_is_gone_is_said_before_anyone_waits_for_it():
    found = sentence(party("ann"), party("bob", connected=False, gone_seconds=1.0))
    assert found.text.startswith("Waiting for bob; bob is gone for 1 s. ")


def test_a_party_that_has_given_up_waits_for_nobody_any_more():
    found = status(
        party("ann", connected=False, waits_for=("cyd",), seconds=103.0, gone_seconds=43.0),
        party("bob", waits_for=("cyd",), seconds=50.0),
        party("cyd"),
    )
    live, _ = looked(found)
    assert live.sentence.text.startswith("Waiting for cyd, 50 s so far; ann is gone for 43 s. ")
    assert "Ask cyd whether" in live.sentence.advice
    assert "Start `fdml join` again at ann (this party)" in live.sentence.advice
    assert "bob gives up in 10 s" in live.sentence.advice
    assert [row["waits_for"] for row in live.rows()] == [[], ["cyd"], []]


def test_a_run_of_which_all_are_gone_stands_still_and_says_so():
    found = sentence(
        party("ann", connected=False, waits_for=("bob",), seconds=103.0, gone_seconds=43.0),
        party("bob", connected=False, gone_seconds=42.0),
    )
    assert found.text == "The run stands still: no party is there. Step 42 of 200, epoch 5 of 20."
    assert found.level == "late"
    assert found.advice.startswith("Start `fdml join` again at ann (this party) and bob: the run goes on where it")
    assert "give" not in found.advice, "all have given up already"


def test_before_the_first_step_nothing_is_late():
    found = sentence(party("ann", -1), party("bob", -1, connected=False, incarnation=0), steps=0)
    assert (
        found.text == "Waiting for bob; bob is not here yet. Before the first step: the parties find their shared rows."
    )
    assert (found.level, "give up" in found.advice) == ("waiting", False)


def test_several_are_listed():
    parties = [party("ann", waits_for=("bob", "cyd", "dan"), seconds=2.0), *map(party, ("bob", "cyd", "dan"))]
    assert "Waiting for bob, cyd and dan, " in sentence(*parties).text


def test_a_finished_run_says_so():
    found = sentence(party("ann", 199, finished=True), party("bob", 199, finished=True, connected=False))
    assert (found.text, found.level) == ("Finished: all 2 parties have done 200 steps.", "done")


def test_a_side_that_has_finished_is_shown_so_though_its_server_has_ended_before_it_said_so():
    live, _ = looked(status(party("ann", 199), party("bob", 199, finished=True)))
    live.note_own_end()
    assert [row["state"] for row in live.rows()] == ["finished", "finished"]
    assert live.sentence.level == "done"
    LiveRun(FACTS).note_own_end()  # nobody has answered yet


def test_a_server_that_does_not_answer_is_said_with_since_when():
    live, clock = looked(status())
    live.note_silence("no server answers at 127.0.0.1:7443")
    clock.now += 12.0
    live.note_silence("no server answers at 127.0.0.1:7443")
    assert live.sentence.text == "The server has not answered for 12 s: no server answers at 127.0.0.1:7443"
    assert (live.sentence.level, "fdml serve" in live.sentence.advice) == ("late", True)
    live.note(status())
    assert live.sentence.level == "", "it answers again"


def test_what_parties_did_when_a_server_last_answered_is_not_shown_as_what_they_do():
    live, _ = looked(status(party("ann", waits_for=("bob",), seconds=5.0), party("bob"), party("cid", finished=True)))
    live.note_silence("no server answers at 127.0.0.1:7443")
    ann, bob, cid = live.rows()
    assert (ann["state"], bob["state"]) == ("waiting when last asked", "training when last asked")
    assert (ann["waits_for"], bob["awaited_seconds"]) == ([], 0.0)
    assert cid["state"] == "finished"


def test_a_server_without_the_run_is_no_silence():
    live, _ = looked()
    assert live.sentence.text == "The server is being asked."
    live.note_refusal("the server has no run yet")
    assert (live.sentence.text, live.sentence.level) == ("The server has no run yet.", "waiting")


def test_a_row_has_what_the_server_says_of_a_party():
    before = status(party("ann", 21, waited_seconds=1.0), party("bob", 21))
    after = status(
        party("ann", 41, waits_for=("bob",), seconds=0.5, waited_seconds=1.5, bytes_in=10, bytes_out=20),
        party("bob", 41, incarnation=3),
    )
    live, _ = looked(before, after)
    ann, bob = live.rows()
    assert (ann["own"], bob["own"]) == (True, False)
    assert (ann["step"], ann["rows_per_second"], ann["waiting_share"]) == (42, 2000, 0.5)
    assert (ann["bytes_in"], ann["bytes_out"], ann["waits_for"]) == (10, 20, ["bob"])
    assert (ann["restarts"], bob["restarts"]) == (0, 2)


def test_no_row_tells_how_large_predictions_are():
    live, _ = looked(status(party("ann", largest_prediction=3.25), party("bob", largest_prediction=7.5)))
    for row in live.rows():
        assert not {"largest", "largest_prediction"} & set(row)
        assert not {3.25, 7.5} & {value for value in row.values() if isinstance(value, float)}


@pytest.mark.parametrize(
    ("found", "letter"),
    [
        (party("bob"), "c"),
        (party("bob", waits_for=("ann",)), "w"),
        (party("bob", connected=False), "g"),
        (party("bob", finished=True, connected=False), "f"),
    ],
)
def test_a_stripe_has_a_letter_for_every_second(found, letter):
    live, _ = looked(status(party("ann"), found), status(party("ann"), found))
    assert live.rows()[1]["stripe"] == 2 * letter


def test_a_stripe_has_the_last_minute_and_no_second_twice():
    live, _ = looked(*[status()] * 300, every=0.5)
    assert len(live.rows()[0]["stripe"]) == 60
    live, _ = looked(*[status()] * 10, every=0.5)
    assert len(live.rows()[0]["stripe"]) == 5


def test_what_is_kept_does_not_grow_with_the_run():
    live, _ = looked(*[status()] * 1000)
    assert len(live._samples) <= 30


def test_without_a_plan_there_is_no_epoch_and_without_movement_no_end():
    live, _ = looked(status(), status(), facts=replace(FACTS, blocks=None, epochs=None, rows_per_step=None))
    assert live.sentence.text == "Step 42 of 200."
    assert (live.seconds_left, live.rows()[0]["rows_per_second"]) == (None, None)
    assert LiveRun(FACTS).rows() == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.14, "2.1 s"), (45.0, "45 s"), (89.0, "89 s"), (180.0, "3 min"), (5300.0, "88 min"), (7500.0, "2 h 5 min")],
)
def test_a_length_of_time_in_words(seconds, text):
    assert duration(seconds) == text


def test_a_party_that_others_wait_for_is_not_shown_as_computing():
    live, _ = looked(status(party("ann", waits_for=("bob",), seconds=4.25), party("bob")))
    ann, bob = live.rows()
    assert (ann["stripe"], bob["stripe"]) == ("w", "h")
    assert (ann["awaited_seconds"], bob["awaited_seconds"]) == (0.0, 4.2)
    live, _ = looked(status(party("ann", waits_for=("bob",), seconds=0.5), party("bob")))
    assert [each["stripe"] for each in live.rows()] == ["w", "c"], "every step has such waits"


def test_while_one_holds_up_the_run_no_time_is_promised():
    before = status(party("ann", 31), party("bob", 31))
    live, _ = looked(before, status(party("ann", 41, waits_for=("bob",), seconds=2.0), party("bob", 41)))
    assert "left" not in live.sentence.text


def test_a_party_that_never_came_is_to_be_started_not_started_again():
    live, _ = looked(status(party("ann", -1), party("bob", -1, connected=False, incarnation=0), steps=0))
    assert live.sentence.advice == "Start `fdml join` at bob: the run begins once all parties are there."


def test_when_each_party_was_last_seen():
    found = status(
        party("ann"),
        party("bob", connected=False, gone_seconds=12.4),
        party("cid", connected=False),
        party("dan", connected=False, finished=True, gone_seconds=90.0),
        party("eve", connected=False, incarnation=0),
    )
    live, _ = looked(found)
    assert [row["last_seen"] for row in live.rows()] == ["connected", "12 s ago", "just now", "finished", "never"]


def test_several_that_are_waited_for_are_asked_together():
    parties = [party("ann", waits_for=("bob", "cid"), seconds=5.0), party("bob"), party("cid")]
    assert sentence(*parties).advice.startswith("Ask bob and cid whether their processes run, have processor time")


def test_what_was_counted_of_a_run_stays_when_the_server_has_closed_it():
    before = party("ann", bytes_in=500, bytes_out=400, waited_seconds=3.5)
    closed = party("ann", 199, finished=True)
    live, _ = looked(status(before), status(closed))
    (row,) = live.rows()
    assert (row["bytes_in"], row["bytes_out"], row["waited_seconds"], row["rows_per_second"]) == (500, 400, 3.5, None)


def test_of_a_run_that_had_ended_before_anybody_looked_nothing_is_counted():
    live, _ = looked(status(party("ann", 199, finished=True)))
    (row,) = live.rows()
    assert (row["bytes_in"], row["bytes_out"], row["waited_seconds"]) == (None, None, None)
