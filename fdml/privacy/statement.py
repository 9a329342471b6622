"""The statement a party writes at the end of a run: who saw what of it, how often, under which protection."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fdml.privacy.exposures import (
    Exposure,
    answer_exposures,
    host_exposures,
    noise_exposures,
    pointer_exposures,
    single_sums,
    summing,
)
from fdml.privacy.ledger import HELD_OUT, Ledger, Mechanism
from fdml.protocol.schedule import Schedule
from fdml.settings import GuardSettings, RunSettings
from fdml.settings.choices import PAIRWISE
from fdml.storage.atomic import write_file

_TRANSPORT = "TLS with certificates on both sides: 1.3 between two fdml sides, and never below 1.2"


@dataclass(frozen=True)
class Spent:
    """What the releases of a kind of rows come to."""

    rows: str
    releases: int
    epsilon: float | None
    """None where nothing protects them: no figure would be true."""
    delta: float
    scope: str


@dataclass(frozen=True)
class Statement:
    """One party's account of one run."""

    run: str
    party: str
    plain_line: bool
    spent: tuple[Spent, ...]
    exposures: tuple[Exposure, ...]
    together: str = "the server and a party together"
    """Who together could see more than the table says."""

    def as_json(self) -> dict[str, Any]:
        """The same as values that `json.dump` takes."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> Statement | None:
        """What `write` has written; None where there is none, or an older fdml wrote other values."""
        try:
            found = json.loads((folder / "privacy.json").read_bytes())
            spent = tuple(Spent(**each) for each in found.pop("spent"))
            exposures = tuple(Exposure(**each) for each in found.pop("exposures"))
            return cls(spent=spent, exposures=exposures, **found)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    @property
    def spent_lines(self) -> list[str]:
        """What was spent, in words."""
        return [_spent_line(each) for each in self.spent]

    @property
    def not_covered(self) -> str:
        """What the statement says nothing of, in words."""
        return (
            f"Not covered: parties or a server that lie, {self.together}, timing, and which rows the parties share. "
            f"docs/privacy.md says more."
        )

    def as_text(self) -> str:
        """For people, in Markdown."""
        lines = [f"# What run {self.run!r} showed of party {self.party!r}", "", "## What was spent", ""]
        lines += [f"- {line}" for line in self.spent_lines]
        lines += ["", "## Who saw what", ""]
        lines += ["| who | what of this party | in which form | how often | under which protection | attacks |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [f"| {' | '.join(asdict(each).values())} |" for each in self.exposures]
        if self.plain_line:
            lines += [
                "",
                "The lines of this run were not encrypted (`--plain`): whoever sees the network saw the same.",
            ]
        lines += [
            "",
            self.not_covered,
            "",
            "## What stays on disk",
            "",
            "Until `fdml forget --run NAME` at each side: at the server sealed labels and all predictions as it got "
            "them; at this party its noise key, releases and features. Until `fdml forget --alignments`: at the server "
            "tokens or blinded points of ids; at this party its group key. Until `fdml model forget NAME`: there "
            "also its predictions of all its rows, with which it answers. The ledger stays for good.",
            "",
        ]
        return "\n".join(lines)

    def write(self, folder: Path) -> Path:
        """As privacy.md and privacy.json, for the party's own eyes."""
        for name, text in (
            ("privacy.md", self.as_text()),
            ("privacy.json", json.dumps(self.as_json(), indent=1) + "\n"),
        ):
            write_file(folder / name, text.encode())
        return folder / "privacy.md"


def state_of(
    run: RunSettings,
    party: str,
    guard: GuardSettings,
    ledger: Ledger,
    schedule: Schedule,
    evaluations: int,
    *,
    plain: bool,
) -> Statement:
    """The account of a party whose releases the ledger has counted; it predicted held-out rows so many times."""
    blind = run.privacy.server == "blind"
    pushed = [f"block {block}" for block in range(schedule.blocks)]
    worst = max(pushed, key=ledger.releases)
    exact = guard.evaluation == "exact"
    spent = (
        _spent("training rows", ledger, worst, ledger.releases(worst)),
        Spent(HELD_OUT + " rows", evaluations, None, ledger.delta, ledger.scope)
        if exact
        else _spent(HELD_OUT + " rows", ledger, HELD_OUT, evaluations),
    )
    protection = _protection(ledger.mechanism)
    often = f"{ledger.releases(worst)} times each training row, {evaluations} times each held-out row"
    server = Exposure(
        summing(run),
        _predictions(run),
        "under masks that only the parties can take off" if blind else "each party's own, plain",
        often,
        _masks(run) if blind else protection,
        "A8, A9" if blind else "A4 equation solving, A5 Gram, A6 attributes",
    )
    exposures = [server, _model_mac(run), _others(run, party, often, protection)]
    exposures += host_exposures(run, party, evaluations, protection)
    exposures += [*noise_exposures(ledger.mechanism.variance), *pointer_exposures(run, party)]
    if party == run.label_party:
        exposures += [*_labels(run, schedule), *_metrics(run, evaluations)]
    if run.evaluation.stop_after is not None:
        exposures.append(_best_epoch(run))
    if run.promotion is not None:
        exposures.append(_promotion())
    exposures += answer_exposures(run, party, protection)
    exposures.append(
        Exposure(
            "network",
            "sizes and times of messages",
            "nothing" if plain else _TRANSPORT,
            "always",
            "TLS",
            "A11 canaries",
        )
    )
    return Statement(run.name, party, plain, spent, tuple(exposures), _together(run))


