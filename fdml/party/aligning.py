"""How a party finds its shared rows: by what all keep of an alignment, or by one more generation of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fdml.align.conversation import Conversation, fetch, post
from fdml.align.group_key import GroupKey, agree, pair_keys, read_key_file
from fdml.align.kept import Change, Generation, KeptAlignment, change_of, offer_of, usable
from fdml.align.matching import Aligner, align, few_shared, no_fit
from fdml.align.party_secrets import Secrets
from fdml.align.pointing import align_by_keys
from fdml.align.split import order_of
from fdml.cluster.hashing import hashing
from fdml.errors import AlignmentError, ExchangeError
from fdml.events import Aligned
from fdml.party.alignment import AlignmentReport, RowIds, SharedRows, file_rows, largest_group
from fdml.party.channel import Incoming
from fdml.party.effects import Emit, Flush, SaveAlignment, SaveGeneration, SaveRowsOffer, Send, Work, remark
from fdml.party.member import AlignmentKeys, Member
from fdml.protocol.agreed_training import line_class
from fdml.protocol.alignment_identity import begun_hash
from fdml.protocol.alignment_messages import SERVER, AlignmentMessage, Fetch, RowsOffer, RowsPlan

T = TypeVar("T")


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


@dataclass(frozen=True, eq=False)
class AlignmentInputs:
    """What a party brings to a run's alignment, before anything is posted."""

    own: RowIds
    keys: AlignmentKeys
    given: GroupKey | None
    """The group key of a file."""
    usable: KeptAlignment
    """What it keeps and rows can be added to."""
    change: Change
    offer: RowsOffer

    @classmethod
    def of(cls, member: Member) -> AlignmentInputs:
        """Of a party that is about to align."""
        if member.alignment is None:
            raise AlignmentError(f"party {member.name!r} has no keys to align with; run `fdml new` to make them")
        run, own, keys = member.run, member.data.row_ids(), member.alignment()
        given = None if keys.group_key_file is None else read_key_file(keys.group_key_file)
        offer = replace(keys.secrets.offer, brings_key=given is not None)
        kept = usable(keys.kept, run, own.ids, (member.name, offer), given)
        change = change_of(run, kept, own.ids, _tag_key(keys.secrets, given), disk=member.disk)
        brought = replace(offer_of(run, keys.kept, kept, own.ids, change), start=keys.start)
        return cls(own, keys, given, kept, change, brought)

    def compared_with(self, member: Member, kept: KeptAlignment, *, places: bool) -> Change:
        """How the ids differ from an earlier state of the kept alignment; with the ids of all `places` if asked for."""
        tag_key = _tag_key(self.keys.secrets, self.given)
        return change_of(member.run, kept, self.own.ids, tag_key, places=places, disk=member.disk)


def _tag_key(secrets: Secrets, given: GroupKey | None) -> bytes:
    return secrets.tag_key(b"" if given is None else given.secret)


def find_generation(
    member: Member, inputs: AlignmentInputs, trips: RoundTrips
) -> Conversation[tuple[KeptAlignment, tuple[bytes, ...]]]:
    """The generation that this run uses, newest of those it adds to: one that is kept, or one that is made now.

    Beside it what all parties have drawn when they began the run.
    """
    yield from post(inputs.offer)
    plan = yield from fetch(RowsPlan, SERVER)
    if _drawn_by(member, plan) != inputs.offer.start:
        raise no_fit()
    if plan.generation in inputs.usable.ids:
        return inputs.usable.upto(plan.generation), plan.starts
    if plan.base and plan.base not in inputs.usable.ids:
        raise no_fit()
    base = inputs.usable.upto(plan.base)
    return base.and_then((yield from _align(member, inputs, trips, plan, base))), plan.starts


def _drawn_by(member: Member, plan: RowsPlan) -> bytes | None:
    """What the plan says that this party has drawn; None if it is of other parties."""
    parties = member.run.parties
    return plan.starts[parties.index(member.name)] if len(plan.starts) == len(parties) else None


def _align(
    member: Member, inputs: AlignmentInputs, trips: RoundTrips, plan: RowsPlan, base: KeptAlignment
) -> Conversation[Generation]:
    """One more generation on top of those of `base`."""
    run, keys, ids = member.run, inputs.keys, inputs.own.ids
    agreement = yield from agree(run, member.name, keys.secrets, keys.credentials, keys.group_key_file, plan.generation)
    if base.newest is not None and base.newest.key != agreement.key:
        raise no_fit()
    with hashing(member.workers) as hashed:
        side = Aligner(
            run,
            member.name,
            agreement.key,
            keys.secrets,
            keys.consent,
            trips.line,
            plan.generation,
            keys.piece_rows,
            member.disk,
            hashed,
        )
        if run.pointing_party is None:
            found = yield from align(side, ids, base, inputs.compared_with(member, base, places=True))
        else:
            found = yield from align_by_keys(side, ids, agreement)
    return Generation(
        id=plan.generation,
        base=plan.base,
        number=plan.number,
        key=agreement.key,
        offers=agreement.offers,
        found=found,
        tag=inputs.offer.tag,
        state=inputs.change.state,
    )


