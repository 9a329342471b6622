import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_calls import FetchAnswer, FetchCall, PostCall
from fdml.protocol.alignment_messages import Consent, KeyOffer, RowCounts, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.key_sets import position_digest
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from tests.monitor.sample_events import Clock
from tests.server.run_states import PARTIES, RUN_HASH
from tests.storage.memory_disk import MemoryDisk

FIRST, SECOND, THIRD = PARTIES
OFFER = encode_alignment(KeyOffer(b"p" * 32))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def phase(clock):
    return AlignmentPhase(BulletinStore(PARTIES, "tokens", MemoryDisk()), PARTIES, RUN_HASH, clock)


def post_call(**changed):
    return PostCall(**{"to": "", "about": "", "message": OFFER, "run_hash": RUN_HASH, **changed})


def fetch_call(**changed):
    return FetchCall(**{"kind": "key_offer", "sender": FIRST, "about": "", "run_hash": RUN_HASH, **changed})


def test_what_was_posted_is_fetched_as_it_was(phase):
    assert phase.fetch(SECOND, fetch_call()) is None
    phase.post(FIRST, post_call())
    assert phase.fetch(SECOND, fetch_call()) == FetchAnswer(OFFER)


def test_who_waits_is_told_of_all_who_are_missing_not_only_of_the_one_whose_message_comes_next(phase):
    assert phase.fetch(SECOND, fetch_call()) is None
    answer = phase.waiting(SECOND, fetch_call())
    assert answer == FetchAnswer(b"", (WaitedFor(FIRST, NEVER_SEEN), WaitedFor(THIRD, NEVER_SEEN)))


def test_who_waits_is_told_who_is_at_work_and_since_when_the_others_are_gone(phase, clock):
    for party in PARTIES:
        phase.presence.saw(party)
    clock.now += 3.0
    assert phase.waiting(SECOND, fetch_call()).waits_for == (WaitedFor(FIRST),), "the third is not in the way"
    clock.now += 60.0
    gone = (WaitedFor(FIRST, 63.0), WaitedFor(THIRD, 63.0))
    assert phase.waiting(SECOND, fetch_call()).waits_for == gone


def test_who_waits_is_answered_why_the_one_waited_for_was_refused(phase):
    with pytest.raises(MessageRefused):
        phase.post(FIRST, post_call(run_hash=b"x" * 32))
    assert "run.toml with hash 7878" in phase.waiting(SECOND, fetch_call()).waits_for[0].refusal
    phase.post(FIRST, post_call())
    assert phase.waiting(THIRD, fetch_call()).waits_for[0] == WaitedFor(FIRST), "it has posted since"


def test_a_refused_message_is_remembered_like_a_refused_call(phase):
    with pytest.raises(MessageRefused):
        phase.post(FIRST, post_call(to="nobody"))
    assert "'nobody'" in phase.waiting(SECOND, fetch_call()).waits_for[0].refusal


def test_a_party_counts_as_here_for_a_few_seconds_after_each_call(phase, clock):
    assert not phase.presence.is_here(FIRST), "it has not called yet"
    phase.presence.saw(FIRST)
    clock.now += 4.9
    assert phase.presence.is_here(FIRST)
    clock.now += 0.2
    assert not phase.presence.is_here(FIRST)
    assert not phase.presence.is_here(SECOND)


def test_a_fetch_is_a_call_too(phase):
    phase.fetch(SECOND, fetch_call())
    assert phase.presence.is_here(SECOND)


def test_a_wait_is_known_until_it_ends_or_the_party_is_gone(phase, clock):
    phase.fetch(SECOND, fetch_call())
    phase.waiting(SECOND, fetch_call())
    assert phase.waits_of(SECOND) == [FIRST, THIRD]
    assert phase.waits_of(THIRD) == []
    clock.now += 10.0
    assert phase.waits_of(SECOND) == [], "it has not called for long"
    phase.presence.saw(SECOND)
    assert phase.waits_of(SECOND) == [FIRST, THIRD]
    phase.post(FIRST, post_call())
    phase.fetch(SECOND, fetch_call())
    assert phase.waits_of(SECOND) == []


def test_the_digest_is_there_once_all_parties_have_posted_their_rows_and_consented(phase):
    rows = RowCounts(12)
    for message in (Tokens(by_position=rows), Consent(True)):
        for party in PARTIES:
            assert phase.digest is None
            phase.post(party, post_call(message=encode_alignment(message)))
    assert phase.digest == position_digest(rows)


def test_rows_that_are_aligned_already_have_their_digest_from_the_start(clock):
    store = BulletinStore(PARTIES, "tokens", MemoryDisk())
    assert AlignmentPhase(store, PARTIES, RUN_HASH, clock, digest=b"d" * 32).digest == b"d" * 32


@pytest.mark.parametrize(
    ("call", "refusal", "text"),
    [
        (post_call(run_hash=b"x" * 32), Refusal.MISMATCH, "run.toml with hash 7878"),
        (post_call(protocol=99), Refusal.MISMATCH, "speaks protocol 99"),
        (post_call(message=b""), Refusal.INVALID, "received"),
        (post_call(to="nobody"), Refusal.INVALID, "'nobody'"),
    ],
)
def test_a_post_that_makes_no_sense_is_refused_and_changes_nothing(phase, call, refusal, text):
    with pytest.raises(MessageRefused, match=text) as refused:
        phase.post(FIRST, call)
    assert refused.value.refusal is refusal
    assert phase.fetch(SECOND, fetch_call()) is None


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (fetch_call(kind="tokens"), Refusal.NOT_PERMITTED),
        (fetch_call(kind="letter"), Refusal.INVALID),
        (fetch_call(run_hash=b"x" * 32), Refusal.MISMATCH),
        (fetch_call(protocol=0), Refusal.MISMATCH),
    ],
)
def test_a_fetch_of_what_is_not_for_the_reader_is_refused(phase, call, refusal):
    with pytest.raises(MessageRefused) as refused:
        phase.fetch(SECOND, call)
    assert refused.value.refusal is refusal
