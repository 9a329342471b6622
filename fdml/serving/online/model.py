"""One model that can be asked over HTTP: its asker, its queue, its breakers, and how its tensors look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.errors import DataError, FdmlError, RequestRefused
from fdml.protocol.quoting import quoted
from fdml.serving.answers import Answers
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.online.batching import MOST_JOINED, Batcher
from fdml.serving.online.breakers import Breakers
from fdml.serving.online.inference import InferenceRequest
from fdml.serving.online.refusals import refused_by
from fdml.serving.online.spans import Spans, no_spans
from fdml.serving.online.tensors import BOOL, BYTES, FP64, Output
from fdml.serving.publication import Publication

_PROBE_SECONDS = 4.0
"""How long a probe waits, so that a slow party has one at most to answer."""
_PAUSE_AWAY, _PAUSE_IDLE = 0.5, 5.0
"""Between two probes while somebody is away, and while all is well: then readiness is true without requests too."""


class IdColumns(Protocol):
    """How ids of a request become rows to ask for."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every request has."""
        ...

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that lead to coarser rows of other parties; those that are not given are looked up."""
        ...

    def rows(self, columns: Mapping[str, Any]) -> AskedRows:
        """The rows of these columns; raises `DataError` about those that cannot be read."""
        ...


class ServedModel:
    """A published model that callers ask over HTTP."""

    def __init__(
        self,
        asker: Asker,
        columns: IdColumns,
        threads: Executor,
        report: Callable[[BaseException], None],
        *,
        pause: float = 0.002,
    ) -> None:
        """`threads` ask the questions; `pause` is how long requests are collected under load."""
        facts = asker.own.facts
        self.run, self.version = facts.run, facts.version
        self.others = asker.own.others
        self._asker = asker
        self._columns = columns
        self._threads = threads
        self._breakers = Breakers(self.others)
        self._asked_at = float("-inf")
        """When a question was last answered by all."""
        self._is_probed = False
        asker.away = self._breakers.away
        self._batcher = Batcher(
            self._ask,
            self.others or (asker.own.party,),
            threads,
            report=report,
            pause=pause,
            most_joined=min(MOST_JOINED, asker.rows_at_once),
        )

    @property
    def rows_at_once(self) -> int:
        """Rows of one request, at most."""
        return self._asker.rows_at_once

    @property
    def metadata(self) -> dict[str, Any]:
        """The model's inputs and outputs, as the protocol lists them."""
        names = ["score", "probability", "prediction", "answered", "missing", "why"]
        if self.run.serving.ask == "unsure":
            names.insert(3, "asked")
        reading = self._asker.reading
        classes = None if reading is None else reading.labels.classes
        width = [] if classes is None or len(classes) < 3 else [len(classes)]
        numbers = {"score", "probability"} if self.run.task != "regression" else {"score", "prediction"}
        outputs = [
            {
                "name": name,
                "datatype": FP64 if name in numbers else BOOL if name == "asked" else BYTES,
                "shape": [-1, *(width if name in ("score", "probability") else [])],
            }
            for name in names
            if name != "probability" or self.run.task != "regression"
        ]
        inputs = [{"name": name, "datatype": BYTES, "shape": [-1]} for name in self._columns.needed]
        return {"platform": "fdml", "inputs": inputs, "outputs": outputs}

    def renew(self, own: Publication, columns: IdColumns) -> None:
        """Go on with the asker's own rows as they are now: predictions computed anew, and keys; the version stays."""
        self._asker.own = own
        self._columns = columns

    # Answers

    async def answers(self, request: InferenceRequest, spans: Spans = no_spans) -> Answers:
        """The answers to a request, or `RequestRefused`: where no row has a score as somebody has not answered."""
        with spans("look-up") as span:
            if self._columns.optional:  # keys may have to be looked up in files: meanwhile others are answered
                rows = await asyncio.get_running_loop().run_in_executor(self._threads, self._rows, request.inputs)
            else:
                rows = self._rows(request.inputs)
            span.set_attributes({"fdml.rows": len(rows)})
        seconds = self._asker.seconds if request.seconds is None else min(request.seconds, self._asker.seconds)
        try:
            with spans("exchange") as span:
                found = await self._batcher.answers(rows, seconds)
                span.set_attributes({"fdml.parties_missing": ",".join(found.absent)})
        except RequestRefused:
            raise
        except FdmlError as error:
            raise RequestRefused(503, str(error)) from None
        if found.absent and not found.has_score.any():
            raise refused_by(found.absent)
        return found

    def _rows(self, inputs: Mapping[str, Any]) -> AskedRows:
        columns = self._columns
        needed, optional = columns.needed, columns.optional
        if len(needed) == 1 and set(inputs) == {"id"}:
            inputs = {needed[0]: inputs["id"]}
        lacking = [name for name in needed if name not in inputs]
        if lacking:
            raise RequestRefused(400, f"the request has no input {lacking[0]!r}; its inputs are {', '.join(needed)}")
        unknown = [name for name in inputs if name not in (*needed, *optional)]
        if unknown:
            raise RequestRefused(400, f"input {quoted(unknown[0])} is none of {', '.join((*needed, *optional))}")
        try:
            return columns.rows(inputs)
        except DataError as error:
            raise RequestRefused(400, str(error)) from None

    def _ask(self, rows: AskedRows, seconds: float) -> Answers:
        found = self._asker.ask(rows, max(seconds, 0.0))
        if found.asked is None or found.asked.any():
            self._note(found.absent)
        return found

    def _note(self, absent: Mapping[str, str]) -> None:
        asked = [name for name in self.others if name not in self._breakers.away()]
        is_asked = len(asked) == len(self.others) or self.run.serving.absent == "calibrated"
        if is_asked:
            self._breakers.note(asked, absent)
        if not absent:
            self._asked_at = time.monotonic()

    # Readiness

    def missing(self) -> dict[str, str]:
        """The parties that have not answered when they were last asked, and why."""
        return self._breakers.missing() if self._is_probed else dict.fromkeys(self.others, "it was not asked yet")

    @property
    def is_ready(self) -> bool:
        """Whether requests have scores just now: by the rule, without somebody too."""
        return self._is_probed and not (self.run.serving.absent == "fail" and self._breakers.missing())

    async def watch(self) -> None:
        """Probe the parties for as long as the model is served: at once where somebody is away, else when idle."""
        loop = asyncio.get_running_loop()
        while True:
            if self._breakers.missing() or time.monotonic() - self._asked_at > _PAUSE_IDLE:
                await loop.run_in_executor(self._threads, self._probe)
            await asyncio.sleep(_PAUSE_AWAY)

    def _probe(self) -> None:
        """A party that answers later than a request may wait stays away."""
        began = time.monotonic()
        try:
            absent = self._asker.probe(_PROBE_SECONDS)
        except FdmlError as error:  # the server is away
            absent = dict.fromkeys(self.others, str(error))
        took = time.monotonic() - began
        if took <= self._asker.seconds or absent:
            self._breakers.note([name for name in self.others if name in absent or took <= self._asker.seconds], absent)
        if not absent:
            self._asked_at = time.monotonic()
        self._is_probed = True


