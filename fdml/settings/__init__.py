"""Settings as frozen, checked values, one file for each part. Those of a run and of a party can be had from here."""

from fdml.settings.model import ModelSettings
from fdml.settings.privacy import PrivacySettings
from fdml.settings.run import (
    AgreedTraining,
    GradientGuardSettings,
    GuardSettings,
    RunSettings,
    TrainingSettings,
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
    "evaluation_schedule",
    "run_hash",
]
