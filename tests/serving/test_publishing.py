"""The column of a bundle: local predictions clipped, rounded and noisy as what left in training."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from fdml.cluster.reading import PartReader
from fdml.cluster.settings import WorkersSettings
from fdml.data.origins import frame_origins
from fdml.data.sources import open_encoded
from fdml.errors import DataError
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import FIXED_POINTS, encode
from fdml.serving.publishing import column_of, local_predictions, model_of, released_codes
from fdml.settings.data import DataSettings
from tests.serving.bundles import DATA, ROWS, bundle_of, frame
from tests.serving.published import NO_NOISE, keys_of, run_of, texts

KEY = NoiseKey(b"k" * 32)


def sources_of(bundle, *frames):
    return [open_encoded(DATA, bundle.encoder, frame_origins(each)[0]) for each in frames]


def columns(bundle, *frames, mechanism=NO_NOISE, number=1, bits=32):
    keys = keys_of(run_of().parties, bundle.card.party)
    return keys, column_of(
        bundle, run_of(), sources_of(bundle, *frames), keys, bits=bits, mechanism=mechanism, noise=KEY, number=number
    )


@pytest.mark.parametrize(
    ("kind", "width", "task"), [("linear", 1, "binary"), ("fm", 1, "binary"), ("mlp", 3, "multiclass")]
)
def test_a_column_has_the_models_predictions_rounded_to_the_grid(kind, width, task):
    bundle = bundle_of(kind, width, task=task)
    keys, column = columns(bundle, frame())
    (source,) = sources_of(bundle, frame())
    predictions = local_predictions(model_of(bundle, run_of(task=task)), source)
    rows = column.find(keys.tokens_of(texts([f"r{at}" for at in range(ROWS)])))
    assert predictions.shape == (ROWS, width)
    assert (column.codes[rows] == encode(predictions, FIXED_POINTS[32])).all()
    assert column.width == width


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
def test_a_column_that_workers_make_by_part_is_the_same(tmp_path, kind):
    bundle, files, whole = bundle_of(kind), 7, frame(500)
    (tmp_path / "rows").mkdir()
    for number, start in enumerate(range(0, 500, 500 // files)):
        pq.write_table(whole.slice(start, 500 // files), tmp_path / "rows" / f"{number:03d}.parquet")
    workers = WorkersSettings(kind="threads", files=True, count=2)
    reader = PartReader(workers, tmp_path / "parts", bundle=bundle)
    source = open_encoded(DATA.model_copy(update={"path": tmp_path / "rows"}), bundle.encoder, reader=reader)
    keys, wanted = columns(bundle, whole)
    found = column_of(bundle, run_of(), [source], keys, bits=32, mechanism=NO_NOISE, noise=KEY, number=1)
    for name in ("high", "low", "codes", "exact"):
        assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()
    parts = list((tmp_path / "parts").glob("*/*"))
    assert len(parts) == 8
    assert {path.name for part in parts for path in part.iterdir()} == {
        "manifest.json",
        "predictions",
        "id bounds",
        "id bytes",
    }


def test_new_rows_of_another_file_are_in_it_and_the_first_file_wins():
    bundle = bundle_of()
    keys, column = columns(bundle, frame(), frame(20, first=40))
    assert len(column) == 60
    _, alone = columns(bundle, frame())
    token = keys.tokens_of(texts(["r45"]))
    assert column.codes[column.find(token)].tolist() == alone.codes[alone.find(token)].tolist()


def test_rows_without_ids_cannot_be_published():
    bundle = bundle_of()
    source = open_encoded(DataSettings(), bundle.encoder, frame_origins(frame())[0])
    with pytest.raises(DataError, match="matched by position"):
        column_of(
            bundle, run_of(), [source], keys_of(("ann", "bob"), "bob"), bits=32, mechanism=NO_NOISE, noise=KEY, number=1
        )


def test_a_bundle_that_does_not_say_its_width_is_refused():
    bundle = bundle_of()
    card = BundleCard(**{**vars(bundle.card), "width": None})
    with pytest.raises(DataError, match="older fdml"):
        model_of(Bundle(card=card, parameters=bundle.parameters, encoder=bundle.encoder), run_of())


def released(predictions, mechanism, *, bits=32, number=1, run=None):
    return released_codes(np.asarray(predictions, np.float32), run or run_of(), bits, mechanism, KEY, number)


def test_without_noise_what_leaves_is_what_is_exact():
    codes, exact = released([[0.5], [-1.25]], NO_NOISE)
    assert codes.tolist() == exact.tolist() == encode(np.array([[0.5], [-1.25]]), FIXED_POINTS[32]).tolist()
    assert codes.dtype == np.int64


def test_a_clip_holds_for_answers_too():
    codes, _ = released([[9.0], [0.25]], Mechanism("none", 1.0, 0.0))
    assert codes[0, 0] <= encode(np.array([1.0]), FIXED_POINTS[32])[0]
    assert codes[1].tolist() == encode(np.array([0.25]), FIXED_POINTS[32]).tolist()


def test_noise_is_on_what_leaves_alone_and_the_same_when_drawn_again():
    noisy = Mechanism("gaussian", 1.0, 2.0)
    predictions = np.zeros((2000, 1))
    codes, exact = released(predictions, noisy)
    assert not exact.any()
    assert codes.std() * 2.0**-20 == pytest.approx(2.0, rel=0.1)
    assert (released(predictions, noisy)[0] == codes).all()
    assert (released(predictions, noisy, number=2)[0] != codes).mean() > 0.99, "each computing has noise of its own"


def test_one_row_past_what_can_travel_is_cut_and_ends_nothing():
    codes, _ = released([[1e9], [0.5]], NO_NOISE)
    assert codes[0, 0] > 10 * codes[1, 0]
    largest = FIXED_POINTS[32].largest_code(3)
    assert codes[0, 0] <= largest


def test_the_runs_largest_prediction_holds():
    run = run_of(training={"max_prediction": 2.0})
    codes, _ = released([[5.0]], NO_NOISE, run=run)
    assert codes[0, 0] == encode(np.array([2.0]), FIXED_POINTS[32])[0]
