"""Labels and held-out predictions in pieces lead to the run that they lead to as one message each."""

from random import Random

import pytest

from fdml.protocol.alignment_messages import PIECE_ROWS
from fdml.protocol.row_pieces import label_pieces
from fdml.storage.arrays import hash_arrays
from simulator.reference import alignment_of, fault_free_run
from simulator.scenarios import Scenario


class InPieces(Scenario):
    """Three rows a piece of ids, one of labels and held-out predictions, whatever the seed."""

    piece_rows = 3


class Whole(Scenario):
    """Every set is one message, whatever the seed."""

    piece_rows = PIECE_ROWS


@pytest.mark.parametrize("seed", range(12))
def test_a_run_ends_with_the_same_models_and_metrics_in_pieces(seed):
    found = {}
    for kind in (Whole, InPieces):
        reference = fault_free_run(kind.draw(Random(seed)))
        models = {party: hash_arrays(state) for party, state in reference.models.items()}
        found[kind] = models, reference.metrics, reference.end
    assert found[Whole] == found[InPieces]
    assert found[Whole][1]


def test_these_runs_have_several_pieces_of_everything():
    drawn = [InPieces.draw(Random(seed)) for seed in range(12)]
    for scenario in drawn:
        shared = next(iter(alignment_of(scenario).values()))
        assert label_pieces(len(shared.train), len(shared.held_out), scenario.sent_rows).count > 2
    assert any(scenario.held_out > 1 for scenario in drawn)
    assert any(scenario.rows > scenario.piece_rows for scenario in drawn)
