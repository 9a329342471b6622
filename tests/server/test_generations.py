"""Which generation a run uses, by what its parties offer, and what the server keeps of each."""

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    Consent,
    KeyOffer,
    RemovedRows,
    RowCounts,
    RowsOffer,
    RowsPlan,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.settings import RunSettings
from tests.storage.memory_disk import MemoryDisk, PowerCut

PARTIES = ("ann", "bob")
ANN, BOB = PARTIES
TAGS = {ANN: b"a" * 16, BOB: b"b" * 16}


def keys(*numbers):
    return np.array([[number] * 16 for number in numbers], np.uint8).reshape(-1, 16)


def places(*numbers):
    return np.array(numbers, np.int64)


def settings_of(name="first", **changes):
    return RunSettings(name=name, parties=PARTIES, label_party=ANN, **changes)


def opened(server, run="first", disk=None, **changes):
    settings = settings_of(run, **changes)
    return RunAlignment(settings, MemoryDisk() if disk is None else disk, Generations.of(settings, server))


def post(rows, sender, message):
    rows.post(sender, "", "", encode_alignment(message))


def fetched(rows, reader, kind, sender=""):
    raw = rows.fetch(reader, kind, sender)
    return None if raw is None else decode_alignment(raw)


def offer(rows, chain=(), number=0, whole=False, **tags):
    """All parties offer; gives the plan."""
    for party in PARTIES:
        post(rows, party, RowsOffer(tags.get(party, TAGS[party]), chain, number, whole))
    return fetched(rows, ANN, "rows_plan")


def aligned(rows, ann, bob, gone=None):
    """Both post their tokens and consent; gives what each is told."""
    for party, own in ((ANN, ann), (BOB, bob)):
        if gone is not None:
            post(rows, party, RemovedRows(places(*gone[party]), places()))
        post(rows, party, Tokens(keys(*own)))
    for party in PARTIES:
        post(rows, party, Consent(True))
    return [fetched(rows, party, "shared_rows") for party in PARTIES]


@pytest.fixture
def server():
    return MemoryDisk()


@pytest.fixture
def first(server):
    """The plan of a first run, whose alignment is complete: keys 2, 3 and 4 are shared."""
    rows = opened(server)
    plan = offer(rows)
    aligned(rows, (1, 2, 3, 4), (2, 3, 4, 5, 6))
    return plan


def test_a_first_run_aligns_without_a_base(server):
    plan = offer(opened(server))
    assert (plan.base, plan.number) == (b"", 1)


def test_the_same_offers_use_what_is_kept(server, first):
    rows = opened(server, "second")
    assert offer(rows, (first.generation,), 1) == first
    assert rows.digest is not None
    assert rows.rows == {ANN: 4, BOB: 5}
    assert rows.shared == RowCounts(3, 0)


def test_a_changed_tag_adds_to_what_all_keep(server, first):
    plan = offer(opened(server, "second"), (first.generation,), 1, ann=b"x" * 16)
    assert (plan.base, plan.number) == (first.generation, 2)
    assert plan.generation != first.generation


def test_what_one_party_does_not_keep_is_no_base(server, first):
    rows = opened(server, "second")
    post(rows, ANN, RowsOffer(b"x" * 16, (first.generation,), 1))
    post(rows, BOB, RowsOffer(TAGS[BOB], (), 0))
    plan = fetched(rows, BOB, "rows_plan")
    assert (plan.base, plan.number) == (b"", 2)


def test_what_the_server_does_not_keep_is_no_base(first):
    plan = offer(opened(MemoryDisk(), "second"), (first.generation,), 1)
    assert plan.base == b""


def test_a_generation_that_is_not_complete_is_no_base(server):
    rows = opened(server)
    plan = offer(rows)
    post(rows, ANN, Tokens(keys(1, 2)))
    after = offer(opened(server, "second"), (plan.generation,), 1, ann=b"x" * 16)
    assert after.base == b""


