"""fdml budget plan and fdml budget show."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_UP, Context
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from fdml.cli.budget_show import lines_of, table_of
from fdml.cli.options import JsonOption
from fdml.cli.output import check_writable, echo, stdout, write_json
from fdml.errors import SettingsError
from fdml.party.account_figures import figures_of
from fdml.party.settings import read_party
from fdml.privacy.accounts import AccountFile
from fdml.privacy.calibrate import sigma_for
from fdml.privacy.ledger import DIRECT, Mechanism, epsilon_of
from fdml.settings import GuardSettings
from fdml.settings.choices import Noise
from fdml.storage.disk import FolderDisk

EXCHANGES = (1, 2, 3, 5, 10, 20, 40)
_EXAMPLE = 5
_NOISES = ("gaussian", "laplace")
_DELTA: float = GuardSettings.model_fields["delta"].default
_ROUND_UP = Context(prec=4, rounding=ROUND_UP)


budget = typer.Typer(help="Privacy budgets: what noise a budget needs, and what was spent of it.", no_args_is_help=True)


@budget.command()
def plan(
    epsilon: Annotated[float, typer.Option(help="The budget of each row at each party, such as 3.")],
    delta: Annotated[float, typer.Option(help="The chance that epsilon does not hold; well below 1 / rows.")] = _DELTA,
    clip: Annotated[float, typer.Option(help="The largest prediction that leaves.")] = 3.0,
    noise: Annotated[str, typer.Option(help="gaussian or laplace.")] = "gaussian",
    parties: Annotated[int, typer.Option(min=1, help="Number of parties that add such noise.")] = 2,
    json: JsonOption = None,
) -> None:
    """Show how much noise a privacy budget asks for, by the number of exchanges, and what to write for it."""
    check_writable(json)
    kind = _checked_noise(noise)
    rows = [_row(kind, epsilon, delta, clip, exchanges) for exchanges in EXCHANGES]
    echo(
        f"{noise} noise that keeps each row within epsilon {epsilon:g} at delta {delta:g}; predictions clip at {clip:g}"
    )
    stdout.print(_table(rows, kind))
    for line in _remarks(parties):
        echo(line)
    example = rows[EXCHANGES.index(_EXAMPLE)]
    echo(f"\nfor {_EXAMPLE} exchanges, in run.toml:\n\n{example['run_toml']}")
    echo(f"and in every party.toml:\n\n{example['party_toml']}")
    facts = {"epsilon": epsilon, "delta": delta, "clip": clip, "noise": noise, "parties": parties, "scope": DIRECT}
    write_json(json, {**facts, "rows": rows})


@budget.command()
def show(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    json: JsonOption = None,
) -> None:
    """Show what all runs of this party's ledger have released and spent, and what is left of its total."""
    check_writable(json)
    settings = read_party(party)
    figures = figures_of(AccountFile(FolderDisk(settings.ledger)).read(), settings)
    echo(f"ledger {settings.ledger} of party {settings.party!r}: {len(figures['accounts'])} data files")
    stdout.print(table_of(figures))
    for line in lines_of(figures):
        echo(line)
    write_json(json, figures)


def _checked_noise(text: str) -> Noise:
    if text not in _NOISES:
        raise SettingsError(f"--noise is {text!r}; it takes {', '.join(_NOISES)}")
    return cast(Noise, text)


def _row(noise: Noise, epsilon: float, delta: float, clip: float, exchanges: int) -> dict[str, Any]:
    """Figures for a number of exchanges. The printed sigma is rounded up, so epsilon stays within the budget."""
    sigma = float(_ROUND_UP.create_decimal_from_float(sigma_for(noise, epsilon, delta, clip, exchanges)))
    guard = {"clip": clip, "noise": f'"{noise}"', "sigma": sigma, "epsilon": epsilon}
    if delta != _DELTA:
        guard["delta"] = delta
    return {
        "exchanges": exchanges,
        "sigma": sigma,
        "sigma_per_clip": sigma / clip,
        "epsilon": epsilon_of(Mechanism(noise, clip, sigma), exchanges, delta),
        "run_toml": _toml("training", {"exchanges": exchanges}),
        "party_toml": _toml("guard", guard),
    }


def _toml(section: str, values: Mapping[str, object]) -> str:
    return f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def _table(rows: list[dict[str, Any]], noise: Noise) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "exchanges",
        "sigma" if noise == "gaussian" else "sigma (scale)",
        "sigma / clip",
        "epsilon per party",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (f"{row['sigma']:.4g}", f"{row['sigma_per_clip']:.2f}", f"{row['epsilon']:.4f}")
        table.add_row(str(row["exchanges"]), *figures)
    return table


def _remarks(parties: int) -> list[str]:
    each = "The budget is each party's own, for what it knows of a row."
    together = f" {parties} parties with such noise make a total {parties**0.5:.2f} times as noisy."
    return [
        f"\nscope: {DIRECT}. For the record level set noise on gradients too, [guard.training].",
        each + together * (parties > 1),
        "delta is per row: with n rows take one well below 1 / n.",
        "Fewer exchanges need less noise: every exchange releases each training row once more.",
        "An evaluation releases the held-out rows: it is counted for them, on a budget of their own.",
    ]
