"""Consent before intersection: nobody is told row numbers before all parties have agreed to the counts."""

from functools import partial

import pytest

from fdml.align.consent import consent_to_all, exchange_consent, objection, summary_text
from fdml.align.conversation import converse
from fdml.align.party_ids import PartyIds
from fdml.errors import AlignmentError, MessageRefused
from fdml.protocol.alignment_messages import Consent, Post, RowCounts, RowSummary, SharedRowIndex, Tokens
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.settings import RunSettings
from tests.align.bulletins import PartyCalls, alignment_of, open_store, take_turns
from tests.align.test_matching import ids_of
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("bank", "shop")
CUSTOMERS = [f"customer {number}" for number in range(500)]
GUESSES = [f"customer {number}" for number in range(100_000)]


def run_of(mode="tokens", parties=PARTIES):
    return RunSettings(name="first", federation="credit", parties=parties, label_party=parties[0], align=mode)


def limits(run, party, max_rows=None, min_shared=None):
    """A party that decides by its limits alone."""

    def decide(summary):
        against = objection(summary, run, party, max_rows=max_rows, min_shared=min_shared)
        return Consent(not against, against)

    return decide


def hold(run, ids, store, decisions=None):
    """All parties in turns; gives what each of them ended with, an alignment or an error."""
    calls = {party: PartyCalls(store, party) for party in run.parties}

    def to_the_end(party):
        decide = (decisions or {}).get(party, consent_to_all)
        try:
            return (yield from alignment_of(run, party, ids[party], MemoryDisk(), decide=decide))
        except AlignmentError as error:
            return error

    return take_turns({party: to_the_end(party) for party in run.parties}, calls), calls


def fetched_rows(store, parties=PARTIES):
    return [store.fetch(party, "shared_rows", "") for party in parties]


def test_a_party_that_posts_100_000_guessed_ids_is_refused_before_any_row_number_is_told():
    """Finding 15: with 100,000 guesses one party knew all 500 ids of the other; store was warned afterwards."""
    run = run_of()
    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS, "shop": GUESSES})
    found, _ = hold(run, ids, store, {"bank": limits(run, "bank", max_rows=2000)})
    assert fetched_rows(store) == [None, None]
    reason = "party 'shop' brings 100000 rows, and align.max_rows of 'bank' is 2000"
    assert f"party 'bank' does not consent: {reason}" in str(found["bank"])
    assert f"party 'bank' does not consent to the shared rows: {reason}" in str(found["shop"])
    assert "No row number was told to anyone" in str(found["shop"])


def test_guesses_among_the_test_rows_count_too():
    run = run_of()
    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS, "shop": CUSTOMERS}, {"bank": ["t"], "shop": ["t", *GUESSES[500:5000]]})
    found, _ = hold(run, ids, store, {"bank": limits(run, "bank", max_rows=2000)})
    assert "party 'shop' brings 4501 rows" in str(found["bank"])
    assert fetched_rows(store) == [None, None]


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
@pytest.mark.parametrize("refusing", ["bank", "shop", "clinic"])
def test_a_refusal_ends_the_alignment_of_all_with_the_name_and_the_reason(mode, refusing):
    run = run_of(mode, ("bank", "shop", "clinic"))
    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS[:9], "shop": CUSTOMERS[:6], "clinic": CUSTOMERS[3:8]})
    found, _ = hold(run, ids, store, {refusing: limits(run, refusing, min_shared=4)})
    for party, error in found.items():
        assert isinstance(error, AlignmentError), party
        assert f"party {refusing!r} does not consent" in str(error)
        assert "3 rows are shared, and align.min_shared of" in str(error)
    assert fetched_rows(store, run.parties) == [None] * 3


def test_who_changes_its_mind_goes_first_and_then_all_find_their_rows():
    run = run_of()
    store, disks = open_store(run), {party: MemoryDisk() for party in PARTIES}
    ids = ids_of({"bank": CUSTOMERS, "shop": CUSTOMERS[:50]})

    def start(party, decide):
        return alignment_of(run, party, ids[party], disks[party], decide=decide)

    calls = {party: PartyCalls(store, party) for party in PARTIES}
    first = {"bank": start("bank", limits(run, "bank", min_shared=60)), "shop": start("shop", consent_to_all)}
    with pytest.raises(AlignmentError, match="'bank' does not consent"):
        take_turns(first, calls)
    found = take_turns({party: start(party, consent_to_all) for party in PARTIES}, calls)
    assert {each.shared for each, _ in found.values()} == {50}


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
def test_every_party_is_asked_with_the_counts_and_before_it_fetches_rows(mode):
    run = run_of(mode)
    asked = []

    def note(party, calls, summary):
        asked.append((party, summary, [kind for kind, *_ in calls[party].posted]))
        return Consent(True)

    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS[:9], "shop": CUSTOMERS[5:12]})
    calls = {party: PartyCalls(store, party) for party in PARTIES}
    take_turns({p: alignment_of(run, p, ids[p], MemoryDisk(), decide=partial(note, p, calls)) for p in PARTIES}, calls)
    assert {party for party, *_ in asked} == set(PARTIES)
    assert {summary for _, summary, _ in asked} == {RowSummary((9, 7), (), 4)}
    assert all("consent" not in posted for *_, posted in asked)


def test_rows_by_position_need_consent_too():
    run = run_of()
    store = open_store(run)
    ids = dict.fromkeys(PARTIES, PartyIds(by_position=RowCounts(7)))
    found, _ = hold(run, ids, store, {"shop": limits(run, "shop", max_rows=5)})
    assert "party 'bank' brings 7 rows" in str(found["bank"])
    assert fetched_rows(store) == [None, None]


