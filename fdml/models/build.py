"""A party's model from its settings."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fdml.errors import MissingExtra, SettingsError
from fdml.models.compiled import Model, build_compiled
from fdml.privacy.dp_sgd import DpSgd
from fdml.settings import ModelSettings

ModuleFactory = Callable[[int, int], Any]
"""Called with (inputs, outputs), returns a torch.nn.Module."""


def build_model(
    settings: ModelSettings,
    inputs: int,
    outputs: int,
    *,
    bias: bool,
    key: tuple[int | str, ...],
    module: ModuleFactory | None = None,
    private: DpSgd | None = None,
) -> Model:
    """A model of any kind; its starting parameters depend on the key alone.

    `private` makes its steps differentially private; not every kind and rule can.
    """
    if settings.kind != "torch":
        return build_compiled(settings, inputs, outputs, bias=bias, key=key, private=private)
    try:
        from fdml.models.torch_model import TorchModel, make_module  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("a torch party needs PyTorch; install it with `pip install fdml[torch]`") from None
    factory = module or find_factory(settings.module or "")
    return TorchModel(make_module(factory, inputs, outputs, key), settings, outputs, inputs, private)


def find_factory(name: str) -> ModuleFactory:
    """The function that party.toml names as "package.module:function"; the working folder is looked in too."""
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise SettingsError(f'model.module is {name!r}; write "package.module:function"')
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found: ModuleFactory = getattr(importlib.import_module(module_name), function)
    except ImportError as error:
        raise SettingsError(f"model.module {name!r} cannot be imported: {error}") from None
    except AttributeError:
        raise SettingsError(f"model.module {name!r}: there is no {function!r} in {module_name}") from None
    return found
