import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.agreed_training import SLOWEST_LINE, agreed_training, line_class, most_lookahead
from fdml.settings import AgreedTraining, TrainingSettings

rows_of = st.integers(1, 10**8)
parties_of = st.integers(1, 20)
lines = st.integers(0, SLOWEST_LINE)


def agreed(rows, parties=2, line=0, **training):
    return agreed_training(TrainingSettings(**training), rows, parties, line)


def exchanges(found, rows):
    batches = -(-rows // found.batch_size)
    return 1 if found.batches_per_block == "all" else -(-batches // found.batches_per_block)


@given(rows_of, parties_of, lines)
def test_nothing_is_left_to_a_rule(rows, parties, line):
    found = agreed(rows, parties, line)
    assert isinstance(found, AgreedTraining)
    assert "auto" not in (found.epochs, found.batch_size, found.batches_per_block, found.value_bits, found.lookahead)
    assert min(found.epochs, found.batch_size) >= 1


@given(rows_of, lines)
def test_what_is_set_stays(rows, line):
    own = {"epochs": 3, "batch_size": 7, "batches_per_block": 5, "value_bits": 32, "lookahead": 2}
    found = agreed(rows, line=line, learning_rate=0.2, seed=9, **own)
    assert {name: getattr(found, name) for name in own} == own
    assert (found.learning_rate, found.seed) == (0.2, 9)


@given(rows_of, parties_of, lines)
def test_agreed_settings_are_agreed_already(rows, parties, line):
    found = agreed(rows, parties, line)
    assert agreed_training(found, rows, parties, line) == found


@pytest.mark.parametrize("rows", [150, 442, 1800, 10_000])
def test_small_data_gets_enough_updates(rows):
    """20 epochs of 100 rows were 80 updates on 442 rows."""
    found = agreed(rows)
    updates = found.epochs * -(-rows // found.batch_size)
    assert updates >= 2400


@given(st.integers(1, 10**8))
def test_more_rows_never_mean_more_epochs(rows):
    assert agreed(2 * rows).epochs <= agreed(rows).epochs


@pytest.mark.parametrize(("rows", "most"), [(32_561, 8), (300_000, 8), (3_000_000, 12)])
def test_large_data_exchanges_few_times_an_epoch(rows, most):
    assert 2 <= exchanges(agreed(rows), rows) <= most


@given(rows_of)
def test_batches_grow_with_the_rows_and_bring_no_more_epochs(rows):
    small, large = agreed(rows), agreed(2 * rows)
    assert small.batch_size <= large.batch_size <= 256
    assert large.epochs <= small.epochs


def test_who_sets_the_size_of_batches_gets_as_many_updates():
    assert agreed(1_000, batch_size=500).epochs == 250
    assert agreed(30_000, batch_size=3_000).epochs == 250
    assert agreed(30_000, batch_size=300).epochs == 50


@given(rows_of)
def test_many_parties_exchange_at_least_as_often(rows):
    found = [exchanges(agreed(rows, parties), rows) for parties in (2, 3, 5, 8)]
    assert found == sorted(found)


@pytest.mark.parametrize(("parties", "times"), [(2, 4), (3, 4), (5, 5), (8, 8), (20, 8)])
def test_an_epoch_of_many_rows_has_an_exchange_for_each_party(parties, times):
    assert exchanges(agreed(300_000, parties), 300_000) == times


@pytest.mark.parametrize(("parties", "times"), [(2, 4), (3, 6), (8, 16), (20, 16)])
def test_who_pushes_ahead_exchanges_twice_as_often(parties, times):
    assert exchanges(agreed(300_000, parties, lookahead=1), 300_000) == times


def test_parties_wait_for_each_other_where_the_line_is_fast_and_blocks_are_the_rules():
    assert agreed(30_000).lookahead == 0
    assert agreed(30_000, line=1).lookahead == 1
    assert agreed(30_000, batches_per_block=16).lookahead == 1
    assert agreed(30_000, joint="fm").lookahead == 1
    assert agreed(30_000, exchanges=5).lookahead == 0


@pytest.mark.parametrize("rows", [500, 3000, 30_000, 3_000_000])
def test_a_slower_line_exchanges_less_often(rows):
    found = [exchanges(agreed(rows, line=line), rows) for line in range(SLOWEST_LINE + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 1


@pytest.mark.parametrize(
    ("rows", "parties", "line", "bits"),
    [(10_000, 3, 0, 64), (10_000, 3, 1, 16), (1_000_000, 3, 0, 16), (1_000_000, 5, 0, 64), (10_000, 5, 6, 64)],
)
def test_predictions_are_rounded_where_there_are_many_or_the_line_is_slow(rows, parties, line, bits):
    assert agreed(rows, parties, line).value_bits == bits


@pytest.mark.parametrize("exchanges", [1, 5, 400])
def test_few_exchanges_have_passes_for_each(exchanges):
    found = agreed(50_000, exchanges=exchanges)
    assert found.epochs > exchanges
    assert found.exchanges == exchanges


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, 0), (0.0005, 0), (0.02, 0), (0.021, 1), (0.04, 1), (0.041, 2), (0.3, 4), (1000.0, SLOWEST_LINE)],
)
def test_lines_have_few_classes(seconds, expected):
    assert line_class(seconds) == expected


def test_a_time_that_is_no_number_is_a_fast_line():
    assert line_class(float("nan")) == 0


@pytest.mark.parametrize(
    "training", [{}, {"lookahead": 0}, {"lookahead": 3}, {"exchanges": 4}, {"joint": "fm"}, {"batches_per_block": 8}]
)
def test_no_line_gets_a_larger_lookahead_than_was_known_before(training):
    settings = TrainingSettings(**training)
    found = [agreed_training(settings, 10_000, 3, line).lookahead for line in range(SLOWEST_LINE + 1)]
    assert max(found) == most_lookahead(settings)
