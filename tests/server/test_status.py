import pytest

from fdml.protocol.messages import Finished
from fdml.server.bulletin import BulletinStore
from fdml.server.bulletin_service import BulletinService
from fdml.server.status import StatusTracker, WaitTimer
from tests.server.run_states import PARTIES, RUN_HASH, STEPS, charter_of, hello, labels, new_host, play, push, script_of
from tests.storage.memory_disk import MemoryDisk


def standing_of(host):
    settings = charter_of().settings
    desk = BulletinService(BulletinStore(settings.parties, settings.align, MemoryDisk()), settings.parties, RUN_HASH)
    return StatusTracker(host, desk, settings)


def waits(standing, joined=PARTIES):
    return {party: standing.waits_for(party) for party in PARTIES if standing.is_waiting(party, joined)}


def test_before_the_labels_whoever_has_joined_waits_for_the_label_party():
    host = new_host()
    standing = standing_of(host)
    assert waits(standing, joined=()) == {}
    host.take("guard", hello())
    assert waits(standing, joined=("guard",)) == {"guard": ["store"]}
    host.take("store", hello())
    assert waits(standing, joined=("guard", "store")) == {"guard": ["store"]}


def test_who_has_pushed_waits_for_those_who_have_not():
    host = new_host()
    play(host, [(party, hello()) for party in PARTIES] + [("store", labels())])
    standing = standing_of(host)
    assert waits(standing) == {}
    host.take("store", push(host, "store", 0))
    assert waits(standing) == {"store": ["browser", "guard"]}


def test_a_label_party_that_has_trained_to_the_end_waits_for_those_who_have_not():
    host = new_host()
    play(host, [(party, message) for party, message in script_of() if not isinstance(message, Finished)])
    standing = standing_of(host)
    assert host.coordinator.served("store") == STEPS - 1
    assert waits(standing) == {"store": ["browser", "guard"]}
    host.take("browser", Finished(b"b" * 32))
    assert waits(standing) == {"store": ["guard"]}
    host.take("store", Finished(b"s" * 32))
    assert waits(standing) == {}


def test_a_wait_is_counted_from_its_beginning_to_its_end():
    waits = WaitTimer()
    for waiting, now in ((False, 1.0), (True, 2.0), (True, 3.0), (False, 4.5), (True, 5.0)):
        waits.note(waiting, now)
    assert waits.total == pytest.approx(2.5)
    assert waits.since == 5.0


def test_a_report_names_all_parties_also_before_anyone_has_come():
    report = standing_of(new_host()).report(())
    assert [party.name for party in report.parties] == list(PARTIES)
    assert {(party.pushed, party.served, party.connected) for party in report.parties} == {(-1, -1, False)}
    assert report.steps == 0
