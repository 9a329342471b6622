"""A party that answers questions about predictions: a session without input or output.

It takes a question and gives a reply. What an answer costs is counted, durably, before the answer is given out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fdml.errors import MessageRefused, PrivacyBudgetSpent, StateCorrupt
from fdml.protocol.fixed_point import Codes
from fdml.protocol.prediction_messages import LONGEST_ABSENT, Answered, Asked, Question, Reply
from fdml.protocol.prediction_wire import decode_asked, encode_answered
from fdml.protocol.quoting import shown
from fdml.serving.keys import question_digest, tokens_digest
from fdml.serving.publication import Publication
from fdml.serving.reasons import MAY_NOT_ASK, NOT_ANSWERED, OTHER_VERSION, SPENT

QUESTION, ANSWER = "question", "answer"
"""What a seal is for."""


class Releases(Protocol):
    """Where a party counts what it answers."""

    def count(self, publication: Publication) -> None:
        """Count that rows of this generation leave; durable on return. Raises `PrivacyBudgetSpent`."""
        ...


@dataclass(frozen=True)
class Answerer:
    """One party's answers from its published models."""

    find: Callable[[str], Publication | None]
    """The published model of a run by the run's name; None where there is none, or it does not count yet."""
    releases: Releases
    askers: Callable[[], tuple[str, ...] | None] = lambda: None
    """Those that this party's own policy lets ask; None is all that the run lets."""

    def answer(self, question: Question) -> Reply:
        """The reply to a question; one that cannot be answered says why, and changes nothing."""
        try:
            publication = self.find(question.run)
        except StateCorrupt:
            return _absent(question, f"its published model of run {question.run!r} cannot be read")
        if publication is None:
            return _absent(question, f"it has no model of run {question.run!r} that all parties have finished")
        keys, asker = publication.facts.keys, question.party
        try:
            asked = decode_asked(keys.open(asker, QUESTION, question.number, question.sealed))
        except MessageRefused as refused:
            return _absent(question, str(refused))
        answered = self._answered(publication, question, asked)
        sealed = keys.seal(asker, ANSWER, question.number, encode_answered(answered))
        return Reply(question.number, question.run, asker, sealed)

    def _answered(self, publication: Publication, question: Question, asked: Asked) -> Answered:
        why = self._why_not(publication, question, asked)
        if why:
            return Answered(publication.facts.version, refusal=why)
        rows = publication.column.find(asked.tokens)
        known = rows >= 0
        if known.any():
            try:
                self.releases.count(publication)
            except PrivacyBudgetSpent:
                return Answered(
                    publication.facts.version,
                    refusal=f"{SPENT}; its operator sees the accounts with `fdml budget show`",
                )
        codes = np.zeros((len(rows), publication.column.width), np.int64)
        codes[known] = publication.column.codes[rows[known]]
        return Answered(
            publication.facts.version,
            np.packbits(known).tobytes(),
            self._hidden(publication, question, asked, codes, known),
            publication.facts.bits,
            reading=publication.facts.reading.encode(),
        )

    def _why_not(self, publication: Publication, question: Question, asked: Asked) -> str:
        facts, own, asker = publication.facts, publication.party, question.party
        policy = self.askers()
        if asker not in facts.askers:
            return f"{asker} {MAY_NOT_ASK}: run.toml has serving.may_ask = {', '.join(facts.askers)}"
        if policy is not None and asker not in policy:
            return f"{NOT_ANSWERED} {asker} (policy.askers)"
        if asked.version != facts.version:
            return f"{OTHER_VERSION} {facts.version[:12]} of run {facts.run.name!r}, not {asked.version[:12]}"
        if own not in asked.parties or asker in asked.parties or not set(asked.parties) <= set(facts.run.parties):
            return f"a question to {', '.join(asked.parties)} is not one to {own}"
        if asked.digests[asked.parties.index(own)] != facts.keys.digest(asker, question.number, asked.tokens):
            return "the question's digest is not that of its rows"
        everyone = len(asked.parties) == len(publication.others)
        if facts.run.serving.absent == "fail" and not everyone:
            return 'it answers only where all parties are asked (serving.absent = "fail")'
        return ""

    def _hidden(
        self,
        publication: Publication,
        question: Question,
        asked: Asked,
        codes: Codes,
        known: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> Codes:
        """Under masks where others answer too. Where a row is not known, and so has no score, it is hidden for good."""
        if len(asked.parties) < 2:
            return codes
        run = publication.run
        if run.serving.absent == "fail" and run.unmatched == "drop" and not known.all():
            lost = int((~known).sum())
            drawn = np.frombuffer(secrets.token_bytes(8 * lost * codes.shape[1]), np.int64)
            codes[~known] = drawn.reshape(lost, -1)
        order = [name for name in run.parties if name in asked.parties]
        digest = question_digest(question.party, question.number, asked.parties, asked.digests)
        alike = () if publication.party in run.keys else tuple(name for name in order if name not in run.keys)
        return publication.facts.keys.mask(order, digest, codes, alike=alike, rows=tokens_digest(asked.tokens))


def _absent(question: Question, why: str) -> Reply:
    return Reply(question.number, question.run, question.party, absent=shown(why, LONGEST_ABSENT))
