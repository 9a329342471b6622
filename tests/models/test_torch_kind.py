import json

import numpy as np
import pytest
import torch

from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from fdml.models.torch.kind import TORCH, find_factory
from tests.models.random_updates import build


@pytest.mark.parametrize("name", ["", "module", ":function", "module:"])
def test_a_factory_is_named_by_module_and_function(name):
    with pytest.raises(SettingsError, match=r"model.module is .*; write \"package.module:function\""):
        find_factory(name)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(
        SettingsError, match=r"'no_such_module:net' cannot be imported: No module named 'no_such_module'"
    ):
        find_factory("no_such_module:net")


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(SettingsError, match=r"there is no 'net' in json"):
        find_factory("json:net")


def test_the_working_folder_is_looked_in(tmp_path, monkeypatch):
    (tmp_path / "my_party_net.py").write_text("def net(inputs, width):\n    return inputs + width\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert find_factory("my_party_net:net")(2, 3) == 5


def test_a_torch_modules_starting_parameters_follow_from_the_key_and_torchs_own_generator_is_left_alone():
    settings = model_settings("torch", module=torch.nn.Linear)
    before = torch.get_rng_state()
    first, second, other = (build(settings, 3, 2, key=key).state() for key in ((7, "a"), (7, "a"), (7, "b")))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first["module/weight"], second["module/weight"])
    assert not np.array_equal(first["module/weight"], other["module/weight"])


def test_a_function_given_in_python_is_the_setting_that_estimators_fill():
    assert TORCH.function_setting in TORCH.settings.model_fields
    assert not TORCH.has_defaults


class Factory:
    """A factory that is an object."""

    def __call__(self, inputs, width):
        return torch.nn.Linear(inputs, width)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("my_net:build", "my_net:build"),
        (torch.nn.Linear, "torch.nn.modules.linear:Linear"),
        (Factory(), "tests.models.test_torch_kind:Factory"),
    ],
)
def test_a_module_is_written_by_its_name_wherever_it_was_given(module, name):
    """Settings are compared and stored as JSON; a function given in Python has none of its own."""
    assert json.loads(model_settings("torch", module=module).model_dump_json())["module"] == name
