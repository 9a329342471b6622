"""What every kind of model must pass."""

import re

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fdml.errors import SettingsError
from fdml.models.learning_rate import RateInputs
from fdml.models.registry import kind_named, kinds
from fdml.settings import ModelSettings
from tests.models.random_updates import build, random_features, settings_of, stored

GIVEN = RateInputs(curvature=0.25, parties=2, inputs=20, square_norm=10.0)


@pytest.fixture(params=kinds(), ids=lambda kind: kind.name)
def kind(request):
    return request.param


def usual(kind, **values):
    return settings_of(kind.name, module=torch.nn.Linear, **values)


def test_it_is_found_by_its_name(kind):
    assert kind_named(kind.name) is kind


def test_names_and_display_names_are_distinct():
    assert len({kind.name for kind in kinds()}) == len({kind.display_name for kind in kinds()}) == len(kinds())


def test_its_settings_are_frozen_say_their_kind_and_have_what_all_models_have(kind):
    settings = usual(kind)
    assert isinstance(settings, kind.settings)
    assert settings.kind == kind.name
    assert set(ModelSettings.model_fields) <= set(kind.settings.model_fields)
    with pytest.raises(ValidationError):
        settings.l2 = 3.0


def test_every_setting_of_its_own_has_a_sentence(kind):
    own = kind.settings.model_fields.keys() - ModelSettings.model_fields.keys()
    assert kind.settings.__doc__
    assert own or kind.has_defaults


def test_a_key_of_no_kind_is_refused_with_its_name_and_the_keys_it_takes(kind):
    with pytest.raises(SettingsError, match=rf"'zzz' of model kind '{re.escape(kind.name)}'; known here: kind, "):
        kind.settings(**usual(kind).model_dump(), zzz=1)


def test_another_kinds_name_is_no_value_of_its_field(kind):
    with pytest.raises(SettingsError, match="kind"):
        kind.settings(**{**usual(kind).model_dump(), "kind": "other"})


def test_it_builds_a_model_of_the_asked_width(kind):
    rows = stored(random_features(np.random.default_rng(1)), "dense")
    assert build(usual(kind), 7, 3).predict(rows).shape == (23, 3)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam"])
def test_its_default_step_is_positive_and_no_longer_for_longer_rows(kind, optimizer):
    settings = usual(kind, optimizer=optimizer)
    rate = kind.default_rate(settings, GIVEN)
    assert 0.0 < kind.default_rate(settings, GIVEN._replace(square_norm=40.0)) <= rate
    assert 0.0 < kind.default_rate(settings, GIVEN._replace(parties=8)) <= rate
