"""A party's answer to how many rows are shared: by its limits, by `--yes`, or by a person; stored once it is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from fdml.align.consent import objection, summary_text
from fdml.errors import SettingsError
from fdml.party.settings import AlignSettings
from fdml.protocol.alignment_messages import LONGEST_REASON, Consent, RowSummary
from fdml.settings import RunSettings
from fdml.storage.disk import Disk

_NAME = "consent"
Ask = Callable[[str], bool]
"""Puts a question to a person; True is yes."""


@dataclass(frozen=True)
class ConsentDecision:
    """How one party decides. Its limits hold whatever else is said; what it consented to once is not asked again.

    Every generation of an alignment is consented to by itself, as its counts have its number.
    """

    disk: Disk
    run: RunSettings
    party: str
    limits: AlignSettings
    yes: bool = False
    """Consent to any counts within the limits."""
    ask: Ask | None = None
    """None where there is no person to ask."""

    def __call__(self, summary: RowSummary) -> Consent:
        """The party's answer; durable before it is given."""
        against = objection(
            summary, self.run, self.party, max_rows=self.limits.max_rows, min_shared=self.limits.min_shared
        )
        if against:
            return Consent(False, against[:LONGEST_REASON])
        counts = json.dumps(asdict(summary)).encode()
        if self.disk.read(_NAME) != counts:
            if not self._agrees(summary):
                return Consent(False, "its operator said no")
            self.disk.replace(_NAME, counts)
        return Consent(True)

    def check_possible(self) -> None:
        """Raise now, not after the others have waited, if nobody could answer."""
        if self.ask is None and not self._is_settled and self.disk.read(_NAME) is None:
            raise self._nobody()

    def _nobody(self) -> SettingsError:
        return SettingsError(
            f"finding the shared rows tells the other parties which of their ids {self.party!r} holds, and nobody "
            f"has agreed to that: set align.max_rows in party.toml, the most rows that another party may bring; "
            f"or add --yes; or run this in a terminal, where it asks"
        )

    @property
    def _is_settled(self) -> bool:
        """Whether no person needs to be asked."""
        return self.yes or self.limits.max_rows is not None

    def _agrees(self, summary: RowSummary) -> bool:
        if self._is_settled:
            return True
        if self.ask is None:
            raise self._nobody()
        return self.ask(
            f"{summary_text(summary, self.run)}. Tell all parties which of their rows are shared? Each then knows "
            f"which of its own ids all others hold"
        )
