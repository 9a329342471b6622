"""A party that answers questions about predictions: a session without input or output.

It takes a question and gives a reply. What an answer costs is counted, durably, before the answer is given out.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fdml.errors import MessageRefused, PrivacyBudgetSpent, StateCorrupt
from fdml.protocol.fixed_point import Codes
from fdml.protocol.prediction_messages import (
    LONGEST_ABSENT,
    Answered,
    Asked,
    Question,
    Reply,
    answer_rows,
)
from fdml.protocol.prediction_wire import decode_asked, encode_answered
from fdml.protocol.quoting import shown
from fdml.serving.answer_rules import AnsweredRows, AnswerRules
from fdml.serving.keys import question_digest, tokens_digest
from fdml.serving.publication import Publication
from fdml.serving.reasons import MAY_NOT_ASK, OTHER_VERSION, SPENT

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
    rules: Callable[[], AnswerRules] = AnswerRules
    """What this party's own policy says, as it is now."""
    answered: AnsweredRows = field(default_factory=AnsweredRows)
    """What askers were told in the last hour."""
    today: Callable[[], datetime.date] = datetime.date.today

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
        rules, asker = self.rules(), question.party
        why = self._why_not(publication, question, asked, rules)
        if why:
            return Answered(publication.facts.version, refusal=why)
        rows = publication.column.find(asked.tokens)
        known = rows >= 0
        why = self._counted(publication, asker, int(known.sum()), rules) if known.any() else ""
        if why:
            return Answered(publication.facts.version, refusal=why)
        codes = np.zeros((len(rows), publication.column.width), np.int64)
        codes[known] = publication.column.codes[rows[known]]
        return Answered(
            publication.facts.version,
            np.packbits(known).tobytes(),
            self._hidden(publication, question, asked, codes, known),
            publication.facts.bits,
            reading=publication.facts.reading.encode(),
        )

    def _counted(self, publication: Publication, asker: str, rows: int, rules: AnswerRules) -> str:
        """Count rows that are about to leave, or say why they may not."""
        why = self.answered.take(asker, rows, rules.rows_per_hour)
        if why:
            return why
        try:
            self.releases.count(publication)
        except PrivacyBudgetSpent:
            return f"{SPENT}; its operator sees the accounts with `fdml budget show`"
        return ""

    def _why_not(self, publication: Publication, question: Question, asked: Asked, rules: AnswerRules) -> str:
        facts, asker = publication.facts, question.party
        if asker not in facts.askers:
            return f"{asker} {MAY_NOT_ASK}: run.toml has serving.may_ask = {', '.join(facts.askers)}"
        return rules.why_not(asker, self.today()) or self._why_no_question(publication, question, asked)

    def _why_no_question(self, publication: Publication, question: Question, asked: Asked) -> str:
        facts, own, asker = publication.facts, publication.party, question.party
        if asked.version != facts.version:
            return f"{OTHER_VERSION} {facts.version[:12]} of run {facts.run.name!r}, not {asked.version[:12]}"
        if own not in asked.parties or asker in asked.parties or not set(asked.parties) <= set(facts.run.parties):
            return f"a question to {', '.join(asked.parties)} is not one to {own}"
        most = answer_rows(publication.column.width)
        if len(asked.tokens) > most:  # its answer would be longer than a message may be
            return f"a question for {len(asked.tokens)} rows; of this model {most} is the most"
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
