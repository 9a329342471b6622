"""A party's own answer: limits first, then what it said before, then `--yes`, then a person."""

from dataclasses import replace

import pytest

from fdml.errors import SettingsError
from fdml.party.consent import ConsentDecision
from fdml.party.settings import AlignSettings
from fdml.protocol.alignment_messages import LONGEST_REASON, Consent, RowSummary
from fdml.settings import RunSettings
from tests.storage.memory_disk import MemoryDisk, PowerCut

RUN = RunSettings(parties=("bank", "shop"), label_party="bank")
COUNTS = RowSummary((900, 80), (), 40)


def decision(disk=None, *, yes=False, ask=None, run=RUN, **limits):
    return ConsentDecision(disk or MemoryDisk(), run, "bank", AlignSettings(**limits), yes, ask)


@pytest.mark.parametrize("options", [{"yes": True}, {"max_rows": 80}, {"ask": lambda _: True}])
def test_limits_yes_or_a_person_give_consent(options):
    assert decision(**options)(COUNTS) == Consent(True)


@pytest.mark.parametrize("options", [{"max_rows": 79}, {"min_shared": 41, "yes": True}, {"max_rows": 79, "yes": True}])
def test_limits_hold_whatever_else_is_said(options):
    answer = decision(**options, ask=lambda _: True)(COUNTS)
    assert not answer.given
    assert "of 'bank' is" in answer.reason


def test_a_person_is_shown_the_counts_and_may_say_no():
    questions = []

    def ask(question):
        questions.append(question)
        return False

    assert decision(ask=ask)(COUNTS) == Consent(False, "its operator said no")
    assert "rows: bank 900, shop 80, shared 40" in questions[0]


def test_nobody_to_ask_is_an_error_with_the_ways_out_and_nothing_is_stored():
    disk = MemoryDisk()
    for call in (lambda: decision(disk)(COUNTS), decision(disk).check_possible):
        with pytest.raises(SettingsError, match=r"set align.max_rows in party.toml.*--yes.*in a terminal"):
            call()
    assert disk.files == {}


def test_fewest_shared_rows_alone_settle_nothing():
    """They do not bound how many ids another party may try."""
    with pytest.raises(SettingsError, match=r"align\.max_rows"):
        decision(min_shared=10).check_possible()


def test_a_consent_is_stored_and_the_same_counts_are_not_asked_again():
    disk = MemoryDisk()
    assert decision(disk, ask=lambda _: True)(COUNTS).given
    again = decision(disk)
    again.check_possible()
    assert again(COUNTS).given
    with pytest.raises(SettingsError):
        decision(disk)(replace(COUNTS, number=2))


def test_other_counts_are_asked_again():
    disk, questions = MemoryDisk(), []
    for summary in (COUNTS, COUNTS, RowSummary((900, 81), (), 40)):
        decision(disk, ask=lambda question: questions.append(question) or True)(summary)
    assert len(questions) == 2


def test_a_consent_is_durable_before_it_is_given():
    with pytest.raises(PowerCut):
        decision(MemoryDisk(writes_left=0), yes=True)(COUNTS)


def test_a_refusal_is_not_stored():
    disk = MemoryDisk()
    decision(disk, max_rows=1)(COUNTS)
    assert decision(disk, max_rows=100)(COUNTS).given


def test_a_reason_fits_into_its_message_whatever_the_names():
    run = RunSettings(parties=("bank", "s" * 64), label_party="bank")
    assert len(decision(run=run, max_rows=1)(COUNTS).reason) <= LONGEST_REASON
