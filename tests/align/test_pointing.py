"""Rows of the label party that point to rows of the others: by keys of another grain, or where some may lack a row."""

import hashlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.align.consent import objection, summary_text
from fdml.align.group_key import GroupKey
from fdml.align.party_ids import LeadingKeys, PartyIds
from fdml.align.pointing import _check_pointers, _opened, _sealed
from fdml.align.split import shuffled_rows, split_rows
from fdml.errors import AlignmentError, MessageRefused
from fdml.protocol.alignment_messages import Piece, RowCounts, RowPointers, RowSummary
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.settings import RunSettings
from tests.align.bulletins import PartyCalls, align_all, align_alone, check_every_kill, open_store
from tests.storage.memory_disk import MemoryDisk

MODES = ["tokens", "ecdh"]
PARTIES = ("flights", "weather", "planes")
IDS = ["f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"]
HOURS = ["JFK|5", "JFK|5", "LGA|6", "JFK|7", "LGA|6", "EWR|5", "JFK|5", None]
TAILS = ["N1", "N2", "N1", "N3", None, "N2", "N9", "N1"]
WEATHER = ["LGA|6", "JFK|7", "JFK|5", "LGA|9"]
PLANES = ["N3", "N1", "N7", "N2"]
COMPLETE = [0, 1, 2, 3]
"""Rows of the flights with a row of the weather and one of the planes."""


def run_of(mode="tokens", unmatched="drop", keys=("weather", "planes"), parties=PARTIES, holdout=0.3):
    return RunSettings(
        parties=parties,
        label_party="flights",
        align=mode,
        unmatched=unmatched,
        keys={name: ["hour"] for name in keys},
        evaluation={"holdout": holdout},
    )


def texts(values):
    return pa.array(values, pa.large_string())


def flights(ids=IDS, hours=HOURS, tails=TAILS, tests=None):
    """The label party's ids; `tests` are ids, hours and tails of its test file."""
    of_test = [None, None, None] if tests is None else [texts(each) for each in tests]
    leads = {
        "weather": LeadingKeys(texts(hours), of_test[1], coarse=True),
        "planes": LeadingKeys(texts(tails), of_test[2], coarse=True),
    }
    if ids is None:
        return PartyIds(by_position=RowCounts(len(hours), None if tests is None else len(tests[1])), leads=leads)
    return PartyIds(texts(ids), of_test[0], leads=leads)


def ids_of(**flight):
    return {"flights": flights(**flight), "weather": PartyIds(texts(WEATHER)), "planes": PartyIds(texts(PLANES))}


def found_by(run, ids, **options):
    return {party: each for party, (each, _) in align_all(run, ids, **options).items()}


def key_files_in(folder):
    """The same group key at every party."""
    key_files = {party: folder / party for party in PARTIES}
    for file in key_files.values():
        file.write_text("5a" * 32)
        file.chmod(0o600)
    return key_files


def check_pointers(found, *, hours=HOURS, tails=TAILS):
    """Every row of the run points to the row that has its key, and to none if there is none."""
    rows = np.concatenate([found["flights"].train, found["flights"].held_out])
    for party, keys, own in (("weather", hours, WEATHER), ("planes", tails, PLANES)):
        pointers = np.concatenate([found[party].train, found[party].held_out])
        assert pointers.tolist() == [own.index(keys[row]) if keys[row] in own else -1 for row in rows]
    return rows.tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ids", [IDS, None], ids=["by id", "by position"])
def test_rows_that_all_keys_lead_from_are_kept_and_each_points_to_the_row_with_its_key(mode, ids):
    found = found_by(run_of(mode), ids_of(ids=ids))
    assert sorted(check_pointers(found)) == COMPLETE
    assert len({each.digest for each in found.values()}) == 1
    assert found["planes"].counts == {"flights": 8, "weather": 4, "planes": 4}
    assert {each.shared for each in found.values()} == {4}


@pytest.mark.parametrize("mode", MODES)
def test_unmatched_rows_may_be_kept_with_no_row_to_point_to(mode):
    found = found_by(run_of(mode, "keep"), ids_of())
    assert sorted(check_pointers(found)) == list(range(8))
    assert {each.shared for each in found.values()} == {8}


def test_the_order_is_that_of_the_same_rows_joined_beforehand(tmp_path):
    key_files = key_files_in(tmp_path)
    found = found_by(run_of(), ids_of(), key_files=key_files)
    joined = {party: PartyIds(texts([IDS[row] for row in COMPLETE])) for party in PARTIES}
    plain = found_by(run_of(keys=()), joined, key_files=key_files)
    for party in PARTIES:
        assert found["flights"].train.tolist() == plain[party].train.tolist()
        assert found["flights"].held_out.tolist() == plain[party].held_out.tolist()