def outputs_of(answers: Answers, wanted: Mapping[str, bool] | None, default: bool) -> list[tuple[Output, bool]]:
    """The outputs of a response, and whether each is binary. Who is missing is always in it where somebody is."""
    found = {each.name: each for each in _all_outputs(answers)}
    if wanted is None:
        return [(each, default) for each in found.values()]
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise RequestRefused(400, f"there is no output {quoted(unknown[0])}; there are {', '.join(found)}")
    listed = dict(wanted)
    if answers.missed.any():
        listed.setdefault("missing", any(wanted.values()))
    return [(found[name], is_binary) for name, is_binary in listed.items()]


def _all_outputs(answers: Answers) -> Sequence[Output]:
    has, outputs = answers.has_score, list[Output]()
    score = answers.score.astype(np.float64)
    outputs.append(Output("score", score[:, 0] if score.shape[1] == 1 else score))
    chance = answers.probability
    if chance is not None:
        outputs.append(Output("probability", chance))
    prediction = answers.prediction
    if prediction is not None:
        outputs.append(_prediction(prediction, has))
    if answers.asked is not None:
        outputs.append(Output("asked", answers.asked))
    patterns, which = answers.patterns()
    for name, text in (
        ("answered", answers.answered_text),
        ("missing", answers.missing_text),
        ("why", answers.why_text),
    ):
        outputs.append(Output(name, texts=[text(pattern) for pattern in patterns], which=which))
    return outputs


def _prediction(prediction: NDArray[Any], has: NDArray[np.bool_]) -> Output:
    """A class as text, empty where there is none; of a regression the value."""
    if np.issubdtype(prediction.dtype, np.floating):
        return Output("prediction", np.where(has, prediction.astype(np.float64), np.nan))
    classes, which = np.unique(prediction, return_inverse=True)
    texts = [*map(str, classes.tolist()), ""]
    return Output("prediction", texts=texts, which=np.where(has, which, len(texts) - 1).astype(np.int64))
