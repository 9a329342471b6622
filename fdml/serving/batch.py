"""Batch prediction: a file of ids becomes a file of scores, block by block.

Each block has an output file that is written whole, in a folder beside the output. A start after a crash goes on with
the blocks that are not there; the output is made of all blocks at the end, and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fdml.errors import DataError, ServerUnreachable
from fdml.serving.answers import Answers
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.column import Column
from fdml.storage.atomic import PUBLIC, write_file
from fdml.storage.lock import LOCK, exclusive_lock

_JOB = "job.json"
_PAUSE = 0.5
"""Seconds between two tries."""
_AT_ONCE = 2
"""Blocks under way: while the parties answer one, the next is made."""
ENDINGS = (".csv", ".parquet")
_FEW = ("prediction", "answered", "missing", "why")
"""Columns of few different values; a dictionary of ids or scores would take half of the time, and room."""


@dataclass(frozen=True)
class BatchResult:
    """What a batch came to."""

    rows: int
    scored: int
    missing: dict[str, int]
    """By party: rows without its part."""
    why: tuple[str, ...]
    """Different reasons, as the rows have them; the first few."""
    blocks: int
    resumed: int
    """Blocks that were there from an earlier start."""
    asked: int | None = None
    """Rows that the others were asked for, where only unsure ones are."""


@dataclass(frozen=True, eq=False)
class AskedTable:
    """A file of ids, to be read block by block."""

    digest: bytes
    """Of its content."""
    count: int
    blocks: Callable[[int], Iterator[tuple[Any, AskedRows]]]
    """So many rows at a time: the columns to repeat in the output as a pyarrow table, and what is asked for."""
    has_changed: Callable[[], bool] = lambda: False
    """Whether the content is no longer that of the digest."""


def with_live(table: AskedTable, live: Column, digest: bytes) -> AskedTable:
    """The same file, with the asker's own part of rows whose features were handed in; `digest` is theirs."""

    def blocks(size: int) -> Iterator[tuple[Any, AskedRows]]:
        for shown, rows in table.blocks(size):
            yield shown, replace(rows, live=live)

    whole = hashlib.blake2b(table.digest + digest, digest_size=32).digest()
    return AskedTable(whole, table.count, blocks, table.has_changed)


@dataclass(frozen=True)
class Retry:
    """For how long a block is asked for again while a party, or the server, may come back."""

    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, asker: Asker, rows: AskedRows) -> Answers:
        """Answers of all parties, or what there is once the time is over; the same rows again are no release."""
        end = self.clock() + self.seconds
        while True:
            try:
                answers = asker.ask(rows)
                if not answers.absent or self.clock() >= end:
                    return answers
            except ServerUnreachable:
                if self.clock() >= end:
                    raise
            self.sleep(_PAUSE)


NO_RETRY = Retry()


