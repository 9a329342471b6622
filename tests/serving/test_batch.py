"""A batch: a row for every id, exactly once, also after a crash between two blocks."""

import contextlib
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fdml.errors import DataError, ServerUnreachable, SettingsError
from fdml.serving import batch
from fdml.serving.asking import AskedRows
from fdml.serving.batch import AskedTable, Retry, answer_table, predict_batch
from tests.serving.published import IDS, ask, asker_of, federation, run_of, texts, values_of

ASKED = [*IDS, "stranger", IDS[0]]


def table_of(ids, digest=b"d"):
    def blocks(size):
        for start in range(0, len(ids), size):
            part = ids[start : start + size]
            yield pa.table({"id": part}), AskedRows(texts(part))

    return AskedTable(digest, len(ids), blocks)


def small(asker, rows=10):
    asker.rows_at_once = rows
    return asker


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_id_has_a_row_in_the_order_asked_for(tmp_path, ending):
    values = values_of()
    _, asker = federation(values)
    result = predict_batch(small(asker), table_of(ASKED), tmp_path / f"out.{ending}")
    found = pa.csv.read_csv(tmp_path / "out.csv") if ending == "csv" else pq.read_table(tmp_path / "out.parquet")
    assert found.column("id").to_pylist() == ASKED
    total = sum(values[name] for name in values)[:, 0].tolist()
    assert found.column("score").to_pylist() == [*total, None, total[0]]
    assert found.column("prediction").to_pylist()[:2] == ["yes" if each > 0 else "no" for each in total[:2]]
    assert found.column("answered").to_pylist()[0] == "ann,bob,cid"
    assert found.column("missing").to_pylist()[-2] == "ann,bob,cid"
    assert "bob: unknown id" in found.column("why").to_pylist()[-2]
    assert (result.rows, result.scored, result.blocks, result.resumed) == (42, 41, 5, 0)
    assert result.missing == {"ann": 1, "bob": 1, "cid": 1}
    assert [each.name for each in tmp_path.iterdir()] == [f"out.{ending}"], "the folder of blocks is gone"


class Killed(Exception):
    pass


def test_after_a_crash_only_the_blocks_that_are_missing_are_asked_for(tmp_path):
    _, asker = federation(values_of())
    uninterrupted = predict_batch(small(asker), table_of(ASKED), tmp_path / "whole.csv")
    asked = []
    plain = asker.ask

    def dies(rows):
        if len(asked) == 3:
            raise Killed
        asked.append(len(rows))
        return plain(rows)

    asker.ask = dies
    with pytest.raises(Killed):
        predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    asker.ask = lambda rows: (asked.append(len(rows)), plain(rows))[1]
    result = predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(asked) == [2, 10, 10, 10, 10], "no block is asked for twice"
    assert (result.resumed, result.scored) == (3, uninterrupted.scored)


def test_a_half_written_block_is_asked_for_again(tmp_path):
    _, asker = federation(values_of())
    predict_batch(small(asker), table_of(ASKED), tmp_path / "whole.csv")
    plain, count = asker.ask, []

    def dies(rows):
        count.append(1)
        if len(count) == 3:
            (tmp_path / ".out.csv.blocks" / ".block-000002.parquet.partial").write_bytes(b"half")
            raise Killed
        return plain(rows)

    asker.ask = dies
    with pytest.raises(Killed):
        predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    asker.ask = plain
    result = predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert 2 <= result.resumed <= 4, "the block beside it may have been written"
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_two_blocks_are_under_way_at_once_and_rows_keep_their_order(tmp_path):
    _, asker = federation(values_of())
    plain, both = asker.ask, threading.Barrier(2, timeout=20)

    def together(rows):
        if len(rows) == 10:
            both.wait()  # would end in an error if only one came
        return plain(rows)

    asker.ask = together
    told = []
    predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv", progress=lambda *each: told.append(each))
    assert pa.csv.read_csv(tmp_path / "out.csv").column("id").to_pylist() == ASKED
    assert told == [(10, 42), (20, 42), (30, 42), (40, 42), (42, 42)]


def test_blocks_that_lack_a_party_are_asked_for_again_by_the_next_start(tmp_path):
    """The party is back; only rows that were asked for in vain would still say that it is missing."""
    found, asker = federation(values_of())
    predict_batch(small(asker), table_of(ASKED), tmp_path / "whole.csv")
    away = asker_of(found, "ann", missing=("bob",))
    plain = away.ask
    away.ask = lambda rows: (_ for _ in ()).throw(Killed) if len(rows) < 10 else plain(rows)
    with pytest.raises(Killed):
        predict_batch(small(away), table_of(ASKED), tmp_path / "out.csv")
    result = predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert (result.resumed, result.scored) == (0, 41)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_one_process_at_a_time_writes_an_output(tmp_path):
    _, asker = federation(values_of())
    plain, refused = asker.ask, []

    def meanwhile(rows):
        if not refused:
            refused.append(True)
            with pytest.raises(SettingsError, match="another prediction into this file is running"):
                predict_batch(small(asker), table_of(ASKED[::-1], digest=b"other"), tmp_path / "out.csv")
        return plain(rows)

    asker.ask = meanwhile
    assert predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv").scored == 41
    assert pa.csv.read_csv(tmp_path / "out.csv").column("id").to_pylist() == ASKED


