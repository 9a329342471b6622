import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    BlindedIds,
    Consent,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    RowCounts,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.server.bulletin import BulletinStore
from fdml.storage.disk import FolderDisk
from tests.storage.memory_disk import MemoryDisk, PowerCut

PARTIES = ("a", "b", "c/../x")
A, B, C = PARTIES


def keys(*numbers, size=16):
    return np.array([[number] * size for number in numbers], np.uint8).reshape(-1, size)


def points(*numbers):
    return keys(*numbers, size=32)


def script(mode):
    """Everything three parties post, in an order that can be."""
    offers = [(party, KeyOffer(bytes([at]) * 32), "", "") for at, party in enumerate(PARTIES)]
    grants = [(A, KeyGrant(b"sealed for " + party.encode()), party, "") for party in (B, C)]
    checks = [(party, KeyCheck(bytes([at]) * 32), "", "") for at, party in enumerate(PARTIES)]
    if mode == "tokens":
        sets = [
            (A, Tokens(keys(1, 3, 5, 7), keys(1, 2)), "", ""),
            (B, Tokens(keys(2, 3, 7), keys(2)), "", ""),
            (C, Tokens(keys(3, 4, 7, 9, 11), keys(2, 3, 4)), "", ""),
        ]
    else:
        sets = [
            (A, BlindedIds(points(1, 3)), B, A),
            (B, BlindedIds(points(4, 5, 6)), C, B),
            (C, BlindedIds(points(2, 9)), A, C),
            (B, BlindedIds(points(13, 11)), C, A),
            (C, BlindedIds(points(24, 25, 26)), A, B),
            (A, BlindedIds(points(32, 39)), B, C),
            (C, BlindedIds(points(101, 103)), "", A),
            (A, BlindedIds(points(104, 103, 101)), "", B),
            (B, BlindedIds(points(103, 109)), "", C),
        ]
    consents = [(party, Consent(True), "", "") for party in PARTIES]
    posted = offers + grants + checks + sets + consents
    return [(sender, to, about, encode_alignment(message)) for sender, message, to, about in posted]


FOUND = {
    "tokens": ({A: [1, 3], B: [1, 2], C: [0, 2]}, {A: [1], B: [0], C: [0]}, (4, 3, 5), RowCounts(2, 1)),
    "ecdh": ({A: [1], B: [1], C: [0]}, {A: [], B: [], C: []}, (2, 3, 2), RowCounts(1, 0)),
}
MODES = list(FOUND)


def filled(mode, disk=None, upto=None):
    store = BulletinStore.open(PARTIES, mode, MemoryDisk() if disk is None else disk)
    for posting in script(mode)[:upto]:
        store.post(*posting)
    return store


def filled_disk(mode):
    """The disk of a server that has taken everything."""
    disk = MemoryDisk()
    filled(mode, disk)
    return disk


def places_of(store, party):
    raw = store.fetch(party, "shared_rows", "")
    return None if raw is None else decode_alignment(raw)


def summary_of(store):
    return decode_alignment(store.fetch(A, "row_summary", ""))


def check_result(mode, store):
    train, held_out, counts, shared = FOUND[mode]
    found = {party: places_of(store, party) for party in PARTIES}
    assert {party: each.train.tolist() for party, each in found.items()} == train
    assert {party: each.held_out.tolist() for party, each in found.items()} == held_out
    assert {each.counts for each in found.values()} == {counts}
    assert len({each.digest for each in found.values()}) == 1
    assert store.rows == dict(zip(PARTIES, counts, strict=True))
    assert store.shared == shared


@pytest.mark.parametrize("mode", MODES)
def test_once_all_sets_are_there_every_party_finds_its_rows(mode):
    disk = MemoryDisk()
    store = filled(mode, disk, upto=-4)
    assert places_of(store, A) is None
    assert store.shared is None
    for posting in script(mode)[-4:]:
        assert places_of(store, A) is None
        store.post(*posting)
    check_result(mode, store)


