import pytest

from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.server.presence import Presence
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
    assert presence.waited_for(("telco",))[0].text == "telco is gone since 62 s"


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
