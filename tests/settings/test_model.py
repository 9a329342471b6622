"""`[model]` as far as all kinds have it."""

import pytest

from fdml.errors import SettingsError
from fdml.models.registry import model_settings


def test_columns_are_put_into_groups_by_name():
    settings = model_settings("linear", column_groups={"web": ["clicks", "visits"], "card": ["spent"]})
    assert settings.column_groups == {"web": ("clicks", "visits"), "card": ("spent",)}
    assert settings.group_features == ()


@pytest.mark.parametrize("wrong", [{"web": []}, {"web": [1]}, ["web"]])
def test_what_is_no_group_of_columns_is_refused(wrong):
    with pytest.raises(SettingsError, match="column_groups"):
        model_settings("linear", column_groups=wrong)


@pytest.mark.parametrize("name", ["l2", "optimizer"])
def test_a_rule_that_nothing_has_replaced_is_no_value(name):
    settings = model_settings("linear")
    with pytest.raises(SettingsError, match=f'{name} is "auto" and no rule has replaced it yet'):
        getattr(settings, {"l2": "weight_decay", "optimizer": "update_rule"}[name])


def test_settings_name_the_kind_they_are_of():
    assert type(model_settings("mlp")).subject() == " of model kind 'mlp'"
