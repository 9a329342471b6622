"""Attacks on the claim of differential privacy: does the noise hide what the ledger says it hides?

Four ways in which a claim can be wrong: the mechanism hides less than one
release is said to cost, more releases travelled than were counted, what
travelled has less noise than is said, or something else tells the same values
without the noise.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from fdml.audit.canaries import messages_of
from fdml.audit.label_inference import pushed_sums, scores_behind
from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.privacy.empirical import lower_bound
from fdml.privacy.guard import group_of
from fdml.privacy.ledger import DIRECT, HELD_OUT, Ledger, Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Gradient, Push
from fdml.settings import GuardSettings

Values = NDArray[np.float64]

_ONE = "DP claim: one release"
_LEDGER = "DP claim: all releases"
_TRAVELLED = "DP claim: noise that travelled"
_AROUND = "DP claim: ways around the noise"
_DELTA: float = GuardSettings.model_fields["delta"].default
_DRAWS = 200_000
_CONFIDENCE = 0.9999
"""So that of 10,000 audits of honest claims at most one says otherwise."""
_NEAR = 0.01
"""By how much, as a share, two figures that should be equal may differ."""
_SIGMAS = 4.0
_TELLING = 5.0
"""Scores up to this size follow from gradients to many digits."""


def check_claims(recording: Recording, delta: float = _DELTA, draws: int = _DRAWS) -> list[AttackResult]:
    """A10: every party's claim, one release and all of them."""
    results: list[AttackResult] = []
    for party in recording.run.parties:
        mechanism = recording.mechanisms.get(party)
        if mechanism is None or mechanism.noise == "none":
            reason = "the party adds no noise: its epsilon is infinite, and nothing is claimed"
            results.append(not_applicable("A10", _ONE, _view(party), reason))
            continue
        results += [
            _one_release(recording, party, mechanism, delta, draws),
            _all_releases(recording, party, mechanism, delta),
            _noise_that_travelled(recording, party, mechanism),
        ]
        if party == recording.run.label_party and recording.gradients:
            results.append(_gradients_around(recording, party, mechanism))
    return results


def _one_release(recording: Recording, party: str, mechanism: Mechanism, delta: float, draws: int) -> AttackResult:
    """What an attacker can tell of one release, at least, and what it is said to cost."""
    perturbation, numbers = Perturbation(mechanism, NoiseKey(secrets.token_bytes(32))), count()

    def draw(value: float, many: int) -> Values:
        predictions = np.zeros((many, recording.objective.width))
        predictions[:, 0] = value
        return decode(perturbation.protect(predictions, "push", next(numbers)))[:, 0]

    claimed, found = epsilon_of(mechanism, 1, delta), lower_bound(draw, mechanism.clip, delta, draws, _CONFIDENCE)
    most = math.log(draws / (2.0 * math.log(4.0 / (1.0 - _CONFIDENCE))))
    limit = f"; so few draws cannot show more than {most:.1f}, whatever is hidden" if claimed > most else ""
    return passed_if(
        found <= claimed,
        "A10",
        _ONE,
        _view(party),
        score=found,
        baseline=0.0,
        bar=f"epsilon found <= {claimed:.3f} claimed",
        reason=f"{draws:,} draws at plus and minus the clip of {mechanism.clip:g}, at delta {delta:g} with "
        f"{_CONFIDENCE:.2%} confidence{limit}",
        details={"claimed": claimed},
    )


def _all_releases(recording: Recording, party: str, mechanism: Mechanism, delta: float) -> AttackResult:
    """What the releases that travelled cost by the textbook, beside what the ledger counts for their steps."""
    ledger = Ledger(mechanism, None, delta, None)
    for step in recording.pushes[party]:
        ledger.count_release(group_of(recording.schedule.visit(step).block))
    for message in recording.held_out.get(party, {}).values():
        if message.release.variance > 0:
            ledger.count_release(HELD_OUT)
    group, claimed = ledger.worst()
    travelled = _travelled(recording, party)
    most = max(travelled.values(), default=0)
    found = textbook_epsilon(mechanism, most, delta)
    extra = sum(travelled.values()) - sum(ledger.releases(each) for each in travelled)
    return passed_if(
        abs(found - claimed) <= _NEAR * claimed and extra == 0,
        "A10",
        _LEDGER,
        _view(party),
        score=found,
        baseline=0.0,
        bar=f"within {_NEAR:.0%} of the ledger's {claimed:.3f}, and no release beside those counted",
        reason=f"{most} different releases of one row travelled, the ledger counts {ledger.releases(group)} "
        f"({group or 'none'}); {extra} in all were not counted. It protects {DIRECT}",
        details={"claimed": claimed, "releases": most, "not_counted": extra},
    )


