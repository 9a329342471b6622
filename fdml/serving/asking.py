"""A party that asks: it puts one question to all others, adds up their parts and its own, and reads the score.

`Asker.ask` is what batches, evaluations and endpoints have in common. It knows a line that exchanges questions for
replies within a time, and nothing else of the network.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.errors import DataError, MessageRefused, SettingsError
from fdml.models.calibration import Calibration
from fdml.models.losses import Floats
from fdml.protocol.alignment_messages import Keys
from fdml.protocol.fixed_point import Codes
from fdml.protocol.prediction_messages import NUMBER_BYTES, Answered, Asked, Question, Reply, answer_rows
from fdml.protocol.prediction_wire import decode_answered, encode_asked
from fdml.serving.answering import ANSWER, QUESTION
from fdml.serving.answers import Answers, row_patterns
from fdml.serving.column import Column
from fdml.serving.publication import Publication
from fdml.serving.reading import ScoreReading, check_reading, score_of
from fdml.serving.reasons import ANSWERED_VERSION, LATE, not_asked
from fdml.serving.unsure import FindCalibration, answers_alone
from fdml.settings.joint import scores_in


class QuestionLine(Protocol):
    """Carries questions to the parties and their replies back."""

    def exchange(self, questions: Sequence[Question], seconds: float) -> Mapping[str, Reply]:
        """Ask each party its question; the replies by party that come within so many seconds."""
        ...


@dataclass(frozen=True, eq=False)
class AskedRows:
    """Rows to ask for, by their ids as normalised texts; null where a row has none."""

    ids: Any
    """A pyarrow large_string array: the asker's own ids, which are those of all parties without keys of their own."""
    leads: Mapping[str, Any] = field(default_factory=dict)
    """By party whose rows are coarser: the keys that lead to its rows."""

    live: Column | None = None
    """The asker's own part of rows whose features come with the question: it takes the place of what is stored."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> AskedRows:
        """Some of the rows."""
        return AskedRows(self.ids.take(rows), {name: keys.take(rows) for name, keys in self.leads.items()}, self.live)


class Parts(NamedTuple):
    """What the asked parties' parts of some rows add up to."""

    total: Codes
    known: dict[str, NDArray[np.bool_]]
    """By party that has answered: which rows it holds."""
    absent: dict[str, str]
    """By party that has not: why."""


