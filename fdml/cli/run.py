"""fdml run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.figures import bundle_figures
from fdml.cli.options import FromOption, JsonOption, PartyOption, PlainOption, RunNameOption, ServerOption
from fdml.cli.output import check_writable, echo, write_json
from fdml.cli.run_texts import run_json, state_text
from fdml.federation import runs as federation_runs
from fdml.federation.party_home import PartyHome
from fdml.federation.run_folder import MODEL, RUNS


def run(
    run: Annotated[Path, typer.Argument(help="The run.toml of the run to start; its name must be a new one.")],
    party: PartyOption = Path("party.toml"),
    name: RunNameOption = None,
    begin_with: FromOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run is over, and print its figures.")] = False,
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """Start a run everywhere: at the server, and at every party that stands by with `fdml up` and accepts it.

    This party must have the right to ([rights] in federation.toml). The same run again changes nothing. `from` and
    `evaluation.against` may name a run that has finished here, or "promoted".
    """
    check_writable(json)
    home = PartyHome.read(party, plain=plain, server=server)
    started = federation_runs.start(home, run, name, begin_with)
    facts = started.facts
    echo(state_text(facts))
    absent = [name for name in home.federation.parties if name not in started.here and facts.is_open]
    if absent:
        echo(f"not standing by now: {', '.join(absent)}; they take part once `fdml up` or `fdml join` runs there")
    if undecided := [each.party for each in facts.decisions if each.choice == "waits" and facts.is_open]:
        echo(f"a person at {', '.join(undecided)} decides: `fdml runs approve {facts.name}` there, or `refuse`")
    if wait and facts.is_open:
        said = facts.state
        (facts,) = federation_runs.wait_for(
            home, [facts.name], on_change=lambda each: None if each.state == said else echo(state_text(each))
        )
    folder = home.folder / RUNS / facts.name / MODEL
    lines, figures = bundle_figures(folder if facts.state == "finished" and folder.is_dir() else None)
    for line in lines:
        echo(line)
    write_json(json, {**run_json(facts), "here": list(started.here), "metrics": figures})
    if facts.state in ("refused", "stopped"):
        raise typer.Exit(1)
