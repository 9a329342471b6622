"""How a party finds its shared rows: agree on a group key, match ids, and name the rows of its own files."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fdml.align.conversation import Conversation
from fdml.align.group_key import agree, pair_keys
from fdml.align.matching import align
from fdml.align.pointing import align_by_keys
from fdml.errors import AlignmentError, ExchangeError
from fdml.events import Aligned
from fdml.party.alignment import AlignmentReport, SharedRows, file_rows, largest_group
from fdml.party.channel import Incoming
from fdml.party.effects import Emit, Flush, SaveAlignment, Send, Work, remark
from fdml.party.member import Member
from fdml.protocol.agreed_training import line_class
from fdml.protocol.alignment_messages import AlignmentMessage, Fetch
from fdml.settings import run_hash


class RoundTrips:
    """How long the server's answers took; the shortest is the line's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked = clock()
        self._shortest = math.inf

    def ask(self) -> None:
        """A question leaves now."""
        self._asked = self._clock()

    def answer(self) -> None:
        """Its answer has come."""
        self._shortest = min(self._shortest, self._clock() - self._asked)

    def line(self) -> int:
        """The class of the line; 0 before the first answer."""
        return line_class(0.0 if math.isinf(self._shortest) else self._shortest)


def find_shared_rows(member: Member, clock: Callable[[], float], trips: RoundTrips) -> Conversation[SharedRows]:
    """The whole alignment of one party."""
    if member.alignment is None:
        raise AlignmentError(f"party {member.name!r} has no keys to align with; run `fdml new` to make them")
    began, run = clock(), member.run
    own = member.data.row_ids()
    keys = member.alignment()
    agreement = yield from agree(run, member.name, keys.secrets, keys.credentials, keys.group_key_file)
    if run.pointing_party is None:
        found = yield from align(run, member.name, own.ids, agreement.key, keys.secrets, keys.consent, trips.line)
    else:
        found = yield from align_by_keys(run, member.name, own.ids, agreement, keys.secrets, keys.consent, trips.line)
    train, held_out = file_rows(own.train_rows, found.train), file_rows(own.test_rows, found.held_out)
    report = AlignmentReport(
        mode=run.align,
        rows=found.counts,
        shared=found.shared,
        train=len(found.train),
        held_out=len(found.held_out),
        seconds=clock() - began,
        ids=own.counts,
        warning=found.warning,
        absent=int((train < 0).sum() + (held_out < 0).sum()),
        largest_group=largest_group(np.concatenate([train, held_out])) if member.name in run.keys else 1,
    )
    return SharedRows(
        train,
        held_out,
        found.digest,
        agreement.key.bound_to(run_hash(run), found.digest),
        report,
        pair_keys(run, member.name, keys.secrets, agreement, found.digest),
        has_test_files=found.has_test_files,
        line=found.line,
    )


def align_rows(
    member: Member, clock: Callable[[], float], receive: Callable[[str], Work[Incoming]]
) -> Work[SharedRows]:
    """The alignment as effects; nothing is left to do if an earlier start has found the shared rows.

    `receive` waits for one message. The server has stored all that this party
    posted before the party stores what it found.
    """
    if member.shared is not None:
        if member.is_durable:
            yield remark(member.name, "the rows were aligned before")
        return member.shared
    yield remark(member.name, f"looking for the rows that {', '.join(member.run.parties)} share")
    trips = RoundTrips(clock)
    shared = yield from _conversation(find_shared_rows(member, clock, trips), receive, trips)
    yield Flush()
    yield SaveAlignment(shared)
    report = shared.report
    yield Emit(Aligned(member.name, report.shared, report.train, report.held_out))
    for text in report.remarks():
        yield remark(member.name, text)
    return shared


def _conversation(
    conversation: Conversation[SharedRows], receive: Callable[[str], Work[Incoming]], trips: RoundTrips
) -> Work[SharedRows]:
    """Send every request, and bring the answer to each fetch."""
    answer: AlignmentMessage | None = None
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            shared: SharedRows = end.value
            return shared
        trips.ask()
        yield Send(request)
        answer = None
        if isinstance(request, Fetch):
            answer = _of_alignment((yield from receive("to align its rows with {}")))
            trips.answer()


def _of_alignment(message: Incoming) -> AlignmentMessage:
    if not isinstance(message, AlignmentMessage):
        raise ExchangeError(f"the server sent {type(message).__name__} during the alignment; restart both sides")
    return message