def test_without_ids_the_order_is_drawn_over_the_rows_as_they_are():
    run = run_of()
    found = found_by(run, ids_of(ids=None))["flights"]
    keep, out = split_rows(4, 0.3, run.training.seed)
    assert found.train.tolist() == np.array(COMPLETE)[keep[shuffled_rows(len(keep), run.training.seed)]].tolist()
    assert found.held_out.tolist() == np.array(COMPLETE)[out].tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unmatched", ["drop", "keep"])
def test_test_rows_point_to_the_same_table(mode, unmatched):
    tests = (["t1", "t2", "t3"], ["JFK|7", "LGA|9", "none"], ["N7", "N7", "N1"])
    found = found_by(run_of(mode, unmatched), ids_of(tests=tests))
    assert all(each.has_test_files for each in found.values())
    rows = found["flights"].held_out
    assert sorted(rows.tolist()) == ([0, 1] if unmatched == "drop" else [0, 1, 2])
    for party, keys, own in (("weather", tests[1], WEATHER), ("planes", tests[2], PLANES)):
        expected = [own.index(keys[row]) if keys[row] in own else -1 for row in rows]
        assert found[party].held_out.tolist() == expected
    assert sorted(found["flights"].train.tolist()) == (COMPLETE if unmatched == "drop" else list(range(8)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unmatched", ["drop", "keep"])
def test_a_party_that_is_not_in_keys_is_found_by_the_rows_own_ids(mode, unmatched):
    run = run_of(mode, unmatched, keys=("weather",), parties=("flights", "weather", "staff"))
    staff = ["f5", "f1", "f3", "f99"]
    leads = {"weather": LeadingKeys(texts(HOURS), coarse=True), "staff": LeadingKeys(texts(IDS))}
    ids = {
        "flights": PartyIds(texts(IDS), leads=leads),
        "weather": PartyIds(texts(WEATHER)),
        "staff": PartyIds(texts(staff)),
    }
    found = found_by(run, ids)
    rows = np.concatenate([found["flights"].train, found["flights"].held_out])
    assert sorted(rows.tolist()) == ([0, 2, 4] if unmatched == "drop" else list(range(8)))
    pointers = np.concatenate([found["staff"].train, found["staff"].held_out])
    assert pointers.tolist() == [staff.index(IDS[row]) if IDS[row] in staff else -1 for row in rows]


def test_test_files_of_a_party_that_is_not_in_keys_are_matched_on_their_own():
    run = run_of("tokens", "keep", keys=(), parties=("flights", "staff"))
    leads = {"staff": LeadingKeys(texts(IDS), texts(["f1", "t2"]))}
    ids = {
        "flights": PartyIds(texts(IDS), texts(["f1", "t2"]), leads=leads),
        "staff": PartyIds(texts(["f2", "f1"]), texts(["t9", "t2"])),
    }
    found = found_by(run, ids)
    rows = found["flights"].held_out
    assert found["staff"].held_out.tolist() == [1 if row == 1 else -1 for row in rows], "f1 is no test row of the staff"
    ids["staff"] = PartyIds(texts(["f2", "f1"]))
    with pytest.raises(MessageRefused, match="party 'staff' has no test rows but 'flights' has"):
        found_by(run, ids)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_keys_give_the_plain_join(data):
    letters = st.sampled_from("abcdef")
    hours = data.draw(st.lists(st.none() | letters, min_size=3, max_size=20))
    tails = data.draw(st.lists(st.none() | letters, min_size=len(hours), max_size=len(hours)))
    weather = data.draw(st.lists(letters, unique=True, min_size=1))
    planes = data.draw(st.lists(letters, unique=True, min_size=1))
    ids = {
        "flights": flights(None, hours, tails),
        "weather": PartyIds(texts(weather)),
        "planes": PartyIds(texts(planes)),
    }
    if not (set(hours) & set(weather) and set(tails) & set(planes)):
        return
    found = found_by(run_of(unmatched="keep"), ids)
    rows = np.concatenate([found["flights"].train, found["flights"].held_out])
    assert sorted(rows.tolist()) == list(range(len(hours)))
    for party, keys, own in (("weather", hours, weather), ("planes", tails, planes)):
        pointers = np.concatenate([found[party].train, found[party].held_out])
        assert pointers.tolist() == [own.index(keys[row]) if keys[row] in own else -1 for row in rows]


# What the server learns


def posted_by(run, ids):
    server = MemoryDisk()
    _, key = align_all(run, ids, open_store(run, server))["flights"]
    return server, key


def test_the_server_learns_neither_how_many_rows_have_a_key_nor_which():
    stored = []
    for hours in (["a", "a", "a", "b", "b", "c"], ["a", "b", "c", "c", "c", "c"]):
        ids = ids_of(ids=None, hours=hours, tails=["N1"] * 6) | {"weather": PartyIds(texts(["a", "b", "c"]))}
        server, _ = posted_by(run_of(), ids)
        stored.append({name: len(raw) for name, raw in server.files.items()})
    assert stored[0] == stored[1], "the group sizes differ, and nothing that the server stores has another size"
    assert stored[0]["bulletin-tokens-0-1"] < 16 * 6 + 100, "one token for each different key, not for each row"


def test_the_same_text_as_two_keys_has_tokens_that_cannot_be_linked():
    ids = ids_of(ids=None, hours=["N1", "N2"] * 3, tails=["N1", "N2"] * 3)
    ids |= {"weather": PartyIds(texts(["N1", "N2"])), "planes": PartyIds(texts(["N1", "N2"]))}
    server, key = posted_by(run_of(), ids)
    sets = {name: _tokens(raw) for name, raw in server.files.items() if name.startswith("bulletin-tokens")}
    assert sets["bulletin-tokens-0-1"] == sets["bulletin-tokens-1"], "flights and weather are matched by them"
    assert sets["bulletin-tokens-0-2"] == sets["bulletin-tokens-2"]
    assert not sets["bulletin-tokens-1"] & sets["bulletin-tokens-2"]
    plain = hashlib.blake2b(b"N1", digest_size=16, key=key.derive("tokens of run")).digest()
    assert plain not in sets["bulletin-tokens-1"] | sets["bulletin-tokens-2"], "nor with tokens of the rows' own ids"


def _tokens(stored):
    message = decode_alignment(stored[8 + 32 + 32 :])
    return {token.tobytes() for token in message.train}


@pytest.mark.parametrize("mode", MODES)
def test_nothing_the_server_stores_shows_a_key_or_a_pointer(mode):
    run = run_of(mode, "keep")
    hours = [f"{hour} of a long name" if hour else None for hour in HOURS]
    ids = ids_of(hours=hours) | {"weather": PartyIds(texts([f"{hour} of a long name" for hour in WEATHER]))}
    server = MemoryDisk()
    found = align_all(run, ids, open_store(run, server))
    everything = b"".join(server.files.values())
    assert b"of a long name" not in everything
    pointers = found["weather"][0].train
    assert np.asarray(pointers, "<i4").tobytes() not in everything
    assert np.asarray(pointers, "<i8").tobytes() not in everything


# Crashes and lies


@pytest.mark.parametrize("mode", MODES)
def test_a_party_killed_at_any_point_posts_the_same_again(mode):
    check_every_kill(run_of(mode, "keep"), ids_of())


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"planes": PartyIds(texts(["X1", "X2"]))}, r"no row of 'flights' leads to a row of party 'planes'; likely"),
        ({"planes": PartyIds(by_position=RowCounts(3))}, r"party 'planes' has no ids.*set data\.id to its key"),
        (
            {"planes": PartyIds(texts(PLANES), texts(["t"]))},
            r"one table serves training and test rows; leave data\.test",
        ),
        ({"flights": flights(tails=[None] * 8)}, r"no row has a key; check the columns that \[keys\]"),
        ({"flights": flights(tails=["N1" if not hour else None for hour in HOURS])}, r"no row of 'flights' leads to"),
    ],
    ids=["no shared key", "no ids", "a test file", "no keys", "no complete row"],
)
def test_what_cannot_be_joined_is_named(changed, text):
    with pytest.raises(AlignmentError, match=text):
        found_by(run_of(), ids_of() | changed)