def shared_rows(
    member: Member,
    inputs: AlignmentInputs,
    kept: KeptAlignment,
    seconds: float,
    *,
    is_new: bool,
    starts: tuple[bytes, ...],
) -> SharedRows:
    """The rows of this run, in its order: the kept rows, split and shuffled by the run's seed.

    The run's keys are bound to what all parties drew when they began it: were it begun again under the same name,
    over the same kept alignment, its masks would else be those of before.
    """
    run, own, newest = member.run, inputs.own, kept.chain[0]
    begun = begun_hash(run, starts)
    is_newest = kept.ids == inputs.usable.ids
    change = inputs.change if is_new or is_newest else inputs.compared_with(member, kept, places=False)
    if not is_new and not change.is_none:
        raise no_fit()
    found, numbers = newest.found, kept.ids_of(change)
    holdout = None if found.has_test_files else run.evaluation.holdout
    train_order, held_out_order = order_of(kept.rows[0], holdout, run.training.seed)
    train = file_rows(own.train_rows, numbers[0][train_order])
    if found.has_test_files:
        held_out = file_rows(own.test_rows, numbers[1][~kept.rows[1].left])
    else:
        held_out = file_rows(own.train_rows, numbers[0][held_out_order])
    if not len(train) or not len(held_out):
        raise AlignmentError("no rows are left to train on or to test on: too many have gone; see what the files hold")
    shared, compared = kept.rows[0].present, run.parties if run.pointing_party is None else (run.label_party,)
    report = AlignmentReport(
        mode=run.align,
        rows=dict(found.counts),
        shared=shared,
        train=len(train),
        held_out=len(held_out),
        seconds=seconds,
        ids=own.counts,
        warning=few_shared(shared, {party: rows for party, rows in found.counts.items() if party in compared}),
        absent=int((train < 0).sum() + (held_out < 0).sum()),
        largest_group=largest_group(np.concatenate([train, held_out])) if member.name in run.keys else 1,
        generation=newest.number,
        since="" if is_new else newest.date,
        new=sum(map(len, found.places)) if is_new and newest.base else 0,
        left=sum(map(len, found.left)) if is_new else 0,
        adds=bool(newest.base),
    )
    return SharedRows(
        train,
        held_out,
        found.digest,
        newest.key.bound_to(begun, found.digest),
        report,
        pair_keys(run, member.name, inputs.keys.secrets, newest.agreement, found.digest, begun),
        has_test_files=found.has_test_files,
        line=found.line,
        begun=begun,
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
    began, trips = clock(), RoundTrips(clock)
    inputs = yield from _offered(member, AlignmentInputs.of(member))
    kept, starts = yield from _conversation(find_generation(member, inputs, trips), receive, trips)
    newest = kept.chain[0]
    is_new = newest.id not in inputs.usable.ids
    if is_new:
        yield Flush()
        yield SaveGeneration(newest)
    shared = shared_rows(member, inputs, kept, clock() - began, is_new=is_new, starts=starts)
    yield Flush()
    yield SaveAlignment(shared)
    report = shared.report
    yield Emit(Aligned(member.name, report.shared, report.train, report.held_out, report.lost(member.name)))
    for text in report.remarks():
        yield remark(member.name, text)
    return shared


def _offered(member: Member, inputs: AlignmentInputs) -> Work[AlignmentInputs]:
    """What an earlier start of this run has offered is offered again, as the server has it for good."""
    before, state = inputs.keys.offered, inputs.change.state
    if before is None:
        yield SaveRowsOffer(state, inputs.offer)
        return inputs
    if before[0] != state:
        raise AlignmentError(
            f"the ids of party {member.name!r} have changed since it began to align its rows for run "
            f"{member.run.name!r}; put the files back, or give the run a new name at every side"
        )
    return replace(inputs, offer=before[1])


def _conversation(
    conversation: Conversation[T], receive: Callable[[str], Work[Incoming]], trips: RoundTrips
) -> Work[T]:
    """Send every request, and bring the answer to each fetch."""
    answer: AlignmentMessage | None = None
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
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