def test_where_nothing_is_shared_nobody_is_asked():
    run = run_of()
    found, calls = hold(run, ids_of({"bank": ["1"], "shop": ["2"]}), open_store(run), {"bank": None, "shop": None})
    assert all("share no rows" in str(error) for error in found.values())
    assert all(kind != "consent" for each in calls.values() for kind, *_ in each.posted)


@pytest.mark.parametrize(
    ("max_rows", "min_shared", "text"),
    [
        (None, None, ""),
        (90, 20, ""),
        (89, None, "party 'shop' brings 90 rows, and align.max_rows of 'bank' is 89"),
        (None, 21, "20 rows are shared, and align.min_shared of 'bank' is 21"),
    ],
)
def test_what_limits_have_against_counts(max_rows, min_shared, text):
    summary = RowSummary((1000, 90), (5, 3), 20, 2)
    assert objection(summary, run_of(), "bank", max_rows=max_rows, min_shared=min_shared) == text


def test_the_counts_in_words():
    assert summary_text(RowSummary((1000, 90), (), 20), run_of()) == "rows: bank 1,000, shop 90, shared 20"
    text = summary_text(RowSummary((1000, 90), (5, 3), 20, 2), run_of())
    assert text.endswith("; test rows: bank 5, shop 3, shared 2")


@pytest.mark.parametrize(
    "summary",
    [
        RowSummary((9, 7), (), 8),
        RowSummary((8, 7), (), 4),
        RowSummary((9,), (), 4),
        RowSummary((9, 7), (1, 1), 4),
        RowSummary((9, 7), (), 4, 1),
    ],
)
def test_counts_that_cannot_be_are_not_believed(summary):
    """The last one is found when the rows are told: they are not what all consented to."""
    run = run_of()
    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS[:9], "shop": CUSTOMERS[5:12]})

    class Lied(PartyCalls):
        def answer(self, request):
            reply = super().answer(request)
            return summary if isinstance(reply, RowSummary) else reply

    calls = {"bank": Lied(store, "bank"), "shop": PartyCalls(store, "shop")}
    with pytest.raises(AlignmentError, match="server's answer does not fit"):
        take_turns({party: alignment_of(run, party, ids[party], MemoryDisk()) for party in PARTIES}, calls)


def test_row_numbers_are_asked_for_last():
    run = run_of()
    order = []

    class Noted(PartyCalls):
        def answer(self, request):
            order.append(getattr(request, "kind", type(getattr(request, "message", None))))
            return super().answer(request)

    store = open_store(run)
    ids = ids_of({"bank": CUSTOMERS[:9], "shop": CUSTOMERS[5:12]})
    take_turns(
        {party: alignment_of(run, party, ids[party], MemoryDisk()) for party in PARTIES},
        {party: Noted(store, party) for party in PARTIES},
    )
    assert order.index(SharedRowIndex) > max(at for at, kind in enumerate(order) if kind is Consent)


def consents_of(lines):
    """A conversation of one party whose others have lines of these classes; gives what it posted and found."""
    run = run_of("tokens", ("bank", *lines))
    summary = RowSummary((9,) * (1 + len(lines)), (), 9)
    posted = []

    def answer(request):
        if isinstance(request, Post):
            posted.append(request.message)
            return None
        if request.kind is RowSummary:
            return summary
        return posted[-1] if request.sender == "bank" else Consent(True, line=lines[request.sender])

    found = converse(exchange_consent(run, "bank", summary, consent_to_all, lambda: 2), answer)
    return posted, found


@pytest.mark.parametrize(("others", "slowest"), [({"shop": 0}, 2), ({"shop": 4, "telco": 1}, 4)])
def test_the_slowest_line_counts_for_all(others, slowest):
    posted, found = consents_of(others)
    assert posted == [Consent(True, line=2)]
    assert found == slowest


def test_a_party_that_posts_its_consent_again_with_another_line_keeps_the_first():
    run = run_of("tokens", PARTIES[:2])
    store = open_store(run, MemoryDisk())
    for party in run.parties:
        store.post(party, "", "", encode_alignment(Tokens(by_position=RowCounts(5, None))))
    store.post("bank", "", "", encode_alignment(Consent(True, line=1)))
    store.post("bank", "", "", encode_alignment(Consent(True, line=3)))
    assert decode_alignment(store.fetch(run.parties[1], "consent", "bank")) == Consent(True, line=1)
    with pytest.raises(MessageRefused, match="posted the message 'consent' before and now another"):
        store.post("bank", "", "", encode_alignment(Consent(False, "no", line=3)))


@pytest.mark.parametrize(("classes", "measured"), [([3, 3, 0], 7), ([2] * 20, 20), ([0], 5)])
def test_a_line_that_seems_slow_is_measured_again_before_it_counts_as_slow(classes, measured):
    """On a busy machine a few answers are late; a slow line is slow every time."""
    run = run_of()
    fetches, left = 0, list(classes)
    asking = exchange_consent(
        run, "bank", RowSummary((2, 2), (), 2), consent_to_all, lambda: left.pop(0) if len(left) > 1 else left[0]
    )
    call = next(asking)
    while not isinstance(call, Post):
        fetches += 1
        call = asking.send(RowSummary((2, 2), (), 2))
    assert (fetches, call.message.line) == (measured, classes[-1])