def test_rows_that_are_matched_as_a_whole_are_never_added_to(server, first):
    plan = offer(opened(server, "second"), (first.generation,), 1, whole=True, ann=b"x" * 16)
    assert plan.base == b""


def test_of_two_generations_the_one_with_the_same_rows_is_used(server, first):
    changed = {"ann": b"x" * 16}
    rows = opened(server, "second")
    second = offer(rows, (first.generation,), 1, **changed)
    aligned(rows, (7,), (7,), gone={ANN: (), BOB: ()})
    chain = (second.generation, first.generation)
    assert offer(opened(server, "third"), chain, 2, **changed) == second
    assert offer(opened(server, "fourth"), chain, 2) == first, "the files are what they were before"


def test_runs_at_once_with_the_same_rows_share_one_generation(server):
    settings = settings_of()
    generations = Generations.of(settings, server)
    runs = [RunAlignment(settings_of(name), MemoryDisk(), generations) for name in ("first", "second")]
    plans = [offer(rows) for rows in runs]
    assert plans[0] == plans[1]
    post(runs[0], ANN, Tokens(keys(1, 2)))
    post(runs[1], ANN, Tokens(keys(1, 2)))
    post(runs[1], BOB, Tokens(keys(2, 3)))
    for rows, party in zip(runs, PARTIES, strict=True):
        post(rows, party, Consent(True))
    assert [fetched(rows, BOB, "shared_rows").train.tolist() for rows in runs] == [[0], [0]]


@pytest.mark.parametrize("held", [2, 5])
def test_new_keys_are_matched_with_those_of_before_and_places_go_on(server, first, held):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    ann, bob = aligned(rows, (5, 8), (8,), gone={ANN: (1,), BOB: ()})
    # Ann had 1, 2, 3, 4 at places 0 to 3 and adds 5 and 8; Bob had 2, 3, 4, 5, 6 at places 0 to 4 and adds 8.
    assert (ann.train.tolist(), bob.train.tolist()) == ([4, 5], [3, 5])
    assert ann.left.tolist() == bob.left.tolist() == [0], "key 2 was the first shared row"
    summary = fetched(rows, ANN, "row_summary")
    expected = RowSummary((5, 6), (), 4, number=2, new_rows=(2, 1), new_shared=2, left=1, brought=(6, 6))
    assert summary == expected
    assert rows.split(1 / held, seed=1).train + rows.split(1 / held, seed=1).test == 4
    again = opened(server, "third")
    offer(again, (fetched(rows, ANN, "rows_plan").generation, first.generation), 2, ann=b"x" * 16)
    assert again.digest == rows.digest


def test_a_key_that_was_posted_before_is_refused(server, first):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    with pytest.raises(MessageRefused, match="party 'ann' posted keys again that it has posted before") as refused:
        post(rows, ANN, Tokens(keys(3, 9)))
    assert refused.value.refusal is Refusal.INVALID


def test_only_rows_that_are_there_can_be_removed(server, first):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    with pytest.raises(MessageRefused, match="party 'ann' removes rows that it has not posted"):
        post(rows, ANN, RemovedRows(places(4), places()))
    with pytest.raises(MessageRefused, match="whom it is not for"):
        post(opened_first(server), ANN, RemovedRows(places(1), places()))


def opened_first(server):
    rows = opened(server, "other")
    offer(rows, ann=b"z" * 16)
    return rows


def test_rows_without_ids_cannot_be_added(server, first):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    with pytest.raises(MessageRefused, match="adds rows without ids to rows with ids"):
        post(rows, ANN, Tokens(by_position=RowCounts(3)))


def test_removed_rows_are_read_by_nobody(server, first):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    post(rows, ANN, RemovedRows(places(1), places()))
    with pytest.raises(MessageRefused, match="not for it"):
        rows.fetch(BOB, "removed_rows", ANN)


