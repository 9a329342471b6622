import asyncio
import time

import pytest
from fdml.server.bulletin_service import BulletinService

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import KeyOffer, RowCounts, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.key_sets import position_digest
from fdml.protocol.messages import PROTOCOL
from fdml.server.bulletin import BulletinStore
from tests.server.run_states import PARTIES, RUN_HASH
from tests.storage.memory_disk import MemoryDisk

OFFER = encode_alignment(KeyOffer(b"p" * 32))


def desk_of():
    return BulletinService(BulletinStore(PARTIES, "tokens", MemoryDisk()), PARTIES, RUN_HASH)


def posting(**changed):
    return pb.PostRequest(
        **{"message": OFFER, "run_hash": RUN_HASH, "protocol": PROTOCOL, **changed}
    ).SerializeToString()


def query(**changed):
    asked = {"kind": "key_offer", "sender": PARTIES[0], "run_hash": RUN_HASH, "protocol": PROTOCOL}
    return pb.FetchRequest(**{**asked, **changed}).SerializeToString()


def test_what_is_there_is_handed_over_at_once():
    async def scene():
        desk = desk_of()
        await desk.post(PARTIES[0], posting())
        began = time.monotonic()
        found = pb.FetchReply.FromString(await desk.fetch(PARTIES[1], query()))
        assert found.message == OFFER
        assert time.monotonic() - began < 0.5
        assert desk.waits_of(PARTIES[1]) == []

    asyncio.run(scene())


def test_who_asks_too_early_gets_it_the_moment_it_comes():
    async def scene():
        desk = desk_of()
        asking = asyncio.create_task(desk.fetch(PARTIES[1], query()))
        await asyncio.sleep(0.05)
        await desk.post(PARTIES[0], posting())
        async with asyncio.timeout(0.9):
            assert pb.FetchReply.FromString(await asking).message == OFFER

    asyncio.run(scene())


def test_who_waits_is_told_for_whom_and_how_long_that_one_has_been_silent():
    async def scene():
        desk = desk_of()
        found = pb.FetchReply.FromString(await desk.fetch(PARTIES[1], query()))
        assert not found.message
        assert list(found.waits_for) == [PARTIES[0]]
        assert 0.9 < found.silent_seconds[0] < 5
        assert desk.waits_of(PARTIES[1]) == [PARTIES[0]]
        assert desk.is_here(PARTIES[1])
        assert not desk.is_here(PARTIES[0])
        desk.saw(PARTIES[0])
        found = pb.FetchReply.FromString(await desk.fetch(PARTIES[1], query()))
        assert found.silent_seconds[0] < 2

    asyncio.run(scene())


def test_who_waits_is_told_why_the_one_waited_for_was_refused():
    async def scene():
        desk = desk_of()
        with pytest.raises(MessageRefused):
            await desk.post(PARTIES[0], posting(run_hash=b"x" * 32))
        found = pb.FetchReply.FromString(await desk.fetch(PARTIES[1], query()))
        assert "run.toml with hash 7878" in found.troubles[0]
        await desk.post(PARTIES[0], posting())
        found = pb.FetchReply.FromString(await desk.fetch(PARTIES[2], query(sender=PARTIES[1])))
        assert list(found.troubles) == [""]

    asyncio.run(scene())


def test_the_digest_is_there_once_all_parties_have_shown_their_rows():
    async def scene():
        desk, rows = desk_of(), RowCounts(12)
        for party in PARTIES:
            assert desk.digest is None
            await desk.post(party, posting(message=encode_alignment(Tokens(by_position=rows))))
        assert desk.digest == position_digest(rows)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("raw", "refusal", "text"),
    [
        (posting(run_hash=b"x" * 32), Refusal.MISMATCH, "run.toml with hash 7878"),
        (posting(protocol=99), Refusal.MISMATCH, "speaks protocol 99"),
        (posting(message=b""), Refusal.INVALID, "received"),
        (posting(to="nobody"), Refusal.INVALID, "'nobody'"),
        (posting() + b"\x50\x01", Refusal.INVALID, "unknown fields or trailing bytes"),
        (b"\xff\xff\xff", Refusal.INVALID, "3 bytes that are no message"),
    ],
)
def test_what_makes_no_sense_is_refused(raw, refusal, text):
    with pytest.raises(MessageRefused, match=text) as refused:
        asyncio.run(desk_of().post(PARTIES[0], raw))
    assert refused.value.refusal is refusal


def test_another_s_mail_is_not_handed_over():
    with pytest.raises(MessageRefused) as refused:
        asyncio.run(desk_of().fetch(PARTIES[1], query(kind="tokens")))
    assert refused.value.refusal is Refusal.NOT_PERMITTED
