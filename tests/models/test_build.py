import numpy as np
import pytest
import torch

from fdml.errors import SettingsError
from fdml.models.build import build_model, find_factory
from fdml.models.compiled import CompiledModel
from fdml.settings import ModelSettings


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
def test_the_kind_decides_what_is_built(kind):
    model = build_model(ModelSettings(kind=kind, precision="double"), 3, 2, bias=True, key=(7,))
    assert isinstance(model, CompiledModel)
    assert model.dtype == np.float64


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
    (tmp_path / "my_party_net.py").write_text("def net(inputs, outputs):\n    return inputs + outputs\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert find_factory("my_party_net:net")(2, 3) == 5


def test_a_torch_modules_starting_parameters_follow_from_the_key_and_torchs_own_generator_is_left_alone():
    settings = ModelSettings(kind="torch", module="given in Python")
    before = torch.get_rng_state()
    first, second, other = (
        build_model(settings, 3, 2, bias=True, key=key, module=torch.nn.Linear).state()
        for key in ((7, "a"), (7, "a"), (7, "b"))
    )
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first["module/weight"], second["module/weight"])
    assert not np.array_equal(first["module/weight"], other["module/weight"])
