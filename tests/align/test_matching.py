import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.align.consent import consent_to_all
from fdml.align.conversation import converse
from fdml.align.group_key import GroupKey
from fdml.align.kept import KeptAlignment, change_of
from fdml.align.matching import Aligner, align
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.align.split import shuffled_rows, split_rows
from fdml.data.ids import IdCounts, Ids
from fdml.errors import AlignmentError, MessageRefused, PeerTimeout, Refusal
from fdml.privacy.disclosures import DISCLOSURES
from fdml.protocol.alignment_messages import Consent, Fetch, RowCounts, RowSummary, SharedRowIndex
from fdml.settings import RunSettings
from tests.align.bulletins import PartyCalls, align_all, align_alone, check_every_kill, open_store
from tests.storage.memory_disk import MemoryDisk, PowerCut

MODES = ["tokens", "ecdh"]
PARTIES = ("bank", "shop", "clinic")
TEXTS = {
    "bank": ["anna", "bert", "carla", "dora", "emil", "fritz", "gerda", "hans"],
    "shop": ["hans", "gerda", "zoe", "emil", "bert", "carla", "yan"],
    "clinic": ["gerda", "xaver", "hans", "carla", "emil", "anna", "bert", "w", "v"],
}
TESTS = {"bank": ["t1", "t2", "t3"], "shop": ["t3", "t9", "t2"], "clinic": ["t2", "t3", "t7", "t8"]}
SHARED = {"bert", "carla", "emil", "gerda", "hans"}
KEY = GroupKey(bytes(range(32)))


def run_of(mode, parties=PARTIES, holdout=0.4):
    return RunSettings(parties=parties, label_party=parties[0], align=mode, evaluation={"holdout": holdout})


def texts(values):
    return pa.array(values, pa.large_string())


def ids_of(train, test=None):
    return {party: PartyIds(texts(train[party]), None if test is None else texts(test[party])) for party in train}


def named(rows, values):
    return [values[row] for row in rows]


def alone(run, party, ids, secrets):
    """The matching of a party that keeps nothing yet."""
    kept = KeptAlignment()
    side = Aligner(run, party, KEY, secrets, consent_to_all)
    return align(side, ids, kept, change_of(run, kept, ids, secrets.tag_key()))


@pytest.mark.parametrize("mode", MODES)
def test_the_parties_find_what_a_plain_join_finds_in_one_order(mode):
    found = {party: each for party, (each, _) in align_all(run_of(mode), ids_of(TEXTS)).items()}
    orders = [(named(each.train, TEXTS[party]), named(each.held_out, TEXTS[party])) for party, each in found.items()]
    assert orders[0] == orders[1] == orders[2]
    train, held_out = orders[0]
    assert sorted(train + held_out) == sorted(SHARED)
    assert len(held_out) == 2
    assert len({each.digest for each in found.values()}) == 1
    assert found["bank"].counts == {"bank": 8, "shop": 7, "clinic": 9}
    assert found["bank"].shared == 5
    assert found["bank"].warning == ""


@pytest.mark.parametrize("mode", MODES)
def test_test_files_are_joined_on_their_own(mode):
    found = align_all(run_of(mode), ids_of(TEXTS, TESTS))
    for party, (each, _) in found.items():
        assert set(named(each.train, TEXTS[party])) == SHARED
        assert set(named(each.held_out, TESTS[party])) == {"t2", "t3"}
        assert named(each.held_out, TESTS[party]) == named(found["bank"][0].held_out, TESTS["bank"])
        assert named(each.train, TEXTS[party]) == named(found["bank"][0].train, TEXTS["bank"])


def test_training_rows_are_split_and_shuffled_as_everywhere_else():
    run = run_of("tokens")
    found, key = align_all(run, ids_of(TEXTS))["bank"]
    token = key.derive(f"tokens of {run.federation}")
    ordered = sorted(SHARED, key=lambda each: hashlib.blake2b(each.encode(), digest_size=16, key=token).digest())
    keep, out = split_rows(5, 0.4, run.training.seed)
    order = keep[shuffled_rows(len(keep), run.training.seed)]
    assert named(found.train, TEXTS["bank"]) == [ordered[row] for row in order]
    assert named(found.held_out, TEXTS["bank"]) == [ordered[row] for row in out]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=12)
