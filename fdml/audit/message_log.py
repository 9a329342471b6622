"""Messages of a run as they come by, and what they say without their masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fdml.audit.differences import whole_pushes
from fdml.audit.recording import GroundTruth, Recording
from fdml.models.objective import Objective
from fdml.privacy.ledger import Mechanism
from fdml.privacy.masks import Masks, Purpose
from fdml.privacy.pairwise_masks import PAIRWISE_ID, PairwiseMasks
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import Codes, decode
from fdml.protocol.messages import Finished, Gradient, HeldOutPredictions, Push, SealedMetrics
from fdml.protocol.row_pieces import complete, number_of
from fdml.protocol.schedule import Schedule
from fdml.settings import ModelSettings, RunSettings, TrainingSettings


class MessageLog:
    """Takes every message of a run, then becomes a recording. A push that comes again is kept as it came first."""

    def __init__(self, run: RunSettings, masks: Masks, pairwise: Mapping[str, PairwiseMasks] | None = None) -> None:
        """`pairwise` are the masks of every party, where the run has them."""
        self._run = run
        self._masks = masks
        self._pairwise = pairwise or {}
        self._pushes: dict[str, dict[int, Push]] = {party: {} for party in run.parties}
        self._held_out: dict[str, dict[int, HeldOutPredictions]] = {party: {} for party in run.parties}
        """By epoch; those that came in pieces once all have come."""
        self._pieces: dict[tuple[str, int], dict[int, HeldOutPredictions]] = {}
        self._gradients: dict[int, Gradient] = {}
        self._metrics: dict[int, SealedMetrics] = {}
        self._finished: dict[str, Finished] = {}
        self._all: list[tuple[str, Push | HeldOutPredictions | Gradient]] = []

    def take(self, sender: str, message: object) -> None:
        """Keep a message if it carries predictions, gradients, metrics or something of a model."""
        match message:
            case SealedMetrics(epoch):
                self._metrics[epoch] = message
                return
            case Finished():
                self._finished[sender] = message
                return
            case Push():
                self._pushes[sender].setdefault(message.step, message)
            case HeldOutPredictions():
                self._take_held_out(sender, message)
            case Gradient():
                self._gradients.setdefault(message.step, message)
            case _:
                return
        self._all.append((sender, message))

    def _take_held_out(self, sender: str, message: HeldOutPredictions) -> None:
        pieces = self._pieces.setdefault((sender, message.epoch), {})
        if number_of(message) in pieces:
            return
        whole = complete(pieces, message)
        if whole is not None:
            values = np.concatenate([each.release.values.reshape(-1) for each in whole])
            release = message.release if len(whole) == 1 else replace(message.release, values=values)
            self._held_out[sender][message.epoch] = HeldOutPredictions(message.epoch, release)

    def recording(
        self,
        schedule: Schedule,
        objective: Objective,
        echo: float,
        mechanisms: Mapping[str, Mechanism],
        truth: GroundTruth,
        model_settings: Mapping[str, ModelSettings],
        training: TrainingSettings | None = None,
    ) -> Recording:
        """All that was taken, with what the owners know beside it; `training` as it was agreed over the run's rows."""
        label_party = self._run.label_party
        agreed = agreed_training(training or self._run.training, schedule.rows, len(self._run.parties))
        return Recording(
            run=self._run if training is None else self._run.model_copy(update={"training": training}),
            schedule=schedule,
            objective=objective,
            echo=echo,
            pushes=self._pushes,
            plain={
                party: {step: decode(codes).reshape(-1, objective.width) for step, codes in pushes.items()}
                for party, pushes in self._plain(schedule, agreed.lookahead).items()
            },
            held_out=self._held_out,
            gradients={
                step: decode(self._opened("gradient", label_party, step, message)).reshape(-1, objective.width)
                for step, message in self._gradients.items()
            },
            mechanisms=mechanisms,
            truth=truth,
            repeated=tuple(self._all),
            metrics=self._metrics,
            finished=self._finished,
            model_settings=model_settings,
        )

    def _plain(self, schedule: Schedule, lookahead: int) -> Mapping[str, Mapping[int, Codes]]:
        """What the server has of each party with each push, without masks."""
        opened = {
            party: {
                step: replace(push.release, values=self._opened("push", party, step, push))
                for step, push in pushes.items()
            }
            for party, pushes in self._pushes.items()
        }
        few = few_bits_of(self._run)
        if few is not None:
            return whole_pushes(few, schedule, lookahead, opened)
        return {party: {step: each.values for step, each in pushes.items()} for party, pushes in opened.items()}

    def _opened(self, purpose: Purpose, party: str, number: int, message: Push | Gradient) -> Codes:
        codes, mask_id = message.release.values, message.release.mask_id
        if mask_id == PAIRWISE_ID:
            codes = self._pairwise[party].remove_own(purpose, number, mask_id, codes)
        elif mask_id:
            codes = self._masks.remove_one(purpose, party, number, mask_id, codes)
        return codes


def any_masks(secret: bytes, parties: Sequence[str]) -> Masks:
    """Masks only to be taken off, of whatever party and start."""
    return Masks(secret, parties, parties[0], 0)