def test_ids_that_change_while_they_are_read_leave_no_output(tmp_path):
    _, asker = federation(values_of())
    changed = replace(table_of(ASKED), has_changed=lambda: True)
    with pytest.raises(DataError, match="was changed while it was read"):
        predict_batch(small(asker), changed, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("call", ["unlink", "write_file", "rmtree"])
@pytest.mark.parametrize("moment", range(1, 12))
def test_a_crash_at_any_moment_leaves_the_old_output_or_the_new_and_the_next_start_the_new(
    tmp_path, monkeypatch, call, moment
):
    """Also with blocks of another job in the folder, and an output of before."""
    _, asker = federation(values_of())
    predict_batch(small(asker), table_of(ASKED), tmp_path / "whole.csv")
    (tmp_path / "out.csv").write_bytes(b"before")
    plain = asker.ask
    asker.ask = lambda rows: (_ for _ in ()).throw(Killed) if len(rows) < 10 else plain(rows)
    with pytest.raises(Killed):
        predict_batch(small(asker), table_of(ASKED[::-1], digest=b"other"), tmp_path / "out.csv")
    asker.ask, count = plain, []

    def killed(real):
        def dies(*given, **options):
            count.append(1)
            if len(count) == moment:
                raise Killed
            return real(*given, **options)

        return dies

    place, name = {
        "unlink": (batch.Path, "unlink"),
        "write_file": (batch, "write_file"),
        "rmtree": (batch.shutil, "rmtree"),
    }[call]
    with monkeypatch.context() as patched:
        patched.setattr(place, name, killed(getattr(place, name)))
        with contextlib.suppress(Killed):
            predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() in (b"before", (tmp_path / "whole.csv").read_bytes())
    predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_blocks_of_another_file_of_ids_are_not_used(tmp_path):
    _, asker = federation(values_of())
    plain = asker.ask
    asker.ask = lambda rows: (_ for _ in ()).throw(Killed) if len(rows) < 10 else plain(rows)
    with pytest.raises(Killed):
        predict_batch(small(asker), table_of(ASKED), tmp_path / "out.csv")
    asker.ask = plain
    other = ASKED[::-1]
    result = predict_batch(small(asker), table_of(other, digest=b"other"), tmp_path / "out.csv")
    assert result.resumed == 0
    assert pa.csv.read_csv(tmp_path / "out.csv").column("id").to_pylist() == other


def test_an_output_of_another_kind_is_refused(tmp_path):
    _, asker = federation(values_of())
    with pytest.raises(DataError, match=r"'.txt'.*\.csv or \.parquet"):
        predict_batch(asker, table_of(IDS), tmp_path / "out.txt")


def test_classes_have_a_score_and_a_probability_each():
    _, asker = federation(values_of(width=3), run=run_of(task="multiclass"))
    table = answer_table(pa.table({"id": IDS[:2]}), ask(asker, IDS[:2]))
    assert table.column_names == [
        "id",
        *("score_a", "score_b", "score_c"),
        *("probability_a", "probability_b", "probability_c"),
        *("prediction", "answered", "missing", "why"),
    ]
    assert sum(table.column(f"probability_{each}")[0].as_py() for each in "abc") == pytest.approx(1.0)


def test_a_regression_has_a_value_and_no_probability():
    values = values_of()
    _, asker = federation(values, run=run_of(task="regression"))
    table = answer_table(pa.table({"id": IDS[:2]}), ask(asker, IDS[:2]))
    assert "probability" not in table.column_names
    assert table.column("prediction").to_pylist() == table.column("score").to_pylist()


def test_progress_is_told(tmp_path):
    _, asker = federation(values_of())
    seen = []
    predict_batch(small(asker, 30), table_of(IDS), tmp_path / "out.csv", progress=lambda *each: seen.append(each))
    assert seen == [(30, 40), (40, 40)]


# Retries


class Time:
    """A clock that goes by sleeping."""

    def __init__(self):
        self.now = 0.0

    def retry(self, seconds):
        return Retry(seconds, lambda: self.now, self.sleep)

    def sleep(self, seconds):
        self.now += seconds


def away(asker, tries, error=None):
    """The first questions find nobody, or no server."""
    plain, left = asker.ask, [tries]

    def ask_later(rows):
        left[0] -= 1
        if left[0] < 0:
            return plain(rows)
        if error is not None:
            raise error
        answers = plain(rows)
        return replace(answers, score=np.full_like(answers.score, np.nan), absent={"bob": "it is not standing by"})

    asker.ask = ask_later
    return asker


@pytest.mark.parametrize("error", [None, ServerUnreachable("it was killed")])
def test_with_retries_a_party_or_server_that_comes_back_leaves_no_trace(tmp_path, error):
    _, asker = federation(values_of())
    predict_batch(small(asker), table_of(ASKED), tmp_path / "whole.csv")
    clock = Time()
    _, other = federation(values_of())
    predict_batch(small(away(other, 5, error)), table_of(ASKED), tmp_path / "out.csv", retry=clock.retry(60.0))
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert 0.0 < clock.now < 10.0


def test_once_the_retries_have_ended_the_rows_say_who_is_missing(tmp_path):
    _, asker = federation(values_of(), missing=("bob",))
    clock = Time()
    result = predict_batch(asker, table_of(ASKED), tmp_path / "out.csv", retry=clock.retry(3.0))
    assert result.scored == 0
    assert clock.now == pytest.approx(3.0, abs=0.5)
    with pytest.raises(ServerUnreachable):
        predict_batch(
            away(federation(values_of())[1], 99, ServerUnreachable("gone")),
            table_of(ASKED),
            tmp_path / "none.csv",
            retry=clock.retry(3.0),
        )
    assert not (tmp_path / "none.csv").exists()
