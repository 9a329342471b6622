"""Whole alignments: who sends what to whom, what can be seen on the way, and crashes of everyone at any time."""

from contextlib import suppress
from random import Random

import numpy as np
import pytest

from fdml.align.split import shuffled_rows, split_rows
from fdml.errors import DataError, MessageRefused, PeerTimeout, Refusal
from fdml.protocol.alignment_messages import BlindedIds
from fdml.protocol.alignment_wire import decode_alignment
from simulator.disk import Crashed, VirtualDisk
from tests.align.bulletins import Killed, PartyCalls, align_all, align_alone, open_store
from tests.align.test_matching import MODES, PARTIES, SHARED, TEXTS, ids_of, named, run_of
from tests.storage.memory_disk import MemoryDisk, PowerCut


def posts_of(run, ids):
    """What every party posts in a whole alignment."""
    store, disks = open_store(run), {party: MemoryDisk() for party in run.parties}
    align_all(run, ids, store, disks=disks)
    calls = {party: PartyCalls(store, party) for party in run.parties}
    for party, each in calls.items():
        align_alone(each, run, party, ids[party], disks[party])
    return {party: each.posted for party, each in calls.items()}


def test_every_set_goes_once_round_and_ends_at_the_server():
    posts = posts_of(run_of("ecdh"), ids_of(TEXTS))
    sent = {
        (party, to, about) for party, posted in posts.items() for kind, to, about, _ in posted if kind == "blinded_ids"
    }
    bank, shop, clinic = PARTIES
    assert sent == {
        (bank, shop, bank),
        (shop, clinic, bank),
        (clinic, "", bank),
        (shop, clinic, shop),
        (clinic, bank, shop),
        (bank, "", shop),
        (clinic, bank, clinic),
        (bank, shop, clinic),
        (shop, "", clinic),
    }


def test_equal_ids_look_different_until_all_parties_have_blinded_them():
    posts = posts_of(run_of("ecdh"), ids_of(TEXTS))
    seen = {"on the way": [], "at the server": []}
    for posted in posts.values():
        for kind, to, _, raw in posted:
            if kind == "blinded_ids":
                message = decode_alignment(raw)
                assert isinstance(message, BlindedIds)
                seen["on the way" if to else "at the server"] += [row.tobytes() for row in message.train]
    assert len(set(seen["on the way"])) == len(seen["on the way"])
    everyone = set().union(*TEXTS.values())
    assert len(set(seen["at the server"])) == len(everyone)
    assert not set(seen["on the way"]) & set(seen["at the server"])


def test_two_alignments_of_the_same_ids_have_nothing_in_common():
    run = run_of("tokens")
    first, second = (posts_of(run, ids_of(TEXTS)) for _ in range(2))
    tokens = [
        {row.tobytes() for kind, _, _, raw in posts["bank"] if kind == "tokens" for row in decode_alignment(raw).train}
        for posts in (first, second)
    ]
    assert not tokens[0] & tokens[1]


def digests(found):
    return {party: each.digest for party, (each, _) in found.items()}


@pytest.mark.parametrize("mode", MODES)
def test_the_server_may_be_cut_off_at_any_write_of_an_alignment(mode):
    run, ids = run_of(mode, PARTIES[:2]), ids_of({party: TEXTS[party] for party in PARTIES[:2]})
    disks = {party: MemoryDisk() for party in run.parties}
    whole = MemoryDisk()
    expected = digests(align_all(run, ids, open_store(run, whole), disks=disks))
    for writes in range(whole.writes):
        server = MemoryDisk(writes_left=writes)
        with pytest.raises(PowerCut):
            align_all(run, ids, open_store(run, server), disks=disks)
        again = server.copy()
        assert digests(align_all(run, ids, open_store(run, again), disks=disks)) == expected
        assert again.files == whole.files


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_parties_and_server_that_die_at_random_end_with_the_plain_join(mode, seed):
    random = Random(seed)
    run, ids = run_of(mode), ids_of(TEXTS)
    server = VirtualDisk(random)
    disks = {party: VirtualDisk(random) for party in PARTIES}
    for _ in range(6):
        server.arm(random.randrange(6))
        for disk in disks.values():
            disk.arm(random.randrange(2))
        for party in random.sample(PARTIES, 3):
            with suppress(Crashed, PeerTimeout, Killed):
                calls = PartyCalls(open_store(run, server), party, random.randrange(8))
                align_alone(calls, run, party, ids[party], disks[party])
        server.disarm()
        for disk in disks.values():
            disk.disarm()
    found = align_all(run, ids, open_store(run, server), disks=disks)
    for party, (each, _) in found.items():
        assert set(named([*each.train, *each.held_out], TEXTS[party])) == SHARED
    assert len(set(digests(found).values())) == 1


def test_a_restarted_server_gives_out_what_it_had_found_without_the_parties():
    run = run_of("ecdh")
    server = MemoryDisk()
    expected = align_all(run, ids_of(TEXTS), open_store(run, server))
    again = open_store(run, server.copy())
    for party, (each, _) in expected.items():
        assert decode_alignment(again.fetch(party, "shared_rows", "")).digest == each.digest
    assert again.rows == expected["bank"][0].counts
    assert again.shared.train == len(SHARED)


def test_a_party_that_lost_its_secrets_is_told_to_start_over():
    run = run_of("tokens")
    store, disks = open_store(run), {party: MemoryDisk() for party in PARTIES}
    align_all(run, ids_of(TEXTS), store, disks=disks)
    disks["shop"].files.clear()
    with pytest.raises(MessageRefused, match=r"it alone was started over.*a new name") as raised:
        align_alone(PartyCalls(store, "shop"), run, "shop", ids_of(TEXTS)["shop"], disks["shop"])
    assert raised.value.refusal is Refusal.CONFLICT


def test_rows_are_split_without_loss_and_the_same_way_each_time():
    keep, out = split_rows(50, 0.2, 7)
    assert sorted([*keep, *out]) == list(range(50))
    assert len(out) == 10
    np.testing.assert_array_equal(split_rows(50, 0.2, 7)[1], out)
    assert sorted(shuffled_rows(50, 7)) == list(range(50))
    with pytest.raises(DataError, match=r"holding out 0\.2 of 2 rows leaves 2 to train on and 0 to test on"):
        split_rows(2, 0.2, 7)
