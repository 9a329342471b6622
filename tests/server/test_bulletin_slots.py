import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import SERVER, BlindedIds, KeyGrant, KeyOffer, SharedRowIndex, Tokens
from fdml.server.bulletin_slots import BulletinSlots, Slot

SLOTS = BulletinSlots(("ann", "bob", "cem"))


def test_blinded_ids_pass_every_party_once_and_end_at_the_server():
    assert SLOTS.own_ids["bob"].ring == (
        Slot(BlindedIds, "bob", "cem", "bob"),
        Slot(BlindedIds, "cem", "ann", "bob"),
        Slot(BlindedIds, "ann", SERVER, "bob"),
    )


def test_a_party_alone_gives_its_blinded_ids_to_the_server_at_once():
    assert BulletinSlots(("ann",)).own_ids["ann"].ring == (Slot(BlindedIds, "ann", SERVER, "ann"),)


def test_where_rows_point_to_others_a_set_passes_the_two_that_are_matched():
    slots = BulletinSlots(("ann", "bob", "cem"), "bob")
    assert slots.own_ids["cem"].ring == (Slot(BlindedIds, "cem", "bob", "cem"), Slot(BlindedIds, "bob", SERVER, "cem"))
    assert slots.led["cem"].ring == (Slot(BlindedIds, "bob", "cem", "bob"), Slot(BlindedIds, "cem", SERVER, "bob"))
    assert slots.led["cem"].tokens == Slot(Tokens, "bob", about="cem")
    assert len({slots.file_name(slot) for slot in slots.all}) == len(set(slots.all)) == len(slots.all)
    for slot in slots.led["ann"].ring:
        assert slots.set_of(slot) == slots.led["ann"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_slot_is_there_once_and_has_a_file_of_its_own(count):
    slots = BulletinSlots([f"party/{number}" for number in range(count)])
    assert len(set(slots.all)) == len(slots.all)
    files = {slots.file_name(slot) for slot in slots.all}
    assert len(files) == len(slots.all)
    assert not any("/" in name for name in files)
    assert len(slots.all) == 4 * count + 1 + (count - 1) + count + count**2


def test_own_and_final_ids_are_two_ends_of_a_ring():
    ids = SLOTS.own_ids["ann"]
    assert ids.own == (Slot(Tokens, "ann"), ids.ring[0])
    assert ids.final == (Slot(Tokens, "ann"), ids.ring[-1])


def test_a_reader_gets_the_slot_that_is_for_it():
    assert SLOTS.for_reader("bob", "key_grant", "ann", "") == Slot(KeyGrant, "ann", "bob")
    assert SLOTS.for_reader("bob", "key_offer", "cem", "") == Slot(KeyOffer, "cem")
    assert SLOTS.for_reader("cem", "shared_rows", SERVER, "") == Slot(SharedRowIndex, SERVER, "cem")
    assert SLOTS.for_reader("cem", "blinded_ids", "bob", "ann") == Slot(BlindedIds, "bob", "cem", "ann")


def test_no_reader_gets_tokens():
    with pytest.raises(MessageRefused, match="asked for the message 'tokens' of 'ann', which is not for it") as refused:
        SLOTS.for_reader("ann", "tokens", "ann", "")
    assert refused.value.refusal is Refusal.NOT_PERMITTED


def test_every_slot_of_a_party_may_be_written_by_it_but_no_answer_of_the_server():
    for slot in SLOTS.all:
        if slot in (*SLOTS.answers, SLOTS.summary):
            with pytest.raises(MessageRefused, match="may not post the message"):
                SLOTS.check_writer(slot)
        else:
            SLOTS.check_writer(slot)


def test_a_slot_in_a_sentence_names_kind_and_owner():
    assert str(Slot(KeyOffer, "ann")) == "the message 'key_offer'"
    assert str(Slot(BlindedIds, "ann", "bob", "cem")) == "the message 'blinded_ids' about 'cem'"


def test_a_stranger_is_named():
    SLOTS.check_party("ann")
    with pytest.raises(MessageRefused, match="'zed' is not a party of this run") as refused:
        SLOTS.check_party("zed")
    assert refused.value.refusal is Refusal.NOT_PERMITTED
