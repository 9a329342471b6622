import pytest

from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.server.presence import MissingReport, Presence
from tests.monitor.sample_events import Clock

PARTIES = ("bank", "telco", "shop")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def presence(clock):
    return Presence(PARTIES, clock)


def test_nobody_is_here_at_first_and_nobody_is_gone(presence):
    assert presence.missing("bank") == ["telco", "shop"]
    assert presence.gone_seconds("telco") == 0.0
    assert presence.waited_for(("telco",)) == (WaitedFor("telco", NEVER_SEEN),)


def test_a_party_that_calls_is_here_for_five_seconds(presence, clock):
    presence.saw("telco")
    clock.now += 4.9
    assert presence.missing("bank") == ["shop"]
    assert presence.waited_for(("telco",)) == (WaitedFor("telco"),)
    clock.now += 57.1
    assert presence.gone_seconds("telco") == pytest.approx(62.0)
    assert presence.waited_for(("telco",))[0].text == "telco has been gone for 62 s"


def test_a_party_with_a_stream_is_here_however_long_it_is_silent(presence, clock):
    presence.joined("telco")
    clock.now += 1000.0
    assert presence.is_here("telco")
    presence.left("telco")
    assert presence.is_here("telco"), "it may be back at once"
    clock.now += 10.0
    assert presence.gone_seconds("telco") == 10.0


def test_a_refused_party_is_not_here_and_the_others_learn_why(presence, clock):
    presence.saw("telco")
    presence.refuse("telco", "training.epochs is 10 at party 'telco', 20 at the server")
    assert presence.missing("bank") == ["telco", "shop"]
    (found,) = presence.waited_for(("telco",))
    assert found.text == "telco was refused: training.epochs is 10 at party 'telco', 20 at the server"
    presence.saw("telco")
    presence.accept("telco")
    assert presence.waited_for(("telco",)) == (WaitedFor("telco"),)


def test_an_older_process_that_is_refused_says_nothing_of_the_one_with_a_stream(presence):
    presence.joined("telco")
    presence.refuse("telco", "this older process ends here")
    assert presence.waited_for(("telco",)) == (WaitedFor("telco"),)


@pytest.fixture
def report(presence, clock):
    return MissingReport(presence, clock)


def told(report, clock, seconds, finished=()):
    """What the server says while so many seconds pass, looked at every second."""
    found = []
    for _ in range(seconds):
        clock.now += 1.0
        found.append(report.due(finished.__contains__))
    return [each for each in found if each is not None]


def test_the_server_says_after_ten_seconds_who_is_missing_and_then_every_minute(presence, clock, report):
    presence.joined("bank")
    said = told(report, clock, 132)
    assert [round(each.seconds) for each in said] == [10, 70, 130]
    assert said[0].party == "server"
    assert said[0].waits_for == ("telco", "shop")
    assert said[0].why == "telco has not joined, shop has not joined"


def test_the_server_says_it_again_when_it_waits_for_another(presence, clock, report):
    presence.joined("bank")
    told(report, clock, 12)
    presence.joined("telco")
    (said,) = told(report, clock, 20)
    assert said.waits_for == ("shop",)
    presence.joined("shop")
    assert told(report, clock, 200) == []
    presence.left("telco")
    (said,) = told(report, clock, 18)
    assert said.why == "telco has been gone for 15 s"
    assert said.seconds == pytest.approx(10.0), "of this wait, not of the one before"


def test_a_party_that_has_finished_is_not_missed(presence, clock, report):
    presence.joined("bank")
    presence.joined("telco")
    assert told(report, clock, 100, finished=("shop",)) == []


def test_the_server_says_why_it_has_refused_who_is_missing(presence, clock, report):
    presence.joined("bank")
    presence.joined("telco")
    presence.refuse("shop", "training.epochs is 4 at party 'shop', 3 when run 'first' began")
    (said,) = told(report, clock, 12)
    assert said.why == "shop was refused: training.epochs is 4 at party 'shop', 3 when run 'first' began"
