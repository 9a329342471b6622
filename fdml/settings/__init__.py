"""Settings as frozen, checked values, one file for each part. Those of a run and of a party can be had from here."""

from fdml.settings.run import (
    AgreedTraining,
    GradientGuardSettings,
    GuardSettings,
    ModelSettings,
    PrivacySettings,
    RunSettings,
    TrainingSettings,
    check_few_bits,
    evaluation_schedule,
    run_hash,
)

__all__ = [
    "AgreedTraining",
    "GradientGuardSettings",
    "GuardSettings",
    "ModelSettings",
    "PrivacySettings",
    "RunSettings",
    "TrainingSettings",
    "check_few_bits",
    "evaluation_schedule",
    "run_hash",
]