@pytest.mark.parametrize("mode", MODES)
def test_what_was_posted_is_read_as_it_was(mode):
    store = filled(mode)
    for sender, to, about, raw in script(mode):
        message = decode_alignment(raw)
        if isinstance(message, KeyOffer | KeyCheck):
            kind = "key_offer" if isinstance(message, KeyOffer) else "key_check"
            assert all(store.fetch(reader, kind, sender) == raw for reader in PARTIES)
        elif to:
            kind = "key_grant" if isinstance(message, KeyGrant) else "blinded_ids"
            assert store.fetch(to, kind, sender, about) == raw


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_there_before_it_is_posted(mode):
    store = filled(mode, upto=0)
    assert store.fetch(B, "key_offer", A) is None
    assert store.fetch(B, "key_grant", A) is None
    assert store.fetch(B, "blinded_ids", A, A) is None
    assert places_of(store, B) is None
    assert store.rows == {}


@pytest.mark.parametrize("mode", MODES)
def test_posting_the_same_again_changes_nothing(mode):
    disk = MemoryDisk()
    store = filled(mode, disk)
    before, writes = dict(disk.files), disk.writes
    for posting in script(mode):
        store.post(*posting)
    assert disk.files == before
    assert disk.writes == writes


@pytest.mark.parametrize("mode", MODES)
def test_other_bytes_for_a_filled_slot_are_a_conflict_that_says_what_to_do(mode):
    disk = MemoryDisk()
    store = filled(mode, disk)
    before = dict(disk.files)
    for sender, to, about, raw in script(mode):
        message = decode_alignment(raw)
        match message:
            case KeyOffer():
                other = KeyOffer(bytes([99]) * 32)
            case KeyGrant():
                other = KeyGrant(b"another")
            case KeyCheck():
                other = KeyCheck(bytes([99]) * 32)
            case Tokens():
                other = Tokens(keys(1, 3), keys(4))
            case Consent():
                other = Consent(False, "not after all")
            case _:
                other = BlindedIds(points(77, 78))
        with pytest.raises(MessageRefused, match="a new name") as raised:
            store.post(sender, to, about, encode_alignment(other))
        assert raised.value.refusal is Refusal.CONFLICT
    assert disk.files == before
    check_result(mode, store)


