"""Early stopping in whole sessions: what is kept, when it is known, and that no crash changes it."""

import pytest

from fdml.align.sealed_metrics import open_outcome
from fdml.events import EpochChosen, Evaluated, Reliability, StepDone, Stopped
from fdml.party.checkpoint import SavedState
from fdml.party.early_stopping import best_so_far
from fdml.party.effects import SaveCheckpoint
from fdml.protocol.messages import BestEpoch, HeldOutTotal, Labels, Stop
from fdml.settings import PrivacySettings
from tests.party.sessions import BROWSER, STORE, SmallRun, again, hold, order_of, saved_on, training_part, with_training

EPOCHS, BLOCKS = 12, 2


def run_of(stop_after=1, **options):
    """A step so large that the held-out loss soon rises."""
    training = {"epochs": EPOCHS, "learning_rate": 5.0, **options.pop("training", {})}
    return with_training(SmallRun(stop_after=stop_after, **options), **training)


@pytest.fixture(scope="module")
def held():
    return hold(run_of())


def chosen(sides):
    found = {side.events_of(EpochChosen)[0].epoch for side in sides.values()}
    assert len(found) == 1
    return found.pop()


def losses(side):
    return {each.epoch: each.test_loss for each in side.events_of(Evaluated)}


def model_at(side, epoch):
    """The parameters that a party had at the end of an epoch, from the checkpoint of that step."""
    (found,) = [
        effect.checkpoint.worker
        for effect in side.effects
        if isinstance(effect, SaveCheckpoint) and effect.checkpoint.step == epoch * BLOCKS - 1
    ]
    return {name.removeprefix("model/"): array.tobytes() for name, array in found.items() if name.startswith("model/")}


def test_all_parties_keep_the_model_of_the_epoch_with_the_lowest_held_out_loss(held):
    found = chosen(held)
    assert found == best_so_far(losses(held[STORE]), 1).epoch < EPOCHS - 2
    without = hold(run_of(stop_after=None))
    for name, side in held.items():
        assert side.parameters() == model_at(without[name], found)


def test_the_run_ends_early_at_a_step_that_follows_from_the_epoch_and_says_why(held):
    best = chosen(held)
    end = (
        (best + 1) * BLOCKS + 2 * 1 + 1
    )  # decided one epoch later; lookahead steps to know it, and those pushed by then
    for side in held.values():
        (stopped,) = side.events_of(Stopped)
        assert (stopped.step, stopped.reason) == (end, "the loss of held-out rows falls no more")
        assert len(side.events_of(StepDone)) == end
    assert [each for each in held[STORE].channel.sent if isinstance(each, Stop)] == [Stop(end, no_gain=True)]
    assert not [each for each in held[BROWSER].channel.sent if isinstance(each, Stop)]


def test_the_best_epoch_is_told_sealed_before_anything_is_written(held):
    order = order_of(held[STORE].effects)
    assert order.index("send BestEpoch") < order.index("emit EpochChosen") < order.index("WriteStatement")
    (told,) = [each for each in held[STORE].channel.sent if isinstance(each, BestEpoch)]
    assert open_outcome(held[STORE].store.shared_rows().key, told) == (chosen(held), False)


def test_the_bundle_has_the_figures_of_the_model_that_is_kept(held):
    (bundle,) = held[STORE].store.bundles
    assert bundle.evaluated.epoch == chosen(held)
    assert {name: array.tobytes() for name, array in bundle.parameters.items()} == held[STORE].parameters()
    assert held[BROWSER].store.bundles[0].evaluated is None


def test_a_run_that_gains_to_its_end_keeps_the_best_epoch_too():
    sides = hold(run_of(stop_after=EPOCHS))
    assert not sides[STORE].events_of(Stopped)
    assert chosen(sides) == best_so_far(losses(sides[STORE]), EPOCHS).epoch < EPOCHS


@pytest.mark.parametrize(
    "run",
    [
        run_of(privacy=PrivacySettings(server="blind")),
        run_of(privacy=PrivacySettings(labels="private")),
        run_of(training={"lookahead": 0}),
        run_of(training={"lookahead": 3}),
        run_of(training={"batches_per_block": "all"}),
        run_of(training={"staleness": 2}),
    ],
    ids=["blind", "private labels", "no lookahead", "far lookahead", "one block", "stale"],
)
def test_every_mode_ends_early_with_one_best_epoch(run):
    sides = hold(run)
    known = {epoch: loss for epoch, loss in losses(sides[STORE]).items() if loss is not None}
    assert chosen(sides) == best_so_far(known, 1).epoch


@pytest.mark.parametrize("party", [STORE, BROWSER])
def test_wherever_a_party_is_started_again_it_keeps_the_same_model(held, party):
    """From every checkpoint; whoever has scored an epoch before scores it again, by the same total."""
    side = held[party]
    for disk in side.store.after_checkpoint:
        start = again(run_of(), side, saved=saved_on(disk), disk=disk.copy())
        assert start.result.model_hash == side.result.model_hash
        assert start.events_of(EpochChosen) == side.events_of(EpochChosen)
    assert len(side.store.after_checkpoint) > EPOCHS / 2


def test_the_statement_tells_of_the_best_epoch(held):
    for side in held.values():
        (statement,) = side.store.statements
        (found,) = [
            each for each in statement.exposures if each.saw == "in which epoch the loss of held-out rows was lowest"
        ]
        assert found.role == "server and every other party"
        assert "sealed from the server" in found.form
    (without,) = hold(with_training(SmallRun(), epochs=2))[STORE].store.statements
    assert not [each for each in without.exposures if "in which epoch" in each.saw]


def test_snapshots_of_epochs_are_in_the_checkpoint_and_few():
    sides = hold(run_of(stop_after=2))
    for disk in sides[BROWSER].store.after_checkpoint:
        arrays = saved_on(disk).checkpoint.worker
        epochs = {int(key.split("/")[1]) for key in arrays if key.startswith("epoch/")}
        assert len(epochs) <= 2 + 3
        if arrays["position"][0] >= BLOCKS:
            assert epochs


@pytest.mark.parametrize("party", [STORE, BROWSER])
def test_a_total_that_comes_early_does_not_end_the_run_earlier(held, party):
    """A label party that starts again has the totals of all epochs at once; the others wait for its pushes."""
    side = held[party]
    script = sorted(training_part(side), key=lambda message: not isinstance(message, HeldOutTotal | Labels))
    start = again(run_of(), side, saved=SavedState(2), script=script)
    stops = [[each for each in one.channel.sent if isinstance(each, Stop)] for one in (start, side)]
    assert stops[0] == stops[1]
    assert start.result.model_hash == side.result.model_hash


def test_the_label_party_alone_hears_how_well_the_kept_model_s_probabilities_came_true(held):
    (found,) = held[STORE].events_of(Reliability)
    assert found.epoch == chosen(held)
    assert found.party == STORE
    assert sum(found.rows) > 0
    assert held[BROWSER].events_of(Reliability) == []