@given(data=st.data())
def test_any_sets_of_ids_give_their_plain_intersection(mode, data):
    parties = PARTIES[: data.draw(st.integers(1, 3))]
    common = data.draw(st.sets(st.text(max_size=5), min_size=2, max_size=12))
    train = {}
    for party in parties:
        extra = data.draw(st.sets(st.text(max_size=5), max_size=12))
        train[party] = data.draw(st.permutations(sorted(common | extra)))
    shared = set.intersection(*map(set, train.values()))
    found = align_all(run_of(mode, parties), ids_of(train))
    orders = [named([*each.train, *each.held_out], train[party]) for party, (each, _) in found.items()]
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(shared)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("test", [None, 3])
def test_parties_without_ids_are_matched_row_by_row(mode, test):
    run = run_of(mode)
    found = align_all(run, dict.fromkeys(PARTIES, PartyIds(by_position=RowCounts(10, test))))
    for each, _ in found.values():
        np.testing.assert_array_equal(each.train, found["bank"][0].train)
        expected = list(range(10)) if test is None else list(range(10)) + list(range(3))
        assert sorted([*each.train, *each.held_out]) == sorted(expected)
        assert each.counts == dict.fromkeys(PARTIES, 10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("other", "text"),
    [
        (PartyIds(by_position=RowCounts(7)), "has no ids but"),
        (PartyIds(texts(["a"]), texts(["b"])), "has no test rows but"),
    ],
)
def test_parties_that_bring_different_things_are_refused(mode, other, text):
    with pytest.raises(MessageRefused, match=text) as raised:
        align_all(run_of(mode), ids_of(TEXTS) | {"shop": other})
    assert raised.value.refusal is Refusal.MISMATCH


@pytest.mark.parametrize("mode", MODES)
def test_no_shared_rows_is_an_error_that_says_why(mode):
    train = {"bank": ["1", "2"], "shop": ["01", "02"]}
    with pytest.raises(AlignmentError, match=r"share no rows \(bank 2, shop 2 rows\).*data.ids.*data.id names"):
        align_all(run_of(mode, PARTIES[:2]), ids_of(train))


def test_no_shared_test_rows_is_an_error():
    train = {"bank": ["1", "2"], "shop": ["1", "2"]}
    with pytest.raises(AlignmentError, match="share no test rows"):
        align_all(run_of("tokens", PARTIES[:2]), ids_of(train, {"bank": ["3"], "shop": ["4"]}))


def test_few_shared_rows_give_a_warning_that_names_the_party():
    train = {"bank": [f"{each}" for each in range(500)], "shop": ["3", "4"]}
    found = align_all(run_of("tokens", PARTIES[:2], 0.5), ids_of(train))
    for each, _ in found.values():
        assert "only 2 rows are shared, under 1% of what some parties have (bank 500)" in each.warning


@pytest.mark.parametrize("mode", MODES)
def test_a_duplicate_id_is_refused_before_anything_is_posted(mode):
    run = run_of(mode, PARTIES[:1])
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    with pytest.raises(AlignmentError, match="party 'bank' has 2 rows with a duplicate id"):
        next(alone(run, "bank", PartyIds(texts(["a", "b", "a", "a"])), secrets))


def test_ids_come_from_the_files():
    counts = IdCounts(2, 0, 0, 0, (), ())
    both = [Ids(texts(["a", "b"]), np.arange(2), counts), Ids(texts(["c"]), np.arange(1), counts)]
    assert PartyIds.of(both, [2, 1]).test.to_pylist() == ["c"]
    assert PartyIds.of(both[:1], [2]).test is None
    assert PartyIds.of([None, None], [2, 1]).by_position == RowCounts(2, 1)
    assert PartyIds.of([None], [2]).by_position == RowCounts(2)
    with pytest.raises(AlignmentError, match="only one of training file and test file"):
        PartyIds.of([both[0], None], [2, 1])
    with pytest.raises(AlignmentError, match="give one of them"):
        PartyIds()


@pytest.mark.parametrize(
    ("train", "held_out", "digest", "counts"),
    [
        ([0, 9], [], bytes(32), (8,)),
        ([0, 0], [], bytes(32), (8,)),
        ([0, 1], [0], bytes(32), (8,)),
        ([0, 1], [], bytes(32), (8, 7)),
        ([0, 1], [], bytes(32), (8,)),
    ],
    ids=["beyond the rows", "twice the same", "test rows that are not there", "too many counts", "another digest"],
)
def test_an_answer_that_cannot_be_is_not_believed(train, held_out, digest, counts):
    run = run_of("tokens", PARTIES[:1])
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    found = SharedRowIndex(np.array(train), np.array(held_out, np.int64), digest, counts)
    rows = len(TEXTS["bank"])
    answers = {RowSummary: RowSummary((rows,), (), 2), SharedRowIndex: found, Consent: Consent(True)}
    conversation = alone(run, "bank", PartyIds(texts(TEXTS["bank"])), secrets)
    with pytest.raises(AlignmentError, match="server's answer does not fit"):
        converse(conversation, lambda request: answers[request.kind] if isinstance(request, Fetch) else None)


