"""Messages of a run as they come by, and what they say without their masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording, Truth
from fdml.data.schedule import Schedule
from fdml.exchange.fixed_point import decode
from fdml.exchange.messages import Gradient, Push, Trial
from fdml.privacy.ledger import Mechanism
from fdml.privacy.masks import Masks, Purpose
from fdml.settings import ModelSettings, RunSettings

Values = NDArray[np.float64]


class Tape:
    """Takes every message of a run, then becomes a recording. A push that comes again is kept as it came first."""

    def __init__(self, run: RunSettings, masks: Masks) -> None:
        self._run = run
        self._masks = masks
        self._pushes: dict[str, dict[int, Push]] = {party: {} for party in run.parties}
        self._trials: dict[str, dict[int, Trial]] = {party: {} for party in run.parties}
        self._gradients: dict[int, Gradient] = {}
        self._all: list[tuple[str, Push | Trial | Gradient]] = []

    def take(self, sender: str, message: object) -> None:
        """Keep a message if it carries predictions or gradients."""
        match message:
            case Push():
                self._pushes[sender].setdefault(message.step, message)
            case Trial():
                self._trials[sender].setdefault(message.epoch, message)
            case Gradient():
                self._gradients.setdefault(message.step, message)
            case _:
                return
        self._all.append((sender, message))

    def recording(
        self,
        schedule: Schedule,
        outputs: int,
        echo: float,
        mechanisms: Mapping[str, Mechanism],
        truth: Truth,
        model_settings: Mapping[str, ModelSettings],
    ) -> Recording:
        """All that was taken, with what the owners know beside it."""
        lead = self._run.label_party
        return Recording(
            run=self._run,
            schedule=schedule,
            outputs=outputs,
            echo=echo,
            pushes=self._pushes,
            plain={
                party: {step: self._opened("push", party, step, push, outputs) for step, push in pushes.items()}
                for party, pushes in self._pushes.items()
            },
            trials=self._trials,
            gradients={
                step: self._opened("gradient", lead, step, message, outputs)
                for step, message in self._gradients.items()
            },
            mechanisms=mechanisms,
            truth=truth,
            repeated=tuple(self._all),
            model_settings=model_settings,
        )

    def _opened(self, purpose: Purpose, party: str, number: int, message: Push | Gradient, outputs: int) -> Values:
        codes, stamp = message.release.values, message.release.stamp
        if stamp:
            codes = self._masks.take_off_one(purpose, party, number, stamp, codes)
        return decode(codes).reshape(-1, outputs)


def any_masks(secret: bytes, parties: Sequence[str]) -> Masks:
    """Masks only to be taken off, of whatever party and start."""
    return Masks(secret, parties, parties[0], 0)