def test_a_run_without_a_complete_row_says_how_to_keep_the_others():
    tails = ["N1" if hour is None else None for hour in HOURS]
    with pytest.raises(AlignmentError, match='set unmatched = "keep"'):
        found_by(run_of(), ids_of(tails=tails))
    assert found_by(run_of(unmatched="keep"), ids_of(tails=tails))["planes"].shared == 8


SEAL = GroupKey(bytes(range(32)))


def sealed(train, held_out, digest=b"d" * 32, *, told=None, has_tests=0):
    plain = digest + bytes([has_tests]) + np.array([*train, *held_out], "<i4").tobytes()
    return RowPointers(len(train) if told is None else told, len(held_out), digest, SEAL.seal("row pointers", plain))


def test_pointers_come_as_they_were_sealed():
    train, held_out, has_tests = _opened([sealed([3, -1, 3], [0], has_tests=1)], SEAL, "flights")
    assert (train.tolist(), held_out.tolist(), has_tests) == ([3, -1, 3], [0], True)
    assert decode_alignment(encode_alignment(sealed([3], [0]))) == sealed([3], [0])


@pytest.mark.parametrize("wrong", [sealed([1], [0], told=2), sealed([1], [0])], ids=["another number", "another hash"])
def test_pointers_that_the_server_speaks_of_otherwise_are_refused(wrong):
    message = wrong if wrong.train == 2 else RowPointers(1, 1, b"e" * 32, wrong.sealed)
    with pytest.raises(AlignmentError, match="not those that the server says"):
        _opened([message], SEAL, "flights")