@pytest.mark.parametrize("mode", MODES)
def test_a_party_killed_at_any_point_posts_the_same_again(mode):
    check_every_kill(run_of(mode), ids_of(TEXTS))


def test_a_party_that_dies_while_storing_its_secrets_has_posted_nothing():
    run, disk = run_of("tokens"), MemoryDisk(writes_left=0)
    calls = PartyCalls(open_store(run), "bank")
    with pytest.raises(PowerCut):
        align_alone(calls, run, "bank", ids_of(TEXTS)["bank"], disk)
    assert calls.posted == []


@pytest.mark.parametrize("mode", MODES)
def test_changed_ids_conflict_with_what_was_posted(mode):
    run, disks = run_of(mode), {party: MemoryDisk() for party in PARTIES}
    store = open_store(run)
    align_all(run, ids_of(TEXTS), store, disks=disks)
    changed = PartyIds(texts([*TEXTS["shop"], "new"]))
    with pytest.raises(MessageRefused, match="a new name") as raised:
        align_alone(PartyCalls(store, "shop"), run, "shop", changed, disks["shop"])
    assert raised.value.refusal is Refusal.CONFLICT


def test_another_generation_takes_the_changed_ids():
    run, disks = run_of("tokens"), {party: MemoryDisk() for party in PARTIES}
    store = open_store(run)
    align_all(run, ids_of(TEXTS), store, disks=disks)
    found = align_all(run, ids_of(TEXTS | {"shop": ["anna", "bert", "carla"]}), open_store(run), disks=disks)
    assert found["clinic"][0].shared == 3


@pytest.mark.parametrize("mode", MODES)
def test_nothing_the_server_stores_shows_an_id_or_a_secret(mode):
    run, disks = run_of(mode), {party: MemoryDisk() for party in PARTIES}
    people = {party: [f"{each} of the long name" for each in values] for party, values in TEXTS.items()}
    server = MemoryDisk()
    _, key = align_all(run, ids_of(people), open_store(run, server), disks=disks)["bank"]
    stored = b"".join(server.files.values())
    for values in people.values():
        for each in values:
            assert each.encode() not in stored
            assert hashlib.blake2b(each.encode(), digest_size=16).digest() not in stored
    secrets = [Secrets.load_or_make(disk, run, party, None) for party, disk in disks.items()]
    hidden = [key.secret, *(each for one in secrets for each in (one.private, one.group_key, one.scalar))]
    hidden += [key.derive(purpose) for purpose in ("tokens", "ecdh", "check")]
    for each in hidden:
        assert each not in stored
        assert each.hex().encode() not in stored


@pytest.mark.parametrize("mode", MODES)
def test_what_is_posted_does_not_depend_on_the_order_of_the_file(mode):
    run = run_of(mode, PARTIES[:1])
    posts = []
    for values in (TEXTS["bank"], TEXTS["bank"][::-1]):
        secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
        fixed = Secrets(secrets.private, secrets.offer, secrets.group_key, bytes(range(32)))
        calls = PartyCalls(open_store(run), "bank")
        converse(alone(run, "bank", PartyIds(texts(values)), fixed), calls.answer)
        posts.append([raw for _, _, _, raw in calls.posted])
    assert posts[0] == posts[1]


def test_the_tokens_are_posted_for_the_server_alone():
    run = run_of("tokens", PARTIES[:2])
    store = open_store(run)
    align_all(run, ids_of({party: TEXTS[party] for party in run.parties}), store)
    assert store.rows == {"bank": 8, "shop": 7}
    with pytest.raises(MessageRefused) as raised:
        store.fetch("shop", "tokens", "bank", "")
    assert raised.value.refusal is Refusal.NOT_PERMITTED


def test_a_party_waits_for_all_who_have_not_posted_their_rows():
    run = run_of("tokens")
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    with pytest.raises(PeerTimeout, match="'bank' waits for 'shop', 'clinic'"):
        converse(
            alone(run, "bank", ids_of(TEXTS)["bank"], secrets),
            PartyCalls(open_store(run), "bank").answer,
        )


def test_every_mode_has_its_disclosures():
    assert set(DISCLOSURES) == set(MODES)
    for sentences in DISCLOSURES.values():
        assert all(sentence.endswith(".") for sentence in sentences)
        assert any("server" in sentence for sentence in sentences)