def _masks(run: RunSettings) -> str:
    if run.has_pairwise_masks:
        return "masks (AES-CTR) under keys of each two parties, which cancel in the total; the total's is the group key"
    return "masks (AES-CTR under the group key)"


def _together(run: RunSettings) -> str:
    if run.privacy.server == "plain":
        return "the server and a party together"
    if not run.has_pairwise_masks:
        return "the server and any party together, which can take off all masks, as the run is not at staleness 0"
    if run.is_mesh:
        return "all other parties together, which see the sum less their own parts"
    if len(run.parties) == 2:
        return "the server and the other party together, which see what that party sees"
    return "the server and all other parties together (with fewer it learns the sum of the rest)"


def _others(run: RunSettings, party: str, often: str, protection: str) -> Exposure:
    private = run.privacy.labels == "private"
    sees_sums = run.label_party if private else "every other party"
    if private and party == run.label_party:
        return Exposure(
            "every other party",
            "the sum of all predictions, as it follows from the gradients",
            "the score behind each gradient",
            often,
            protection,
            "A4 to A7",
        )
    if len(run.parties) == 2:
        form = "the sum of two: less its own part, exactly this party's"
    else:
        form = f"the sum of all {len(run.parties)}; all others together can tell this party's part"
        form += single_sums(run, party)
    return Exposure(sees_sums, _predictions(run), form, often, protection, "A4 to A6; A7 together")


def _predictions(run: RunSettings) -> str:
    vector = f", each with a vector of {run.training.vector} numbers" if run.training.vector else ""
    return f"its predictions of every row{vector}"


def _model_mac(run: RunSettings) -> Exposure:
    return Exposure(
        summing(run),
        "whether its final model is the one it finished with before",
        "a MAC under a secret that stays with this party",
        "once",
        "a keyed hash (BLAKE2b): nobody can try out a guess of the model",
        "A14 retrain and compare",
    )


def _metrics(run: RunSettings, evaluations: int) -> list[Exposure]:
    """What the label party's evaluations show, and what a server that sees all predictions knows anyway."""
    times = f"{evaluations} evaluations"
    if run.privacy.labels == "shared":
        form, who = "exact, sealed from the server, which knows the epoch alone", "every other party"
    else:
        form, who = "the number of the epoch; the figures stay with this party", "server and every other party"
    found = [
        Exposure(who, "losses and metric of every evaluated epoch", form, times, "none", "A13 labels from metrics")
    ]
    if run.privacy.server == "plain":
        found.append(
            Exposure(
                "server",
                "the labels of all rows, as well as the model predicts them, and so about how many are of each class",
                "from the sum of all predictions, which it has",
                "every epoch",
                'none; `server = "blind"` would hide the sum',
                "",
            )
        )
    return found


def _best_epoch(run: RunSettings) -> Exposure:
    """What early stopping shows: it follows from all parties' held-out predictions and from the labels."""
    return Exposure(
        "server and every other party",
        "in which epoch the loss of held-out rows was lowest",
        f"its number, sealed from the server; of a run that ends early the server knows the epoch in which it ends, "
        f"{run.evaluation.stop_after} after the best",
        "once",
        "none",
        "",
    )


def _promotion() -> Exposure:
    """What the rule of a promotion shows: it follows from all parties' held-out predictions and from the labels."""
    return Exposure(
        "every other party",
        "whether the model is better than an earlier version by so much as [promotion] says",
        "yes or no, sealed from the server",
        "once",
        "none",
        "",
    )


def _labels(run: RunSettings, schedule: Schedule) -> list[Exposure]:
    if run.privacy.labels == "shared":
        return [
            Exposure(
                "every other party", "the labels of all rows", "as they are, sealed from the server", "once", "none", ""
            )
        ]
    epsilon = run.privacy.label_epsilon
    if epsilon == "off":
        protection = "none: the sign of each gradient is the label"
    else:
        protection = f"randomised response, label epsilon {epsilon:g}, drawn once for all epochs"
    times = f"{schedule.epochs} times each training row"
    groups = Exposure(
        "every other party", "hints at which rows are in one group", "by the same gradients", times, "none", ""
    )
    return [
        Exposure(
            "every other party",
            "the labels of all training rows",
            "as gradients, which disclose the label they were made of, sealed from the server",
            times,
            protection,
            "A1 label inference, A2 averaged gradients, A3 model completion",
        ),
        *([groups] if run.chosen_loss == PAIRWISE else []),
    ]


def _spent(rows: str, ledger: Ledger, group: str, releases: int) -> Spent:
    epsilon = ledger.epsilon(group)
    return Spent(rows, releases, None if math.isinf(epsilon) else epsilon, ledger.delta, ledger.scope)


def _spent_line(spent: Spent) -> str:
    if spent.epsilon is None:
        return f"{spent.rows}: released {spent.releases} times without noise; there is no epsilon to state."
    return (
        f"{spent.rows}: released {spent.releases} times, epsilon {spent.epsilon:.4g} at delta {spent.delta:g} for "
        f"each row ({spent.scope})."
    )


def _protection(mechanism: Mechanism) -> str:
    if mechanism.noise == "none":
        return "none" if math.isinf(mechanism.clip) else f"clipped to {mechanism.clip:g}, no noise"
    return f"clipped to {mechanism.clip:g}, {mechanism.noise} noise of {mechanism.sigma:.4g}"
