"""The kinds of models. To add one: its folder, and its entry here; or `register` it from outside."""

from __future__ import annotations

from typing import Any, cast, get_args

from fdml.data.rows import NativeFeatures, RowEncoding
from fdml.errors import SettingsError
from fdml.models.averaging import AveragedModel, WeightedModel
from fdml.models.column_groups import GroupedModel, features_by_group, grouped_features
from fdml.models.compiled import CompiledModel
from fdml.models.fm.kind import FM
from fdml.models.joint_model import JointModel
from fdml.models.kind import ModelKind, ModelSpec, l2_of_vectors
from fdml.models.linear.kind import LINEAR
from fdml.models.mlp.kind import MLP
from fdml.models.model import Model
from fdml.models.torch.kind import TORCH
from fdml.models.trees.kind import TREES
from fdml.models.trees_mlp.kind import TREES_MLP
from fdml.privacy.dp_sgd import WAY_OUT
from fdml.settings import ModelSettings

_KINDS: dict[str, ModelKind[Any]] = {kind.name: kind for kind in (LINEAR, FM, MLP, TORCH, TREES, TREES_MLP)}
DEFAULT_KIND = LINEAR.name


def register(kind: ModelKind[Any]) -> None:
    """Make a kind known by its name to settings, estimators and commands; a name is taken once."""
    if _KINDS.get(kind.name, kind) is not kind:
        raise SettingsError(f"there is a model kind {kind.name!r} already; choose another name")
    if kind.encoding not in get_args(RowEncoding):
        raise SettingsError(
            f"model kind {kind.name!r} wants {kind.encoding!r} rows; encoders make {', '.join(get_args(RowEncoding))}"
        )
    if kind.settings.model_fields["kind"].default != kind.name:
        raise SettingsError(f'the settings of model kind {kind.name!r} need the field `kind: ... = "{kind.name}"`')
    _KINDS[kind.name] = kind


def kinds() -> tuple[ModelKind[Any], ...]:
    """All that are known."""
    return tuple(_KINDS.values())


def ready_kinds() -> list[str]:
    """The names of those that can be built without settings."""
    return [kind.name for kind in kinds() if kind.has_defaults]


def compiled_kinds() -> list[str]:
    """The names of those whose passes are compiled kernels."""
    return [LINEAR.name, FM.name, MLP.name]


def kind_named(name: str) -> ModelKind[Any]:
    """The kind of this name."""
    if name not in _KINDS:
        raise SettingsError(f"there is no model kind {name!r}; there are {', '.join(_KINDS)}")
    return _KINDS[name]


def model_settings(kind: str = DEFAULT_KIND, **values: Any) -> ModelSettings:
    """The settings of a kind; a key that does not belong to it is refused."""
    chosen: ModelSettings = kind_named(kind).settings(**values)
    return chosen


def resolved_model(
    settings: ModelSettings,
    rows: int,
    entries: float = 0.0,
    *,
    private: bool = False,
    vectors: bool = False,
    summed: bool = True,
) -> ModelSettings:
    """The settings with every "auto" replaced by the rule of the kind; `private` where [guard.training] adds noise.

    `entries` is how many features other than zero a row has on average; with noise it is not looked at. `vectors` says
    whether the parties' vectors interact: then every kind has weights enough to learn single rows by heart. `summed`
    says whether the score is the sum of predictions: with other joint functions, and in shards, a kind may have another
    optimizer.
    """
    kind = kind_named(settings.kind)
    found: dict[str, Any] = {}
    if settings.optimizer == "auto" and kind.optimizer is not None:
        is_usual = summed and settings.shards == 1
        usual = kind.optimizer if is_usual else kind.optimizer_elsewhere or kind.optimizer
        found["optimizer"] = "sgd" if private else usual
    if settings.l2 == "auto":
        found["l2"] = l2_of_vectors(rows) if vectors else kind.default_l2(rows, 0.0 if private else entries)
    return settings.model_copy(update=found) if found else settings


def encoding_of(settings: ModelSettings) -> RowEncoding:
    """The rows that a model with these settings wants from a party's encoder."""
    return kind_named(settings.kind).encoding


def with_native(settings: ModelSettings, found: NativeFeatures) -> ModelSettings:
    """The settings with what the encoder knows of features, where the kind or column groups want such."""
    known: dict[str, Any] = {"categories": found.categories, "native_from": found.first}
    if settings.column_groups and (found.columns or not settings.group_features):
        known["group_features"] = grouped_features(settings, found.columns)
    taken = {name: value for name, value in known.items() if value and name in type(settings).model_fields}
    return settings.model_copy(update=taken) if taken else settings


def build_model(settings: ModelSettings, spec: ModelSpec) -> Model:
    """A model before training."""
    kind = kind_named(settings.kind)
    private, vectors, summed = spec.dp_sgd is not None, bool(spec.joint.factors), spec.joint.is_identity
    resolved = resolved_model(settings, spec.rows, private=private, vectors=vectors, summed=summed)
    if spec.dp_sgd is not None:
        _check_dp_sgd(resolved, kind)
    model: Model = _grouped(kind, resolved, spec) if settings.column_groups else kind.build(resolved, spec)
    if resolved.average is not None and not kind.learns_from_all_rows:  # such a kind averages what can be averaged
        model = AveragedModel(cast(WeightedModel, model), resolved.average)
    return model if spec.joint.is_identity else JointModel(model, spec.joint)


def _grouped(kind: ModelKind[Any], settings: ModelSettings, spec: ModelSpec) -> Model:
    """A model of this kind for each group of columns; the bias is that of the first."""
    features = features_by_group(settings, spec.inputs)
    specs = [
        spec._replace(inputs=len(each), bias=spec.bias and not number, key=(*spec.key, "column group", number))
        for number, each in enumerate(features)
    ]
    models = [kind.build(settings, each) for each in specs]
    compiled = [model for model in models if isinstance(model, CompiledModel)]
    if len(compiled) != len(models):
        raise SettingsError(f"a model of kind {kind.name!r} has no column groups; leave model.column_groups out")
    return GroupedModel(compiled, features)


def _check_dp_sgd(settings: ModelSettings, kind: ModelKind[Any]) -> None:
    """Raise unless a model with these settings can be trained with DP-SGD."""
    if not kind.supports_dp_sgd:
        able = [each.name for each in kinds() if each.supports_dp_sgd]
        raise SettingsError(
            f"model.kind is {kind.name!r}, and [guard.training] knows no way to clip it; "
            f"take {', '.join(able[:-1])} or {able[-1]}, {WAY_OUT}"
        )
    if settings.update_rule != "sgd":
        raise SettingsError(
            f"model.optimizer is {settings.optimizer!r}, and [guard.training] goes with 'sgd' alone; "
            f'set model.optimizer = "sgd", {WAY_OUT}'
        )
