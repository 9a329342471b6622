"""All attacks by their short names, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fdml.audit import canaries as wire
from fdml.audit import dp_claims as claims
from fdml.audit import feature_reconstruction as features
from fdml.audit import label_inference as labels
from fdml.audit import label_lives as lives
from fdml.audit import mask_checks as masking
from fdml.audit import membership as serving
from fdml.audit import metric_inference as metrics
from fdml.audit import neighbours as files
from fdml.audit import retraining
from fdml.audit import single_parties as staleness
from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult
from fdml.errors import SettingsError

ATTACKS: dict[str, Attack] = dict(
    sorted(
        {
            **labels.attacks,
            **lives.attacks,
            **features.attacks,
            **masking.attacks,
            **claims.attacks,
            **files.attacks,
            **wire.attacks,
            **serving.attacks,
            **metrics.attacks,
            **retraining.attacks,
            **staleness.attacks,
        }.items(),
        key=lambda each: int(each[0].removeprefix("A")),
    )
)


def chosen(only: str | None) -> list[str]:
    """The names in a list like "A4,A5", in order; all of them without a list."""
    names = list(ATTACKS) if only is None else [name.strip().upper() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        raise SettingsError(f"there is no attack {unknown[0]!r}; there are {', '.join(ATTACKS)}")
    return [name for name in ATTACKS if name in names]


def results(recording: Recording, names: Sequence[str]) -> Iterator[AttackResult]:
    """What each attack comes to, one after the other."""
    for name in names:
        yield from ATTACKS[name](recording)
