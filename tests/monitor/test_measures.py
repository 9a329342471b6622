"""What a party counts of its own part: over all its starts, in a file that only people need."""

import json

import pytest

from fdml.events import Aligned, EpochDone, Finished, Joined, Released, Scheduled, StepDone, Stopped
from fdml.monitor.measures import MEASURES, Measures, MeasuresFile, lag_bars, read_measures
from tests.monitor.sample_events import SAMPLES, Clock

ALIGNED, SCHEDULED = Aligned("ann", 400, 320, 80), Scheduled("ann", 20, 16, 4, 320, 64)


class Counted:
    bytes_sent, bytes_received, waited_seconds = 1000, 900, 2.5


def file_of(tmp_path, clock=None):
    return MeasuresFile(tmp_path / MEASURES, clock=clock or Clock(), wall=lambda: 1000.0)


def test_lag_and_releases_are_counted(tmp_path):
    measures = file_of(tmp_path)
    for event in (StepDone("ann", 0, 0), StepDone("ann", 1, 2), StepDone("ann", 2, 0), Released("ann", "push", 3)):
        measures(event)
    found = measures.measures
    assert (found.lag, found.releases) == ({0: 2, 2: 1}, {"push": 1})
    assert found.starts[0].steps == 3


def test_what_was_written_is_read_again(tmp_path):
    measures = file_of(tmp_path)
    measures.line = Counted()
    for event in (ALIGNED, Joined("ann", 17), SCHEDULED, StepDone("ann", 17, 1), Stopped("ann", 18, "spent")):
        measures(event)
    measures(Finished("ann", 3.5))
    found = read_measures(tmp_path / MEASURES)
    assert found == measures.measures
    assert (found.aligned, found.scheduled, found.stopped, found.finished) == (ALIGNED, SCHEDULED, "spent", True)
    (start,) = found.starts
    assert (start.began, start.resumed_at) == (1000.0, 17)
    assert (start.bytes_sent, start.bytes_received, start.waited_seconds) == (1000, 900, 2.5)


def test_a_later_start_counts_on(tmp_path):
    first = file_of(tmp_path)
    first(ALIGNED)
    first(StepDone("ann", 0, 0))
    first.save()
    second = file_of(tmp_path)
    second(StepDone("ann", 1, 0))
    second.save()
    found = read_measures(tmp_path / MEASURES)
    assert (len(found.starts), found.restarts, found.lag) == (2, 1, {0: 2})
    assert [start.steps for start in found.starts] == [1, 1]
    assert found.aligned == ALIGNED, "the rows were aligned by the first start alone"


def test_the_file_is_written_now_and_then_while_epochs_pass(tmp_path):
    clock = Clock()
    measures = file_of(tmp_path, clock)
    measures(EpochDone("ann", 1))
    assert not (tmp_path / MEASURES).exists(), "at most every other second, however short the epochs are"
    clock.now += 2.0
    measures(EpochDone("ann", 2))
    assert read_measures(tmp_path / MEASURES).starts[0].seconds == pytest.approx(2.0)


def test_only_its_owner_can_read_it(tmp_path):
    file_of(tmp_path).save()
    assert (tmp_path / MEASURES).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"starts": 3}', "no JSON"])
def test_a_damaged_file_is_begun_anew(tmp_path, content):
    path = tmp_path / MEASURES
    path.write_text(content)
    assert read_measures(path) is None
    file_of(tmp_path).save()
    assert len(read_measures(path).starts) == 1


def test_a_disk_that_takes_nothing_stops_no_run(tmp_path):
    measures = MeasuresFile(tmp_path / "gone" / MEASURES, clock=Clock())
    measures(ALIGNED)
    measures.save()


def test_every_kind_of_event_may_come(tmp_path):
    measures = file_of(tmp_path)
    for event in SAMPLES:
        measures(event)
    assert json.loads((tmp_path / MEASURES).read_text())["finished"]
    assert Measures().restarts == 0


def test_many_lags_become_a_few_bars():
    assert lag_bars({2: 5, 0: 30, 1: 10}) == (("0", 30.0), ("1", 10.0), ("2", 5.0))
    many = lag_bars(dict.fromkeys(range(40), 2))
    assert len(many) == 12
    assert many[-1] == ("11+", 58.0)
    assert sum(count for _, count in many) == 80.0
