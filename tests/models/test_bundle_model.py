"""The model of a bundle predicts what it predicted when it was saved."""

import numpy as np
import pytest

from fdml.data.column_features import Number
from fdml.data.encoding import Encoder
from fdml.data.rows import DenseRows
from fdml.errors import DataError
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.models.bundle_model import bundle_model
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings
from fdml.models.signals import BlockUpdate, Scores
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings

RUN = RunSettings(name="first", parties=("ann", "bob"), label_party="ann")
ENCODER = Encoder(tuple(Number(name, None, 0.0, 1.0) for name in ("a", "b", "c")))
ROWS = DenseRows(np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32))


def saved(kind, party, tmp_path, width=1, run=RUN):
    """A model with random parameters, and its bundle after a way over the disk."""
    settings = model_settings(kind, l2=0.1, optimizer="adam")
    has_bias = party == run.label_party or run.training.exchanges is not None
    model = build_model(settings, ModelSpec(3, width, has_bias, (7, "model", party)))
    random = np.random.default_rng(1)
    state = {
        name: each + 0.1 * random.normal(size=each.shape).astype(each.dtype) for name, each in model.state().items()
    }
    model.restore(state)
    card = BundleCard.of(run=run, party=party, model=settings, data=DataSettings(id="id"), alignment_hash=b"rows")
    Bundle(card=card, parameters=model.state(), encoder=ENCODER).save(tmp_path / "model")
    return model, Bundle.load(tmp_path / "model")


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
@pytest.mark.parametrize("party", ["ann", "bob"])
def test_every_kind_predicts_as_before_with_a_bias_and_without(kind, party, tmp_path):
    model, bundle = saved(kind, party, tmp_path)
    assert np.array_equal(bundle_model(bundle, 1).predict(ROWS), model.predict(ROWS))


def test_parties_of_few_exchanges_have_a_bias_each(tmp_path):
    run = RUN.model_copy(update={"training": RUN.training.model_copy(update={"exchanges": 2})})
    model, bundle = saved("linear", "bob", tmp_path, run=run)
    assert np.array_equal(bundle_model(bundle, 1).predict(ROWS), model.predict(ROWS))


def test_several_classes_have_a_float_each_and_another_number_is_refused(tmp_path):
    model, bundle = saved("linear", "ann", tmp_path, width=3)
    assert np.array_equal(bundle_model(bundle, 3).predict(ROWS), model.predict(ROWS))
    with pytest.raises(DataError, match="has shape"):
        bundle_model(bundle, 2)


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_trees_predict_as_before(party, tmp_path):
    settings = model_settings("trees", l2=0.1, trees=20)
    model = build_model(settings, ModelSpec(3, 1, party == "ann", (7, "model", party), passes=2))
    random = np.random.default_rng(1)
    rows = DenseRows(random.normal(size=(60, 3)).astype(np.float32))
    labels, nothing = (rows.values[:, 0] > 0).astype(float), np.zeros((60, 1), np.float32)
    whole = BlockUpdate(0, np.arange(60), np.array([0, 60]), np.array([0.2]))
    for _ in range(2):
        model.learn(rows, whole, Scores(nothing, nothing, labels, np.ones(60), 2.0, objective_for("logistic", 2)))
    card = BundleCard.of(run=RUN, party=party, model=settings, data=DataSettings(id="id"), alignment_hash=b"rows")
    Bundle(card=card, parameters=model.state(), encoder=ENCODER).save(tmp_path / "model")
    bundle = Bundle.load(tmp_path / "model")
    assert model.predict(rows).any()
    assert bundle_model(bundle, 1).predict(rows).tobytes() == model.predict(rows).tobytes()
    assert bundle.parameters["text"].tobytes().startswith(b"tree\nversion="), "LightGBM's own text"
