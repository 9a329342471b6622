from dataclasses import replace
from itertools import pairwise

import pytest

from fdml.data.ids import IdCounts
from fdml.errors import AlignmentError
from fdml.events import Aligned
from fdml.party.aligning import align_rows, find_shared_rows
from fdml.party.effects import Emit, Flush, SaveAlignment, Send
from fdml.protocol.alignment_messages import Fetch, Post
from tests.party.sessions import BROWSER, STORE, ArrayData, Clock, SmallRun, hold


def test_a_party_without_keys_cannot_align():
    member = replace(SmallRun().member(STORE), alignment=None)
    with pytest.raises(AlignmentError, match="party 'store' has no keys to align with; run `fdml new`"):
        next(find_shared_rows(member, Clock()))


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
