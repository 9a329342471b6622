"""Whether a party's model can be trained in parts, be they shards of rows or groups of columns."""

from __future__ import annotations

from fdml.errors import SettingsError
from fdml.models.registry import kind_named, kinds
from fdml.settings.choices import PAIRWISE, LossName


def check_divisible(what: str, way_out: str, kind: str, joint: str, loss: LossName, *, noisy: bool) -> None:
    """Raise unless parts of such a model can be added up; `what` is the setting that asks for parts.

    `noisy` where [guard.training] adds noise.
    """
    if not kind_named(kind).added_shards:
        able = [each.name for each in kinds() if each.added_shards]
        raise SettingsError(
            f"{what}, and a model of kind {kind!r} is trained in one piece; "
            f"take {', '.join(able[:-1])} or {able[-1]}, or {way_out}"
        )
    if joint != "sum":
        raise SettingsError(f'{what}, which goes with joint = "sum" alone; the run has {joint!r}: {way_out}')
    if loss == PAIRWISE:
        raise SettingsError(f"{what}, and the loss {loss!r} compares rows of all parts; {way_out}")
    if noisy:
        raise SettingsError(f"{what}, and [guard.training] adds its noise to whole batches; leave it out, or {way_out}")