@pytest.mark.parametrize(
    ("pointers", "run", "text"),
    [
        ([0, 3], run_of(), "outside the 3 rows"),
        ([0, -1], run_of(), "outside the 3 rows"),
        ([0, -2], run_of(unmatched="keep"), "outside the 3 rows"),
        ([1, 1], run_of(unmatched="keep", keys=("planes",)), "twice to the same row"),
    ],
    ids=["too far", "to none", "below none", "twice by id"],
)
def test_a_label_party_that_points_elsewhere_is_named(pointers, run, text):
    with pytest.raises(AlignmentError, match=f"label party 'flights' points {text}"):
        _check_pointers(np.array(pointers), 3, run, "weather")


def test_pointers_to_none_and_twice_to_the_same_are_taken_where_the_run_says_so():
    _check_pointers(np.array([1, 1, 0]), 2, run_of(), "weather")
    _check_pointers(np.array([1, -1, -1, 0]), 2, run_of(unmatched="keep", keys=()), "weather")


# Consent


def test_the_counts_to_consent_to_are_of_keys():
    summary = RowSummary((8, 4, 5), (), 3, 0, (8, 3, 4))
    text = summary_text(summary, run_of())
    assert text == "rows: flights 8; weather 4, 3 of them pointed to; planes 5, 4 of them pointed to"
    limits = {"max_rows": None, "min_shared": 4}
    assert objection(summary, run_of(), "planes", **limits) == ""
    assert objection(summary, run_of(), "weather", **limits).startswith("3 rows are shared")
    assert objection(summary, run_of(), "flights", **limits).startswith("3 rows are shared")
    assert "'flights' brings 8 rows" in objection(summary, run_of(), "planes", max_rows=7, min_shared=None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unmatched", ["drop", "keep"])
def test_pointers_in_pieces_lead_to_the_same_rows(mode, unmatched, tmp_path):
    tests = (["t1", "t2", "t3"], ["JFK|7", "LGA|6", "none"], ["N7", "N1", "N1"])
    run = run_of(mode, unmatched)
    keys = key_files_in(tmp_path)
    whole = found_by(run, ids_of(tests=tests), key_files=keys)
    pieces = found_by(run, ids_of(tests=tests), key_files=keys, piece_rows=2)
    for party in PARTIES:
        for rows in ("train", "held_out"):
            assert getattr(whole[party], rows).tolist() == getattr(pieces[party], rows).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_pointers_that_are_stored_are_not_posted_again(mode):
    run, ids, disks = run_of(mode, "keep"), ids_of(), {party: MemoryDisk() for party in PARTIES}
    store = open_store(run, piece_rows=3)
    expected = align_all(run, ids, store, disks=disks, piece_rows=3)
    again = PartyCalls(store, "flights")
    found, _ = align_alone(again, run, "flights", ids["flights"], disks["flights"], 3)
    assert found.digest == expected["flights"][0].digest
    assert not [kind for kind, *_ in again.posted if kind == "row_pointers"]
    held = [decode_alignment(store.fetch("planes", "row_pointers", "flights", piece=number)) for number in range(3)]
    assert [(each.piece.number, each.train + each.held_out) for each in held] == [(0, 8), (1, 8), (2, 8)]


def test_no_piece_of_pointers_can_take_the_place_of_another():
    head, whole = b"d" * 32 + b"\0", Piece(0, 2, RowCounts(3, 1))
    pieces = list(_sealed(SEAL, head, np.arange(4, dtype="<i4").tobytes(), whole))
    assert _opened(pieces, SEAL, "flights")[0].tolist() == [0, 1, 2]
    changed = [replace(pieces[0], sealed=pieces[1].sealed), replace(pieces[1], sealed=pieces[0].sealed)]
    with pytest.raises(AlignmentError, match="cannot be opened"):
        _opened(changed, SEAL, "flights")
    with pytest.raises(AlignmentError, match="not those that the server says"):
        _opened(pieces[:1], SEAL, "flights")
