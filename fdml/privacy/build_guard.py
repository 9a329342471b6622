"""A party's guard from its settings and the run's."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from functools import partial

from fdml.errors import SettingsError, StateCorrupt
from fdml.privacy.calibrate import releases_within, sigma_for
from fdml.privacy.differences import Differences
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Account, GradientMechanism, Ledger, Mechanism
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.few_bits import FewBits
from fdml.protocol.fixed_point import INT64, FixedPoint
from fdml.protocol.schedule import Schedule
from fdml.settings import GuardSettings
from fdml.storage.disk import Disk

NOISE_KEY = "noise-key"
"""The file of the secret that a run's noise follows from."""
_KEY_BYTES = 32
_TAIL = 6.0
"""So many sigma of noise should travel uncut; cutting more would spoil the sums."""


def mechanism_of(guard: GuardSettings, schedule: Schedule) -> Mechanism:
    """Clip and noise as set; "auto" is the least noise that keeps all of the schedule within the budget."""
    clip = math.inf if guard.clip is None else guard.clip
    if guard.noise == "none" or guard.sigma is None:
        return Mechanism("none", clip, 0.0)
    if guard.sigma != "auto":
        return Mechanism(guard.noise, clip, guard.sigma)
    if guard.epsilon is None:
        raise SettingsError('guard.sigma = "auto" needs guard.epsilon, the budget to keep to')
    spent = 0.0 if guard.training is None else row_uses(schedule) * gradients_of(guard).squared_mu
    return Mechanism(
        guard.noise, clip, sigma_for(guard.noise, guard.epsilon, guard.delta, clip, schedule.epochs, spent)
    )


def gradients_of(guard: GuardSettings) -> GradientMechanism:
    """The noise in a party's own training."""
    if guard.training is None:
        raise SettingsError("there is no [guard.training]")
    return GradientMechanism(guard.training.clip, guard.training.sigma)


def row_uses(schedule: Schedule) -> int:
    """How often each row is used in a gradient step of the whole training."""
    if schedule.passes_per_exchange:
        return schedule.local_passes + sum(schedule.passes_per_exchange)
    return schedule.passes * schedule.epochs


def guard_for(
    settings: GuardSettings,
    schedule: Schedule,
    key: NoiseKey,
    *,
    grid: FixedPoint = INT64,
    parties: int = 1,
    few_bits: FewBits | None = None,
    masks: Masks | None = None,
    blind: bool = False,
    pairwise: PairwiseMasks | None = None,
    disk: Disk | None = None,
    facts: Mapping[str, str] | None = None,
    account: Account | None = None,
) -> Guard:
    """A party's guard; with a disk, what leaves under noise or pairwise masks is stored before it leaves.

    `facts` are what stored releases belong to: those of other facts are refused, never sent again. All is counted in
    the `account`, which outlives the run, before it leaves.
    """
    mechanism = mechanism_of(settings, schedule)
    noisy = mechanism.noise != "none"
    if noisy:
        _check_noise(settings, mechanism, grid, parties, few_bits)
    gradients = None if settings.training is None else gradients_of(settings)
    perturbation = Perturbation(mechanism, key if noisy else None, grid, parties)
    return Guard(
        perturbation,
        Ledger(mechanism, gradients, settings.delta, settings.epsilon, account),
        held_out=Perturbation(NO_NOISE, None, grid, parties) if settings.evaluation == "exact" else None,
        masks=masks,
        blind=blind,
        pairwise=pairwise,
        store=None if disk is None or not (noisy or pairwise) else ReleaseStore(disk, facts, synced=noisy),
        differences=None
        if few_bits is None
        else Differences(few_bits, largest_that_leaves(mechanism, grid, parties), partial(few_bits.is_whole, schedule)),
    )


def _check_noise(
    settings: GuardSettings, mechanism: Mechanism, grid: FixedPoint, parties: int, few_bits: FewBits | None
) -> None:
    """Raise where noise does not fit the budget, the grid of predictions or their bits."""
    if settings.epsilon is not None and not releases_within(mechanism, settings.epsilon, settings.delta):
        raise SettingsError(
            f"guard.epsilon {settings.epsilon:g} does not allow a single release with clip {mechanism.clip:g} and "
            f'sigma {mechanism.sigma:g}; set guard.sigma = "auto", or see '
            f"`fdml budget plan --epsilon {settings.epsilon:g}`"
        )
    reach = mechanism.clip + _TAIL * mechanism.sigma
    if reach > grid.largest(parties):
        raise SettingsError(
            f"noise of sigma {mechanism.sigma:g} reaches {reach:g}, and {grid.bits} bits hold no more than "
            f"{grid.largest(parties):g} of each of {parties} parties; set value_bits = 64 in [training] of run.toml"
        )
    if few_bits is not None:
        raise SettingsError(
            f"guard.noise makes every prediction differ by about sigma {mechanism.sigma:g} from the last, which "
            f"{few_bits.bits} bits cannot tell; set training.value_bits = 16"
        )


def largest_that_leaves(mechanism: Mechanism, grid: FixedPoint, parties: int) -> int:
    """The largest code that a party may send."""
    most = grid.largest_code(parties)
    return most if math.isinf(mechanism.clip) else min(most, math.floor(mechanism.clip / grid.step))


def dp_sgd_for(settings: GuardSettings, key: NoiseKey) -> DpSgd | None:
    """The noise in a party's own training, if it wants any."""
    wanted = settings.training
    return None if wanted is None else DpSgd(wanted.clip, wanted.sigma, key)


def budget_remarks(settings: GuardSettings, schedule: Schedule) -> list[str]:
    """What a party should know of its budget before training."""
    mechanism = mechanism_of(settings, schedule)
    if mechanism.noise == "none":
        return []
    remarks = [f"predictions leave clipped to {mechanism.clip:g} with {mechanism.noise} noise of {mechanism.sigma:.4g}"]
    if settings.epsilon is not None:
        allowed = releases_within(mechanism, settings.epsilon, settings.delta)
        if allowed < schedule.epochs:
            remarks.append(
                f"the budget epsilon {settings.epsilon:g} allows {allowed} of {schedule.epochs} releases of each row: "
                f"training will end early"
            )
    return remarks


def stored_key(disk: Disk, name: str = NOISE_KEY) -> NoiseKey:
    """A secret of this party: drawn once, stored before it is used."""
    known = disk.read(name)
    if known is None:
        known = secrets.token_bytes(_KEY_BYTES)
        disk.replace(name, known)
    if len(known) != _KEY_BYTES:
        raise StateCorrupt(
            f"the file {name!r} is damaged: it has {len(known)} bytes instead of {_KEY_BYTES}; bring it back from a "
            f"backup, or remove it and give the run a new name at every side"
        )
    return NoiseKey(known)


def seeded_key(seed: int, party: str) -> NoiseKey:
    """A noise key for trying things out in one process: it can be repeated, and is no secret."""
    return NoiseKey(hashlib.blake2b(f"{seed} {party}".encode(), digest_size=_KEY_BYTES).digest())