class Asker:
    """One party's way to ask for the scores of one version."""

    def __init__(
        self,
        own: Publication,
        line: QuestionLine,
        *,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds` bounds every question; None takes run.toml's `serving.deadline_seconds`."""
        if own.party not in own.facts.askers:
            raise SettingsError(
                f"party {own.party!r} may not ask for predictions of run {own.run.name!r}: run.toml has "
                f"serving.may_ask = {', '.join(own.facts.askers)}"
            )
        self.own = own
        self.rows_at_once = answer_rows(own.column.width)
        """How many rows one question may have."""
        self.calibration_without: FindCalibration = lambda _: None
        """Asked for where a part is missing and the rule is "calibrated", and where `ask` is "unsure"."""
        self.away: Callable[[], Mapping[str, str]] = dict
        """Parties that are known to be away, and why: they are not asked."""
        self._line = line
        self._seconds = own.run.serving.deadline_seconds if seconds is None else seconds
        self._clock = clock
        self._last = threading.local()  # several threads may ask at once
        self._reading = ScoreReading.from_json(own.facts.reading.encode()) if own.facts.reading else None

    @property
    def reading(self) -> ScoreReading | None:
        """How scores are read; at another than the label party known once that has answered."""
        return self._reading

    @property
    def seconds(self) -> float:
        """How long a question may take."""
        return self._seconds

    def ask(self, rows: AskedRows, seconds: float | None = None) -> Answers:
        """The answers for these rows. It takes no longer than the deadline, and says who is missing."""
        if len(rows) > self.rows_at_once:
            raise DataError(f"{len(rows)} rows in one question; the most is {self.rows_at_once}")
        alone = self._answered_alone(rows) if self.own.run.serving.ask == "unsure" else None
        if alone is None or alone.asked is None:
            return self._ask_all(rows, seconds)
        unsure = np.flatnonzero(alone.asked)
        return alone.with_asked(self._ask_all(rows.take(unsure), seconds)) if len(unsure) else alone

    def _answered_alone(self, rows: AskedRows) -> Answers | None:
        """Answers from this party's own part, where it is sure; None where all rows are to be asked for."""
        if self.own.party != self.own.run.label_party:
            return None
        part, known = self.with_own(self._nothing(rows), rows)
        return answers_alone(self.own, self._reading, self.calibration_without, part, known)

    def _ask_all(self, rows: AskedRows, seconds: float | None) -> Answers:
        own, run = self.own, self.own.run
        parts = self.parts(rows, own.others, again=run.serving.absent == "calibrated", seconds=seconds)
        total, mine = self.with_own(parts.total, rows)
        known = {**parts.known, own.party: mine}
        nobody = np.zeros(len(rows), bool)
        lacks = np.column_stack([~known.get(name, nobody) for name in run.parties])
        return Answers(run, own.facts.version, self._scores(total, lacks, parts), lacks, parts.absent, self._reading)

    def parts(self, rows: AskedRows, parties: Sequence[str], *, again: bool, seconds: float | None = None) -> Parts:
        """The sum of these parties' parts. Where some do not answer, the others are asked `again`, without them."""
        deadline = self._clock() + (self._seconds if seconds is None else seconds)
        absent = {name: why for name, why in self.away().items() if name in parties}
        if absent and not again:
            left_out = dict.fromkeys(parties, not_asked(absent))
            return Parts(self._nothing(rows), {}, {**left_out, **absent})
        asked = tuple(name for name in parties if name not in absent)
        while asked:
            left = max(deadline - self._clock(), 0.0)
            answers, lost = self._round(rows, asked, left / 2 if again and len(asked) > 1 else left)
            absent |= lost
            known = {name: _known(each, len(rows)) for name, each in answers.items()}
            if not lost:
                total = self._nothing(rows)
                for answer in answers.values():
                    total += 0 if answer.codes is None else answer.codes  # masks make sums begin again at 2**63
                return Parts(total, known, absent)
            if not again:
                return Parts(self._nothing(rows), known, absent)  # under masks that do not cancel
            asked = tuple(answers)
        return Parts(self._nothing(rows), {}, absent)

    def _nothing(self, rows: AskedRows) -> Codes:
        return np.zeros((len(rows), self.own.column.width), np.int64)

    def probe(self, seconds: float) -> dict[str, str]:
        """Ask all others for a row that nobody has: who does not answer, and why. It costs no release."""
        nobody = AskedRows(pa.array([secrets.token_hex(16)], pa.large_string()))
        return self._round(nobody, self.own.others, seconds)[1] if self.own.others else {}

    def with_own(self, total: Codes, rows: AskedRows) -> tuple[Codes, NDArray[np.bool_]]:
        """The total with this party's own part, and which rows it holds."""
        column = self.own.column
        places = column.find(self._tokens_of_ids(rows))
        known = places >= 0
        whole = total.copy()
        whole[known] += column.codes[places[known]]
        if rows.live is not None:
            given = rows.live.find(self._tokens_of_ids(rows))
            fresh = given >= 0
            whole[fresh] = total[fresh] + rows.live.codes[given[fresh]]
            known |= fresh
        return whole, known

    # One question

    def _round(
        self, rows: AskedRows, parties: Sequence[str], seconds: float
    ) -> tuple[dict[str, Answered], dict[str, str]]:
        """Ask these parties once: the answers, and why the others have given none."""
        facts, number = self.own.facts, secrets.token_bytes(NUMBER_BYTES)
        tokens = self._tokens(rows, parties)
        digests = tuple(facts.keys.digest(name, number, tokens[name]) for name in parties)
        questions = [
            Question(
                number,
                facts.run.name,
                name,
                facts.keys.seal(
                    name,
                    QUESTION,
                    number,
                    encode_asked(Asked(facts.version, tokens[name], tuple(parties), digests)),
                ),
            )
            for name in parties
        ]
        replies = self._line.exchange(questions, seconds)
        answers, lost = dict[str, Answered](), dict[str, str]()
        for name in parties:
            found = self._opened(name, number, replies.get(name), len(rows), seconds)
            if isinstance(found, str):
                lost[name] = found
            else:
                answers[name] = found
        return answers, lost

    def _tokens(self, rows: AskedRows, parties: Sequence[str]) -> dict[str, Keys]:
        keys, shared = self.own.facts.keys, self._tokens_of_ids(rows)
        return {name: keys.tokens_of(rows.leads[name]) if name in rows.leads else shared for name in parties}

    def _tokens_of_ids(self, rows: AskedRows) -> Keys:
        """Of the last rows they are kept: a question needs them twice, and they take half of its time."""
        known: tuple[AskedRows, Keys] | None = getattr(self._last, "tokens", None)
        if known is None or known[0] is not rows:
            known = self._last.tokens = (rows, self.own.facts.keys.tokens_of(rows.ids))
        return known[1]

    def _opened(self, party: str, number: bytes, reply: Reply | None, rows: int, seconds: float) -> Answered | str:
        """A party's answer, or why there is none."""
        if reply is None:
            return f"{LATE} {seconds:.3g} s"
        if reply.absent:
            return reply.absent
        facts = self.own.facts
        try:
            raw = facts.keys.open(party, ANSWER, number, reply.sealed)
            answered = decode_answered(raw, rows)
            if answered.refusal:
                return answered.refusal
            if answered.version != facts.version:
                return f"{ANSWERED_VERSION} {answered.version[:12]}, not {facts.version[:12]}"
            if (
                answered.bits != facts.bits
                or answered.codes is None
                or answered.codes.shape[1] != self.own.column.width
            ):
                return "its answer has another form than this party's predictions"
            if self._reading is None and answered.reading and party == facts.run.label_party:
                reading = ScoreReading.from_json(answered.reading)
                check_reading(facts.run, self.own.column.width, facts.bits, reading)
                self._reading = reading
        except MessageRefused as refused:
            return str(refused)
        return answered

    # Scores

    def _scores(self, total: Codes, lacks: NDArray[np.bool_], parts: Parts) -> Floats:
        """The calibrated score of each row; NaN where a missing part leaves none."""
        reading, run = self._reading, self.own.run
        if reading is None:
            return np.full((len(total), scores_in(run.training, self.own.column.width)), np.nan)
        score = score_of(run, total, self.own.facts.bits, reading).astype(np.float64)
        zero = run.unmatched == "keep"  # a row that another party does not hold was trained with a part of zero
        matters = [name in parts.absent or name == self.own.party or not zero for name in run.parties]
        patterns, which = row_patterns(lacks & np.array(matters))
        result = np.full(score.shape, np.nan)
        for number, pattern in enumerate(patterns):
            missing = frozenset(name for name, lacking in zip(run.parties, pattern, strict=True) if lacking)
            calibration = self._calibration(reading, missing)
            if calibration is not None:
                chosen = which == number
                result[chosen] = calibration.apply(score[chosen])
        return result

    def _calibration(self, reading: ScoreReading, missing: frozenset[str]) -> Calibration | None:
        if not missing:
            return reading.calibration
        if self.own.run.serving.absent == "fail" or len(missing) == len(self.own.run.parties):
            return None
        return self.calibration_without(missing)


def _known(answer: Answered, rows: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(answer.known, np.uint8), count=rows).astype(bool)
