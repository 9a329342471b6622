"""The benchmark of a server under attack: what is thrown at it, and what is measured."""

import os
import threading
from random import Random

import pytest

from benchmarks import load
from benchmarks.attackers import mutant, valid_messages
from fdml.errors import MessageRefused
from fdml.protocol.messages import Hello
from fdml.protocol.wire import decode_from_party, encode_from_party

HELLO = Hello(b"r" * 32, b"a" * 32, 100, 10, 1)
VALID = [encode_from_party(message) for message in valid_messages(HELLO)]


def test_mutants_differ_and_none_is_a_hello_of_the_run():
    chance, refused, others = Random(1), 0, 0
    for _ in range(3000):
        raw = mutant(VALID, HELLO, chance)
        try:
            message = decode_from_party(raw)
        except MessageRefused:
            refused += 1
        else:
            others += 1
            assert not (isinstance(message, Hello) and message.run_hash == HELLO.run_hash)
    assert refused > 1000
    assert others > 100, "some are messages in order, but at the wrong time"


def test_every_kind_of_message_is_there_to_be_mutated():
    kinds = {type(decode_from_party(raw)).__name__ for raw in VALID}
    assert kinds == {
        "Hello", "Labels", "Push", "Stop", "Checkpointed", "HeldOutPredictions", "SealedMetrics", "Finished",
    }  # fmt: skip


def test_the_time_of_a_step_is_counted_between_two_moments(tmp_path):
    for number, party in enumerate(("p0", "p1", "p2")):
        (tmp_path / party).mkdir()
        lines = [f"{20 * at} {10.0 + 0.5 * at + 0.1 * number}\n" for at in range(100)]
        (tmp_path / party / "steps").write_text("".join(lines) + "half a li")
    assert load._step_seconds(tmp_path, 20.05, 30.05) == pytest.approx(0.5 / 20)
    assert load._step_seconds(tmp_path, 500.0, 501.0) == pytest.approx(3.0), "no step at all"


def test_attackers_leave_the_processor_to_the_others():
    found = []

    def attack():
        yields = load.yield_processor()
        inner = threading.Thread(target=lambda: found.append((yields, os.sched_getscheduler(0))))
        inner.start()
        inner.join()

    attacker = threading.Thread(target=attack)
    attacker.start()
    attacker.join()
    assert found == [(True, os.SCHED_IDLE)], "the threads that it starts, too"
    assert os.sched_getscheduler(0) != os.SCHED_IDLE, "and nobody else"


@pytest.mark.slow
def test_honest_parties_go_on_under_attack(monkeypatch):
    monkeypatch.setattr(load, "_MESSAGES", 2000)
    monkeypatch.setattr(load, "_LEAST_SECONDS", 3.0)
    report = load.run(lambda _: None, rounds=1)
    figures = {line["contender"]: line for line in report.results}
    assert figures["sent: mutated messages"]["median"] >= 2000
    assert figures["sent: idle connections"]["median"] >= 1300
    assert figures["sent: begun handshakes"]["median"] >= 650
    assert figures["sent: calls of 20 MiB"]["median"] > 0
    assert figures["sent: compressed calls"]["median"] > 0
    for work in ("server's own work, left alone", "server's own work, under attack", "attackers' own work"):
        assert figures[work]["median"] > 0.0
    grown = figures["server's memory, most growth under attack"]["median"]
    assert grown < 200.0, "beside other tests; the bar of 100 MB is for the benchmark, on a quiet machine"
    assert report.ratios["step under attack/left alone, at most 1.5"]["median"] > 0.0