OTHER, DENIED = Refusal.MISMATCH, Refusal.NOT_PERMITTED
WRONG, EARLY = Refusal.INVALID, Refusal.GAP
OFFER, CHECK, GRANT = KeyOffer(bytes(32)), KeyCheck(bytes(32)), KeyGrant(b"x")
WITH_KEY = KeyOffer(bytes(32), brings_key=True)
ANSWER = SharedRowIndex(np.zeros(1, np.int64), np.zeros(0, np.int64), bytes(32), (1, 1, 1))
OWN = Tokens(keys(1, 2))
REFUSED = {
    "a stranger": ("tokens", [], "z", "", "", OFFER, DENIED),
    "the server's own name": ("tokens", [], "", "", "", OFFER, DENIED),
    "places from a party": ("tokens", [], A, B, "", ANSWER, DENIED),
    "a grant by another than the first": ("tokens", [], B, C, "", GRANT, DENIED),
    "a grant to oneself": ("tokens", [], A, A, "", GRANT, WRONG),
    "a grant to all": ("tokens", [], A, "", "", GRANT, WRONG),
    "a grant to a stranger": ("tokens", [], A, "z", "", GRANT, WRONG),
    "an offer to one": ("tokens", [], A, B, "", OFFER, WRONG),
    "an offer about someone": ("tokens", [], A, "", B, OFFER, WRONG),
    "tokens to a party": ("tokens", [], A, B, "", OWN, WRONG),
    "tokens about someone": ("tokens", [], A, "", B, OWN, WRONG),
    "tokens about a stranger": ("tokens", [], A, "", "z", OWN, WRONG),
    "tokens that repeat": ("tokens", [], A, "", "", Tokens(keys(1, 1)), WRONG),
    "tokens out of order": ("tokens", [], A, "", "", Tokens(keys(2, 1)), WRONG),
    "test tokens that repeat": ("tokens", [], A, "", "", Tokens(keys(1), keys(4, 4)), WRONG),
    "no tokens": ("tokens", [], A, "", "", Tokens(keys()), WRONG),
    "no test tokens": ("tokens", [], A, "", "", Tokens(keys(1), keys()), WRONG),
    "no rows by position": ("tokens", [], A, "", "", Tokens(by_position=RowCounts(0)), WRONG),
    "tokens in an ecdh run": ("ecdh", [], A, "", "", OWN, OTHER),
    "points in a tokens run": ("tokens", [], A, B, A, BlindedIds(points(1)), OTHER),
    "points to the wrong party": ("ecdh", [], A, C, A, BlindedIds(points(1)), WRONG),
    "points to the server too early": ("ecdh", [], A, "", A, BlindedIds(points(1)), WRONG),
    "points about nobody": ("ecdh", [], A, B, "", BlindedIds(points(1)), WRONG),
    "points that repeat": ("ecdh", [], A, B, A, BlindedIds(points(1, 1)), WRONG),
    "points passed on before they came": ("ecdh", [], B, C, A, BlindedIds(points(1)), EARLY),
    "fewer points passed on": ("ecdh", [(A, BlindedIds(points(1, 2)), B, A)], B, C, A, BlindedIds(points(5)), WRONG),
    "no test points passed on": (
        "ecdh",
        [(A, BlindedIds(points(1), points(2)), B, A)],
        B,
        C,
        A,
        BlindedIds(points(5)),
        WRONG,
    ),
    "points passed on that repeat": (
        "ecdh",
        [(A, BlindedIds(points(1, 2)), B, A)],
        B,
        C,
        A,
        BlindedIds(points(5, 5)),
        WRONG,
    ),
    "ids beside none": ("tokens", [(A, Tokens(by_position=RowCounts(3)), "", "")], B, "", "", OWN, OTHER),
    "none beside ids": ("tokens", [(A, OWN, "", "")], B, "", "", Tokens(by_position=RowCounts(3)), OTHER),
    "points beside none": (
        "ecdh",
        [(A, Tokens(by_position=RowCounts(1)), "", "")],
        B,
        C,
        B,
        BlindedIds(points(5)),
        OTHER,
    ),
    "points after none": (
        "ecdh",
        [(A, Tokens(by_position=RowCounts(1)), "", "")],
        A,
        B,
        A,
        BlindedIds(points(5)),
        Refusal.CONFLICT,
    ),
    "other numbers of rows": (
        "tokens",
        [(A, Tokens(by_position=RowCounts(3)), "", "")],
        B,
        "",
        "",
        Tokens(by_position=RowCounts(4)),
        OTHER,
    ),
    "test rows beside none": ("tokens", [(A, OWN, "", "")], B, "", "", Tokens(keys(1), keys(2)), OTHER),
    "no test rows beside some": ("tokens", [(A, Tokens(keys(1), keys(2)), "", "")], B, "", "", OWN, OTHER),
    "no key file beside one": ("tokens", [(A, WITH_KEY, "", "")], B, "", "", OFFER, OTHER),
    "a key file beside none": ("tokens", [(A, OFFER, "", "")], B, "", "", WITH_KEY, OTHER),
    "a consent before the counts": ("tokens", [(A, OWN, "", "")], A, "", "", Consent(True), EARLY),
    "a summary of a party": ("tokens", [], A, "", "", RowSummary((1,), (), 1), DENIED),
    "too much": ("tokens", [], A, "", "", Tokens(keys(*range(100))), Refusal.TOO_LARGE),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_message_is_refused_and_changes_nothing(wrong):
    mode, before, sender, to, about, message, refusal = REFUSED[wrong]
    disk = MemoryDisk()
    store = BulletinStore.open(PARTIES, mode, disk, largest=1000)
    for poster, posted, its_to, its_about in before:
        store.post(poster, its_to, its_about, encode_alignment(posted))
    files, rows = dict(disk.files), store.rows
    with pytest.raises(MessageRefused) as raised:
        store.post(sender, to, about, encode_alignment(message))
    assert raised.value.refusal is refusal
    assert disk.files == files
    assert store.rows == rows


def test_bytes_that_are_no_message_are_refused():
    disk = MemoryDisk()
    with pytest.raises(MessageRefused) as raised:
        BulletinStore.open(PARTIES, "tokens", disk).post(A, "", "", b"\xff")
    assert raised.value.refusal is Refusal.INVALID
    assert disk.files == {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("reader", "kind", "sender", "about", "refusal"),
    [
        ("z", "key_offer", A, "", DENIED),
        ("", "tokens", A, "", DENIED),
        (A, "nonsense", A, "", WRONG),
        (A, "key_offer", "z", "", DENIED),
        (A, "key_offer", B, B, DENIED),
        (A, "key_grant", A, "", DENIED),
        (B, "key_grant", C, "", DENIED),
        (A, "tokens", A, "", DENIED),
        (B, "tokens", A, "", DENIED),
        (B, "shared_rows", A, "", DENIED),
        (C, "blinded_ids", A, A, DENIED),
        (A, "blinded_ids", C, A, DENIED),
        (A, "blinded_ids", A, A, DENIED),
        (B, "blinded_ids", A, "", DENIED),
        (B, "blinded_ids", A, B, DENIED),
    ],
)
def test_what_is_not_for_a_reader_is_not_shown(mode, reader, kind, sender, about, refusal):
    store = filled(mode)
    with pytest.raises(MessageRefused) as raised:
        store.fetch(reader, kind, sender, about)
    assert raised.value.refusal is refusal


@pytest.mark.parametrize("mode", MODES)
def test_a_server_cut_off_at_any_write_goes_on_from_what_it_had_taken(mode):
    whole = MemoryDisk()
    filled(mode, whole)
    for writes in range(whole.writes):
        disk = MemoryDisk(writes_left=writes)
        taken = []
        with pytest.raises(PowerCut):
            post_all(BulletinStore.open(PARTIES, mode, disk), mode, taken)
        after = disk.copy()
        store = BulletinStore.open(PARTIES, mode, after)
        kept = dict(after.files)
        for posting in taken:
            store.post(*posting)
        assert after.files == kept
        post_all(store, mode, [])
        check_result(mode, store)
        assert after.files == whole.files


def post_all(store, mode, taken):
    for posting in script(mode):
        store.post(*posting)
        taken.append(posting)


@pytest.mark.parametrize("mode", MODES)
def test_a_write_that_fails_can_be_tried_again_without_a_restart(mode):
    whole = MemoryDisk()
    filled(mode, whole)
    for writes in range(whole.writes):
        disk = MemoryDisk(writes_left=writes)
        store = BulletinStore.open(PARTIES, mode, disk)
        with pytest.raises(PowerCut):
            post_all(store, mode, [])
        disk.writes_left = None
        post_all(store, mode, [])
        check_result(mode, store)


@pytest.mark.parametrize(("parties", "mode"), [((B, A, C), "tokens"), ((A, B), "tokens"), (PARTIES, "ecdh")])
def test_messages_of_another_run_do_not_count(parties, mode):
    store = BulletinStore.open(parties, mode, filled_disk("tokens"))
    assert store.rows == {}
    assert store.fetch(B, "key_offer", A) is None


@pytest.mark.parametrize("mode", MODES)
def test_any_damaged_file_is_found_at_once(mode):
    whole = filled_disk(mode)
    for name, content in whole.files.items():
        for at in (0, 10, 50, len(content) - 1):
            disk = whole.copy()
            disk.files[name] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            with pytest.raises(StateCorrupt, match="damaged; restore it, or remove the kept alignment"):
                BulletinStore.open(PARTIES, mode, disk)
        disk = whole.copy()
        disk.files[name] = content[:20]
        with pytest.raises(StateCorrupt, match=name):
            BulletinStore.open(PARTIES, mode, disk)


def test_a_message_that_is_damaged_later_is_not_given_out():
    disk, name = MemoryDisk(), "bulletin-key_offer-0"
    store = filled("tokens", disk)
    disk.files[name] = disk.files[name][:-1] + b"?"
    with pytest.raises(StateCorrupt, match=name):
        store.fetch(B, "key_offer", A)


def test_with_tokens_one_waits_for_those_who_have_not_posted():
    store = filled("tokens", upto=8)
    assert store.waits_for(A, "shared_rows", "") == [A, B, C]
    store.post(B, "", "", encode_alignment(Tokens(keys(1))))
    assert store.waits_for(A, "shared_rows", "") == [A, C]
    assert store.waits_for(A, "key_check", C) == [C]
    assert store.waits_for(B, "key_grant", A) == [A]
    assert store.waits_for(B, "key_grant", "z") == []
    assert filled("tokens").waits_for(A, "shared_rows", "") == []
    assert filled("tokens", upto=-3).waits_for(A, "row_summary", "") == []
    assert filled("tokens", upto=-2).waits_for(A, "shared_rows", "") == [B, C], "they have not consented"


def test_in_a_ring_one_waits_for_the_party_that_has_to_act_next():
    store = filled("ecdh", upto=8)
    assert store.waits_for(C, "blinded_ids", B, A) == [A]
    store.post(A, B, A, encode_alignment(BlindedIds(points(1, 3))))
    assert store.waits_for(C, "blinded_ids", B, A) == [B]
    assert store.waits_for(B, "blinded_ids", A, A) == []
    assert store.waits_for(C, "blinded_ids", B) == [B]
    assert store.waits_for(A, "shared_rows", "") == [B, C]
    assert filled("ecdh").waits_for(A, "shared_rows", "") == []


@pytest.mark.parametrize("mode", MODES)
def test_parties_without_ids_are_matched_in_either_mode(mode):
    store = BulletinStore.open(PARTIES, mode, MemoryDisk())
    for party in PARTIES:
        assert party in store.waits_for(A, "shared_rows", "")
        store.post(party, "", "", encode_alignment(Tokens(by_position=RowCounts(3, 2))))
    assert summary_of(store) == RowSummary((3, 3, 3), (2, 2, 2), 3, 2)
    for party in PARTIES:
        store.post(party, "", "", encode_alignment(Consent(True)))
    assert places_of(store, B).train.tolist() == [0, 1, 2]
    assert places_of(store, B).held_out.tolist() == [0, 1]
    assert store.shared == RowCounts(3, 2)


@pytest.mark.parametrize("mode", MODES)
def test_one_party_shares_all_with_itself(mode):
    store = BulletinStore.open((A,), mode, MemoryDisk())
    own, about = (Tokens(keys(1, 2)), "") if mode == "tokens" else (BlindedIds(points(1, 2)), A)
    store.post(A, "", about, encode_alignment(own))
    store.post(A, "", "", encode_alignment(Consent(True)))
    assert places_of(store, A).train.tolist() == [0, 1]


# Consent


@pytest.mark.parametrize("mode", MODES)
def test_no_row_number_is_told_before_all_have_consented(mode):
    """Finding 15: the server told every party its shared rows as soon as all ids had come."""
    disk = MemoryDisk()
    store = filled(mode, disk, upto=-3)
    *_, counts, shared = FOUND[mode]
    assert summary_of(store).rows == counts
    assert (summary_of(store).shared, summary_of(store).shared_test) == (shared.train, shared.test)
    for posting in script(mode)[-3:]:
        again = BulletinStore.open(PARTIES, mode, disk)
        assert [places_of(again, party) for party in PARTIES] == [None] * 3
        assert again.digest is None
        store.post(*posting)
    check_result(mode, BulletinStore.open(PARTIES, mode, disk))


def test_one_refusal_keeps_the_rows_from_all_and_is_read_by_all():
    store = filled("tokens", upto=-1)
    store.post(C, "", "", encode_alignment(Consent(False, "too many rows")))
    assert [places_of(store, party) for party in PARTIES] == [None] * 3
    assert store.waits_for(A, "shared_rows", "") == [C]
    for party in PARTIES:
        assert decode_alignment(store.fetch(party, "consent", C)) == Consent(False, "too many rows")


def test_a_refusal_may_become_a_consent_but_a_consent_stays():
    disk = MemoryDisk()
    store = filled("tokens", disk, upto=-1)
    for reason in ("too many rows", "too few shared"):
        store.post(C, "", "", encode_alignment(Consent(False, reason)))
    store.post(C, "", "", encode_alignment(Consent(True)))
    check_result("tokens", store)
    with pytest.raises(MessageRefused) as raised:
        store.post(C, "", "", encode_alignment(Consent(False, "on second thoughts")))
    assert raised.value.refusal is Refusal.CONFLICT
    check_result("tokens", BulletinStore.open(PARTIES, "tokens", disk))


def refusal_of(store, posting):
    """None if the message was taken; a set that was passed on too early may come again."""
    try:
        store.post(*posting)
    except MessageRefused as refused:
        if refused.refusal is not Refusal.GAP:
            raise
        return refused.refusal
    return None


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=20)
@given(order=st.randoms(use_true_random=False))
def test_the_order_in_which_sets_come_does_not_matter(mode, order):
    store, left = filled(mode, upto=8), script(mode)[8:]
    while left:
        posting = order.choice(left)
        if refusal_of(store, posting) is None:
            left.remove(posting)
    check_result(mode, store)


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_keeps_the_messages(mode, tmp_path):
    filled(mode, FolderDisk(tmp_path))
    check_result(mode, BulletinStore.open(PARTIES, mode, FolderDisk(tmp_path)))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
