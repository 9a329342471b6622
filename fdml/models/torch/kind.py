"""Any torch.nn.Module as a local model. PyTorch is an extra and is imported when the first model is built."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import field_serializer

from fdml.errors import SettingsError
from fdml.extras import need
from fdml.models.kind import ModelKind, ModelSpec, l2_of_nets
from fdml.models.model import Model
from fdml.settings import ModelSettings

ModuleFactory = Callable[[int, int], Any]
"""Called with (inputs, width), returns a torch.nn.Module."""


class TorchSettings(ModelSettings):
    """Where its module comes from."""

    kind: Literal["torch"] = "torch"
    module: str | ModuleFactory
    """"package.module:function", or in Python the function itself: called with (inputs, width), it returns a
    torch.nn.Module."""

    @field_serializer("module", when_used="json")
    def _module_name(self, module: str | ModuleFactory) -> str:
        """A function is written by its name, as party.toml would name it."""
        if isinstance(module, str):
            return module
        named = module if hasattr(module, "__qualname__") else type(module)
        return f"{named.__module__}:{named.__qualname__}"


def build(settings: TorchSettings, spec: ModelSpec) -> Model:
    """The module's starting parameters are drawn with torch's generator seeded from the key."""
    need("torch", "a torch party")
    from fdml.models.torch.model import TorchModel, make_module  # noqa: PLC0415 (an extra)

    factory = find_factory(settings.module) if isinstance(settings.module, str) else settings.module
    return TorchModel(make_module(factory, spec), settings, spec)


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


TORCH = ModelKind(
    "torch", "torch", TorchSettings, build, default_l2=l2_of_nets, supports_dp_sgd=True, function_setting="module"
)
