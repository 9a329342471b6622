"""How a party finds its shared rows: agree on a group key, match ids, and name the rows of its own files."""

from __future__ import annotations

from collections.abc import Callable

from fdml.align.conversation import Conversation
from fdml.align.group_key import agree
from fdml.align.matching import align
from fdml.errors import AlignmentError
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.member import Member


def find_shared_rows(member: Member, clock: Callable[[], float]) -> Conversation[SharedRows]:
    """The whole alignment of one party."""
    if member.alignment is None:
        raise AlignmentError(f"party {member.name!r} has no keys to align with; run `fdml new` to make them")
    began, run = clock(), member.run
    own = member.data.row_ids()
    keys = member.alignment()
    key = yield from agree(run, member.name, keys.secrets, keys.credentials, keys.group_key_file)
    found = yield from align(run, member.name, own.ids, key, keys.secrets)
    report = AlignmentReport(
        mode=run.align,
        rows=found.counts,
        shared=found.shared,
        train=len(found.train),
        held_out=len(found.held_out),
        seconds=clock() - began,
        ids=own.counts,
        warning=found.warning,
    )
    return SharedRows(own.train_rows[found.train], own.test_rows[found.held_out], found.digest, key, report)
