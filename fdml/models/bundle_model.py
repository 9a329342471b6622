"""The model in a bundle, ready to predict the rows that its encoder makes."""

from __future__ import annotations

from typing import Any

from fdml.errors import SettingsError
from fdml.models.bundle import Bundle
from fdml.models.head.head import Head
from fdml.models.joint import JointFunction
from fdml.models.joint_model import joint_state
from fdml.models.kind import ModelSpec
from fdml.models.model import Model
from fdml.models.objective import joint_for
from fdml.models.registry import build_model, model_settings
from fdml.settings import ModelSettings
from fdml.settings.joint import JointSettings, scores_in


def bundle_joint(bundle: Bundle) -> JointSettings:
    """The joint function that a bundle's model was trained for; a sum where an older fdml wrote it."""
    training: dict[str, Any] = bundle.card.settings.run["training"]
    return JointSettings(**{name: training[name] for name in JointSettings.model_fields if name in training})


def kept_settings(bundle: Bundle, **values: Any) -> ModelSettings:
    """The settings of the model in a bundle, but for `values`: where weights were averaged, it is at the average."""
    return model_settings(**{**bundle.card.settings.model, "average": None, **values})


def bundle_model(bundle: Bundle, width: int) -> Model:
    """The model of a bundle, whose predictions are `width` floats a row; raises if it was made for another width."""
    card, joint = bundle.card, bundle_joint(bundle)
    run: dict[str, Any] = card.settings.run
    has_bias = card.party == run["label_party"] or run["training"]["exchanges"] is not None
    spec = ModelSpec(
        inputs=len(bundle.encoder.names),
        width=width,
        bias=has_bias,
        key=("bundle", card.version),
        joint=joint_for(joint, scores_in(joint, width)),
    )
    model = build_model(kept_settings(bundle), spec)
    model.restore(bundle.parameters)
    return model


def joint_in(bundle: Bundle) -> JointFunction:
    """What becomes of the sum of the predictions of a bundle's run; a head as it was trained."""
    joint = bundle_joint(bundle)
    found = joint_for(joint, scores_in(joint, bundle.card.width or 1))
    if isinstance(found, Head):
        found.restore(joint_state(bundle.parameters))
    return found


def check_same_joint(bundle: Bundle, training: JointSettings) -> None:
    """Raise unless a bundle's model was trained for the joint function of a run."""
    theirs = bundle_joint(bundle)
    for name in ("joint", "vector", "head_units"):
        ours, other = getattr(training, name), getattr(theirs, name)
        if ours != other and (name != "head_units" or training.joint == "head"):
            setting = "joint_width" if name == "vector" else name
            raise SettingsError(
                f"training.{setting} is {ours!r}, and version {bundle.card.version[:8]} (run {bundle.card.run}) was "
                f"trained with {other!r}, so its predictions mean something else; set training.{setting} = {other!r}, "
                f"or leave evaluation.against and `from` out"
            )