def _travelled(recording: Recording, party: str) -> Counter[str]:
    """Releases under noise by group of rows. What was sent again as it was is no release; what differs is one more."""
    different: set[tuple[str, int, int, bytes]] = set()
    for sender, message in messages_of(recording):
        if sender != party or isinstance(message, Gradient) or not message.release.variance > 0:
            continue
        purpose, number = ("push", message.step) if isinstance(message, Push) else ("held-out", message.epoch)
        release = message.release
        different.add((purpose, number, release.mask_id, release.values.astype("<i8").tobytes()))
    return Counter(
        group_of(recording.schedule.visit(number).block) if purpose == "push" else HELD_OUT
        for purpose, number, *_ in different
    )


def textbook_epsilon(mechanism: Mechanism, releases: int, delta: float) -> float:
    """The epsilon of so many releases by the formula as it is printed, without any code of the ledger."""
    if not releases:
        return 0.0
    if mechanism.noise == "laplace":
        return releases * 2 * mechanism.clip / mechanism.sigma
    mu = 2 * mechanism.clip * math.sqrt(releases) / mechanism.sigma

    def over(epsilon: float) -> float:
        """The delta at this epsilon, less the one that is asked for."""
        tail = math.exp(epsilon + float(norm.logcdf(-mu / 2 - epsilon / mu)))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - tail - delta

    if over(0.0) <= 0:
        return 0.0
    return float(brentq(over, 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(2 / delta))))


def _noise_that_travelled(recording: Recording, party: str, mechanism: Mechanism) -> AttackResult:
    """The last releases of all rows beside the final model's predictions; as the model moved on, noise looks larger."""
    model = recording.truth.models.get(party)
    if model is None or not recording.plain[party]:
        return not_applicable("A10", _TRAVELLED, _view(party), "the recording has no final model or no pushes")
    exact = Perturbation(Mechanism("none", mechanism.clip, 0.0))
    predicted = decode(exact.protect(model.predict(recording.truth.features[party]), "push", 0))
    last = recording.schedule.blocks
    differences = []
    for step in sorted(recording.plain[party])[-last:]:
        visit = recording.schedule.visit(step)
        differences.append((recording.plain[party][step] - predicted[visit.start : visit.stop]).ravel())
    noise = np.concatenate(differences)
    found, claimed = float(np.sqrt(np.mean(np.square(noise)))), math.sqrt(mechanism.variance)
    spread = math.sqrt((5 if mechanism.noise == "laplace" else 2) / (4 * noise.size))  # kurtosis less 1, by 4 values
    least = claimed * max(0.0, 1 - _SIGMAS * spread)
    said = {push.release.variance for push in recording.pushes[party].values()}
    honest = all(math.isclose(each, mechanism.variance, rel_tol=_NEAR) for each in said)
    return passed_if(
        found >= least and honest,
        "A10",
        _TRAVELLED,
        _view(party),
        score=found,
        bar=f"standard deviation >= {least:.4g}, and messages that say so",
        reason=f"{noise.size:,} values less the final model's predictions; {claimed:.4g} is claimed, and the messages "
        f"{'say the same' if honest else 'say otherwise'}",
        details={"claimed": claimed, "values": noise.size},
    )


def _gradients_around(recording: Recording, party: str, mechanism: Mechanism) -> AttackResult:
    """Whether gradients of private labels were made from what the label party released, or from what is behind it."""
    noise = _seen_through(recording)
    if noise is None:
        reason = "totals may be stale here, so what a gradient was made of is not known"
        return not_applicable("A10", _AROUND, f"every party but {party!r}", reason)
    share = float(np.sqrt(np.mean(np.square(noise)) / mechanism.variance))
    outcome = "its noise can be taken off" if share > _NEAR else "they tell nothing that was not released"
    return passed_if(
        share <= _NEAR,
        "A10",
        _AROUND,
        f"every party but {party!r}",
        score=share,
        baseline=0.0,
        bar=f"scores by gradients differ from those released by <= {_NEAR} of the noise",
        reason=f"the score that each gradient follows from, less all that was pushed, is {share:.3f} of party "
        f"{party!r}'s noise: {outcome}",
        details={"values": float(noise.size)},
    )


def _seen_through(recording: Recording) -> Values | None:
    """By how much the scores that gradients tell differ from the sums of all releases; None where nobody can say."""
    if recording.run.training.staleness:
        return None
    differences = []
    for step, released in pushed_sums(recording).items():
        scores = scores_behind(recording, recording.gradients[step])
        telling = (np.abs(scores) < _TELLING).all(axis=1)
        differences.append((scores - released)[telling].ravel())
    together = np.concatenate(differences) if differences else np.zeros(0)
    return together if together.size else None


def _view(party: str) -> str:
    return f"whoever sees what party {party!r} releases"


attacks: dict[str, Attack] = {"A10": check_claims}
