from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fdml.align.sealed_labels import open_labels
from fdml.data.ids import IdCounts
from fdml.errors import AlignmentError
from fdml.events import Aligned
from fdml.party.aligning import AlignmentInputs, RoundTrips, align_rows
from fdml.party.effects import Emit, Flush, SaveAlignment, Send
from fdml.protocol.alignment_messages import Fetch, Post
from fdml.protocol.messages import Labels
from tests.party.sessions import BROWSER, STORE, ArrayData, Clock, SmallRun, hold, with_training


def test_a_party_without_keys_cannot_align():
    member = replace(SmallRun().member(STORE), alignment=None)
    with pytest.raises(AlignmentError, match="party 'store' has no keys to align with; run `fdml new`"):
        AlignmentInputs.of(member)


def test_all_parties_find_the_same_rows_under_the_same_key():
    rows = [side.store.shared_rows() for side in hold(SmallRun()).values()]
    assert rows[0].digest == rows[1].digest
    assert rows[0].key.secret == rows[1].key.secret
    assert rows[0].train.tolist() == rows[1].train.tolist(), "they are matched by position"
    assert sorted([*rows[0].train, *rows[0].held_out]) == list(range(10))


def test_the_report_says_how_many_rows_there_are_and_how_long_it_took():
    side = hold(SmallRun(), clock=Clock(each=1.0))[STORE]
    report = side.store.shared_rows().report
    assert (report.mode, dict(report.rows)) == ("tokens", {STORE: 10, BROWSER: 10})
    assert (report.shared, report.train, report.held_out, report.ids, report.warning) == (10, 8, 2, (), "")
    assert report.seconds > 0


def test_every_fetch_is_followed_by_its_answer_and_a_post_by_none():
    effects = hold(SmallRun())[BROWSER].effects
    until = next(number for number, effect in enumerate(effects) if isinstance(effect, Flush))
    for effect, following in pairwise(effects[:until]):
        if isinstance(effect, Send):
            assert (type(following).__name__ == "Receive") == isinstance(effect.message, Fetch)
    assert any(isinstance(effect, Send) and isinstance(effect.message, Post) for effect in effects[:until])


def test_rows_that_were_left_out_are_remarked_after_the_alignment_is_stored():
    counts = IdCounts(rows=12, missing=2, repeated=0, dropped=2, missing_at=(3, 4), repeated_at=())

    class SomeMissing(ArrayData):
        def row_ids(self):
            return replace(super().row_ids(), counts=(counts,))

    class Run(SmallRun):
        def member(self, party, disk=None, shared=None):
            made = super().member(party, disk, shared)
            return replace(made, data=SomeMissing(made.data.features, made.data.values))

    side = hold(Run())[STORE]
    stored = next(number for number, effect in enumerate(side.effects) if isinstance(effect, SaveAlignment))
    after = [effect.event for effect in side.effects[stored + 1 : stored + 4] if isinstance(effect, Emit)]
    assert isinstance(after[0], Aligned)
    assert [event.text for event in after[1:]] == [
        "data.path: 2 rows without an id (data rows 3, 4)",
        "data.path: 2 rows were left out for that",
    ]


def test_an_alignment_of_an_earlier_start_sends_nothing():
    shared = hold(SmallRun())[STORE].store.shared_rows()
    member = SmallRun().member(STORE, shared=shared)
    work = align_rows(member, Clock(), receive=None)
    with pytest.raises(StopIteration) as end:
        next(work)
    assert end.value.value is shared


class OneKeyFile(SmallRun):
    """All runs of the same parties take the group key from one file."""

    key_file = None

    def member(self, party, disk=None, shared=None):
        made = super().member(party, disk, shared)
        keys = replace(made.alignment(), group_key_file=self.key_file)
        return replace(made, alignment=lambda: keys)


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """Two runs over the same rows in the same order, with one key file; their settings differ."""
    (tmp_path / "group.key").write_text("ab" * 32)
    (tmp_path / "group.key").chmod(0o600)
    monkeypatch.setattr(OneKeyFile, "key_file", tmp_path / "group.key")
    return [hold(run) for run in (OneKeyFile(), with_training(OneKeyFile(), echo=1.0))]


def test_with_one_key_file_for_two_runs_the_labels_of_one_cannot_be_served_in_the_other(two_runs):
    """Finding 19: equal labels in equal order gave equal bytes, and a lying server could swap them."""
    one, other = (next(each for each in run[STORE].channel.sent if isinstance(each, Labels)) for run in two_runs)
    shared = [run[BROWSER].store.shared_rows() for run in two_runs]
    assert shared[0].train.tolist() == shared[1].train.tolist(), "the same rows in the same order"
    assert len(one.sealed) == len(other.sealed)
    assert one.sealed != other.sealed
    assert open_labels(shared[0].key, one, 8, 2, "binary", STORE).classes == 2
    with pytest.raises(AlignmentError, match="the sealed labels of 38 bytes cannot be opened"):
        open_labels(shared[1].key, one, 8, 2, "binary", STORE)


def test_with_one_key_file_for_two_runs_their_masks_differ(two_runs):
    """Finding 19: under one mask id the same mask would lie on both runs' predictions."""
    codes = np.zeros((4, 1), np.int64)
    masks = [OneKeyFile().member(STORE).masks(run[STORE].store.shared_rows().key) for run in two_runs]
    assert masks[0].mask_id == masks[1].mask_id
    assert masks[0].add("push", 0, codes).tolist() != masks[1].add("push", 0, codes).tolist()


def test_the_line_is_as_fast_as_the_fastest_answer():
    times = iter([0.0, 10.0, 14.0, 20.0, 20.05, 30.0, 33.0])
    trips = RoundTrips(lambda: next(times))
    assert trips.line() == 0, "nothing is known yet"
    for _ in range(3):
        trips.ask()
        trips.answer()
    assert trips.line() == 2, "50 ms"


def test_all_parties_have_the_class_of_the_slowest_line():
    assert {side.store.shared_rows().line for side in hold(SmallRun()).values()} == {0}
