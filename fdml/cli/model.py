"""fdml model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fdml.cli.options import JsonOption, PartyOption
from fdml.cli.output import check_writable, echo, stdout, write_json
from fdml.federation.export import export_onnx, export_scorecard
from fdml.federation.models import KnownModel, chosen_model, forget_model, models_of, promote_model, roll_back
from fdml.federation.versions import Promotion
from fdml.monitor.figures import figures_line
from fdml.party.settings import read_party

model = typer.Typer(
    no_args_is_help=True, help="The models of this party: list, show, compare, export, promote, rollback, forget."
)
NameArgument = Annotated[str, typer.Argument(help="The name of the run, or the first characters of the version.")]
_PARTY = Path("party.toml")


@model.command("list")
def list_models(party: PartyOption = _PARTY, json: JsonOption = None) -> None:
    """The models of all runs that have ended here, with their versions."""
    check_writable(json)
    name = read_party(party).party
    known = models_of(party.parent)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "version", "kind", "created", "rows to ask for", "held-out"):
        table.add_column(heading)
    for each in known:
        rows = "not published" if each.rows is None else f"{each.rows:,}"
        table.add_row(
            each.run, each.card.version[:12], _kind(each), each.card.created[:16], rows, _first(each.card.figures)
        )
    stdout.print(table)
    if not known:
        echo(f"no run of {name} has ended here yet")
    write_json(json, {"models": [_facts(each) for each in known]})


@model.command("show")
def show(name: NameArgument, party: PartyOption = _PARTY, json: JsonOption = None) -> None:
    """One model: version, settings, figures, and how many rows can be asked for."""
    check_writable(json)
    found = chosen_model(party.parent, name)
    card = found.card
    echo(f"run {found.run!r}, version {card.version}")
    echo(f"{_kind(found)} model of {card.party}, created {card.created} by fdml {card.fdml_version}")
    if card.figures:
        echo(f"held-out rows: {figures_line(card.figures)}")
    if card.compared is not None:
        echo(card.compared.text)
    if found.rows is None:
        echo("not published: nobody can ask for its predictions")
    else:
        echo(f"published: {found.rows:,} rows can be asked for, generation {found.generation}")
    write_json(json, _facts(found))


@model.command("compare")
def compare(first: NameArgument, second: NameArgument, party: PartyOption = _PARTY, json: JsonOption = None) -> None:
    """Two models side by side: their held-out figures, and the settings in which they differ."""
    check_writable(json)
    pair = [chosen_model(party.parent, name) for name in (first, second)]
    figures = [each.card.figures or {} for each in pair]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", *(f"{each.run} ({each.card.version[:12]})" for each in pair)):
        table.add_column(heading)
    for name in figures[0]:
        table.add_row(name, *(_number(each.get(name)) for each in figures))
    different = _differences(*(_flat(asdict(each.card.settings)) for each in pair))
    for name, values in different.items():
        table.add_row(name, *map(str, values))
    stdout.print(table)
    write_json(json, {"models": [_facts(each) for each in pair], "different": different})


@model.command("export")
def export(
    name: NameArgument,
    onnx: Annotated[Path | None, typer.Option(help="Where the ONNX file goes: linear, fm, mlp.")] = None,
    scorecard: Annotated[
        Path | None, typer.Option(help="Where a CSV file with a weight for each feature goes: linear.")
    ] = None,
    party: PartyOption = _PARTY,
) -> None:
    """Write this party's model for other programs: its part of the score, from its own encoded features.

    The joint score is the sum of all parties' parts. Whoever has the file has the model: it is this party's own.
    """
    if onnx is None and scorecard is None:
        raise typer.BadParameter("give --onnx FILE, --scorecard FILE or both")
    check_writable(onnx, scorecard)
    found = chosen_model(party.parent, name)
    if onnx is not None:
        worst = export_onnx(party.parent, found.run, onnx)
        echo(f"{onnx}: as onnxruntime reads it, predictions differ by {worst:.1e} at most")
    if scorecard is not None:
        rows = export_scorecard(party.parent, found.run, scorecard)
        echo(f"{scorecard}: {rows:,} weights")


@model.command("promote")
def promote(name: NameArgument, party: PartyOption = _PARTY) -> None:
    """Let a model be the one to predict with; at each party, as it is this party's own record."""
    echo(promoted_text(promote_model(party.parent, name)))


@model.command("rollback")
def rollback(party: PartyOption = _PARTY) -> None:
    """Go back to the model that was promoted before the present one; at each party."""
    echo(promoted_text(roll_back(party.parent)))


@model.command("forget")
def forget(
    name: NameArgument,
    party: PartyOption = _PARTY,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a model of this party for good: nobody can ask for its predictions any more. The ledger stays."""
    found = chosen_model(party.parent, name)
    if not yes:
        typer.confirm(f"Remove the model of run {found.run!r}, version {found.card.version[:12]}?", abort=True)
    echo(f"removed from runs/{found.run}: {', '.join(forget_model(party.parent, found.run))}")


def promoted_text(promotion: Promotion) -> str:
    """What was promoted."""
    return f"run {promotion.run!r}, version {promotion.version[:12]}, is the promoted model of this party"


def _kind(found: KnownModel) -> str:
    return str(found.card.settings.model.get("kind", ""))


def _first(figures: dict[str, float | None] | None) -> str:
    return figures_line(dict(list(figures.items())[:1])) if figures else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _facts(found: KnownModel) -> dict[str, Any]:
    card = found.card
    return {
        "run": found.run,
        "version": card.version,
        "party": card.party,
        "kind": _kind(found),
        "created": card.created,
        "rows": found.rows,
        "generation": found.generation,
        "figures": card.figures,
    }


def _flat(values: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {name: values}
    return {
        key: value
        for part, each in values.items()
        for key, value in _flat(each, f"{name}.{part}" if name else part).items()
    }


def _differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys([*first, *second])
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}