def test_an_offer_is_made_once(server):
    rows = opened(server)
    post(rows, ANN, RowsOffer(b"a" * 16))
    post(rows, ANN, RowsOffer(b"a" * 16))
    with pytest.raises(MessageRefused, match="its ids have changed since, or its state was lost") as refused:
        post(rows, ANN, RowsOffer(b"x" * 16))
    assert refused.value.refusal is Refusal.CONFLICT
    with pytest.raises(MessageRefused, match="is not a party"):
        post(rows, "eve", RowsOffer(b"e" * 16))


def test_nothing_else_is_taken_before_all_have_offered(server):
    rows = opened(server)
    post(rows, ANN, RowsOffer(b"a" * 16))
    assert rows.waits_for(ANN, "rows_plan", "") == [BOB]
    assert fetched(rows, ANN, "rows_plan") is None
    assert fetched(rows, ANN, "key_offer", BOB) is None
    with pytest.raises(MessageRefused, match="not all parties have offered their rows") as refused:
        post(rows, ANN, KeyOffer(b"p" * 32))
    assert refused.value.refusal is Refusal.GAP
    assert rows.largest_post(ANN) < 2**16
    assert (rows.digest, rows.shared, rows.rows, rows.split(0.2, 7)) == (None, None, {}, None)


def test_a_server_that_is_cut_off_at_any_write_makes_the_same_plan(server, first):
    expected = offer(opened(MemoryDisk(server.files), "second"), (first.generation,), 1, ann=b"x" * 16)
    for writes in range(10):
        kept = MemoryDisk(server.files)
        disk = MemoryDisk(writes_left=writes)
        try:
            offer(opened(kept, "second", disk), (first.generation,), 1, ann=b"x" * 16)
        except PowerCut:
            again = offer(opened(kept, "second", disk.copy()), (first.generation,), 1, ann=b"x" * 16)
            assert again == expected
        else:
            break
    assert writes == 3, "two offers and the plan"


def test_a_plan_is_kept_though_the_generations_go_on(server, first):
    disk = MemoryDisk()
    plan = offer(opened(server, "second", disk), (first.generation,), 1, ann=b"x" * 16)
    other = opened(server, "third")
    offer(other, (first.generation,), 1, ann=b"y" * 16)
    aligned(other, (9,), (9,), gone={ANN: (), BOB: ()})
    assert fetched(opened(server, "second", disk), BOB, "rows_plan") == plan


def test_a_generation_that_is_missing_is_named(server, first):
    rows = opened(server, "second")
    plan = offer(rows, (first.generation,), 1, ann=b"x" * 16)
    for name in [name for name in server.files if name.startswith(first.generation.hex())]:
        del server.files[name]
    with pytest.raises(StateCorrupt, match=f"generation {first.generation.hex()} of the alignment is missing"):
        Generations.of(settings_of(), server).bulletin(plan)


def test_another_way_of_matching_is_another_alignment(server, first):
    plan = offer(opened(server, "second", align="ecdh"), (first.generation,), 1)
    assert plan == RowsPlan(first.generation, b"", 2, (bytes(16),) * 2), (
        "the same rows, but nothing of the other is used"
    )
    rows = opened(server, "third", align="ecdh")
    offer(rows, (first.generation,), 1)
    assert rows.digest is None


def test_a_row_number_is_told_only_once_the_generation_has_its_consents(server, first):
    rows = opened(server, "second")
    offer(rows, (first.generation,), 1, ann=b"x" * 16)
    for party in PARTIES:
        post(rows, party, RemovedRows(places(), places()))
        post(rows, party, Tokens(keys(9)))
    post(rows, ANN, Consent(True))
    assert fetched(rows, ANN, "shared_rows") is None
    post(rows, BOB, Consent(True))
    assert isinstance(fetched(rows, ANN, "shared_rows"), SharedRowIndex)
