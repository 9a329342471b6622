"""What the parties of a run show each other and the server: `[privacy]` of run.toml."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat

from fdml.errors import SettingsError
from fdml.settings.choices import Auto, Bits
from fdml.settings.file import Settings


class PrivacySettings(Settings):
    """What the parties show each other and the server."""

    labels: Literal["shared", "private"] = "shared"
    """Shared labels reach the other parties, sealed so that the server cannot read them. Private ones stay at the
    label party, which returns gradients."""
    label_epsilon: PositiveFloat | Literal["off"] = 2.0
    """Of private labels: each is randomised once before it is used. Off returns gradients that disclose every label."""
    server: Literal["plain", "blind"] = "plain"
    """A blind server sees predictions under masks only; at staleness 0 not even a party can take off another's."""


def check_few_bits(value_bits: Bits | Auto, staleness: int, privacy: PrivacySettings) -> None:
    """Raise where differences of few bits cannot be summed under masks: that takes totals that all parties have."""
    have_totals = staleness == 0 and privacy.labels == "shared"
    if value_bits != "auto" and value_bits < 16 and privacy.server == "blind" and not have_totals:
        raise SettingsError(
            f'value_bits = {value_bits} with server = "blind" takes staleness = 0 and labels = "shared", as '
            f"all parties must have the same totals; set value_bits = 16"
        )