def predict_batch(
    asker: Asker,
    table: AskedTable,
    out: Path,
    *,
    retry: Retry = NO_RETRY,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> BatchResult:
    """Ask for all rows of a table and write the answers to `out`, .csv or .parquet.

    `progress` hears how many rows are done, of how many.
    """
    ending = ending_of(out)
    folder = out.with_name(f".{out.name}.blocks")
    with exclusive_lock(folder, "prediction into this file"):
        paths, resumed = _blocks_of(asker, table, folder, partial(retry.ask, asker), progress)
        if table.has_changed():
            raise DataError("the file of ids was changed while it was read; run the same command again")
        write_file(out, _combined(paths, ending), mode=PUBLIC)
        result = _summary(asker, paths, resumed)
        shutil.rmtree(folder)
    return result


def _blocks_of(
    asker: Asker,
    table: AskedTable,
    folder: Path,
    ask: Callable[[AskedRows], Answers],
    progress: Callable[[int, int], None],
) -> tuple[list[Path], int]:
    """Ask for all blocks that are not in the folder; gives the files of all, and how many were there."""
    size = asker.rows_at_once
    _prepare(asker, table, folder, size)
    paths, under_way, done, resumed = list[Path](), deque[tuple[Future[Path], int]](), 0, 0

    def settle(most: int) -> None:
        """Wait until at most so many blocks are under way."""
        nonlocal done
        while len(under_way) > most:
            block, rows = under_way.popleft()
            paths.append(block.result())
            done += rows
            progress(done, table.count)

    with ThreadPoolExecutor(_AT_ONCE, "blocks") as threads:
        for number, (shown, rows) in enumerate(table.blocks(size)):
            path = folder / f"block-{number:06d}.parquet"
            resumed += path.is_file()
            under_way.append((threads.submit(_block, ask, shown, rows, path), len(rows)))
            settle(_AT_ONCE)
        settle(0)
    return paths, resumed


def _block(ask: Callable[[AskedRows], Answers], shown: Any, rows: AskedRows, path: Path) -> Path:
    """The file of a block. Where a party has not answered it has another name, and the next start asks for it again."""
    if path.is_file():
        return path
    answers = ask(rows)
    if answers.absent:
        path = path.with_suffix(".incomplete")
    write_file(path, _parquet(answer_table(shown, answers)))
    return path


def answer_table(shown: Any, answers: Answers) -> Any:
    """The output's rows: the asked columns, score, probability, prediction, who answered, who is missing and why."""
    columns = {name: shown.column(name) for name in shown.column_names}
    has = answers.has_score
    classes = None if answers.reading is None else answers.reading.labels.classes
    many = answers.score.shape[1] > 1 and classes is not None
    names = [f"score_{each}" for each in classes] if many and classes is not None else ["score"]
    columns |= {name: _or_null(answers.score[:, at], has) for at, name in enumerate(names)}
    chance = answers.probability
    if chance is not None and many and classes is not None:
        columns |= {f"probability_{each}": _or_null(chance[:, at], has) for at, each in enumerate(classes)}
    elif chance is not None:
        columns["probability"] = _or_null(chance, has)
    prediction = answers.prediction
    if prediction is not None:
        columns["prediction"] = _or_null(prediction, has)
    patterns, which = answers.patterns()
    if answers.asked is not None:
        columns["asked"] = pa.array(answers.asked)
    for name, text in (
        ("answered", answers.answered_text),
        ("missing", answers.missing_text),
        ("why", answers.why_text),
    ):
        texts = pa.array([text(pattern) for pattern in patterns], pa.string())
        columns[name] = texts.take(pa.array(which))
    return pa.table(columns)


def ending_of(out: Path) -> str:
    """The format of an output file, by its ending."""
    if out.suffix not in ENDINGS:
        raise DataError(f"{str(out)!r} ends in {out.suffix!r}; the output is written as {' or '.join(ENDINGS)}")
    return out.suffix


def _or_null(values: Any, has: Any) -> Any:
    return pa.array(values, mask=~np.asarray(has))


def _prepare(asker: Asker, table: AskedTable, folder: Path, size: int) -> None:
    """Blocks of another question are removed from the folder."""
    facts = asker.own.facts
    known = f"{facts.run.name} {facts.party} {facts.version} {facts.generation} {size} {table.digest.hex()}"
    job = json.dumps({"layout": 1, "of": hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}).encode()
    path = folder / _JOB
    if path.is_file() and path.read_bytes() == job:
        return
    path.unlink(missing_ok=True)  # first, or a crash would leave its blocks to another job
    for each in folder.iterdir():
        if each.name != LOCK:
            each.unlink()
    write_file(path, job)


def _parquet(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    few = [name for name in table.column_names if name in _FEW]
    pq.write_table(table, sink, use_dictionary=few or False)
    return bytes(sink.getvalue())


def _combined(paths: list[Path], ending: str) -> bytes:
    tables = [pq.read_table(path) for path in paths]
    whole = pa.concat_tables(tables, promote_options="permissive")
    if ending == ".parquet":
        return _parquet(whole)
    sink = pa.BufferOutputStream()
    pacsv.write_csv(whole, sink)
    return bytes(sink.getvalue())


def _summary(asker: Asker, paths: list[Path], resumed: int) -> BatchResult:
    rows, scored, asked, why = 0, 0, 0, dict[str, None]()
    missing = dict.fromkeys(asker.own.run.parties, 0)
    for path in paths:
        table = pq.read_table(path)
        first = next(name for name in table.column_names if name == "score" or name.startswith("score_"))
        rows += len(table)
        scored += len(table) - table.column(first).null_count
        asked += int(np.sum(table.column("asked").to_numpy())) if "asked" in table.column_names else len(table)
        for entry in table.column("missing").value_counts().to_pylist():
            for name in filter(None, entry["values"].split(",")):
                missing[name] += entry["counts"]
        why |= dict.fromkeys(text for text in table.column("why").unique().to_pylist() if text)
    all_asked = asker.own.run.serving.ask == "all"
    return BatchResult(rows, scored, missing, tuple(why)[:5], len(paths), resumed, None if all_asked else asked)
