"""fdml tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import JsonOption, PartyOption, PlainOption, ServerOption
from fdml.cli.output import check_plot, check_writable, echo, resumable, stderr, stdout, write_json
from fdml.cli.tune_texts import best_lines, best_toml, ended_text, plotted, search_json, search_table, spent_lines
from fdml.errors import FdmlError
from fdml.experiments.search import Sides, run_search
from fdml.experiments.search_settings import Search, read_search
from fdml.experiments.search_sides import OneMachine, StandingSides
from fdml.federation.party_home import PartyHome
from fdml.monitor.search_plot import draw_search
from fdml.monitor.terminal import print_line
from fdml.storage.atomic import write_file


def tune(
    search: Annotated[Path, typer.Argument(help="A tune.toml: which settings of a run.toml to search.")],
    party: PartyOption = Path("party.toml"),
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Server and all parties as processes of this machine.")
    ] = False,
    wait: Annotated[
        float, typer.Option(min=1.0, help="Seconds until a run that a party keeps waiting is left for later.")
    ] = 60.0,
    plain: PlainOption = False,
    server: ServerOption = None,
    best: Annotated[Path | None, typer.Option(help="Write the best run's settings to this run.toml.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure against each setting to this picture.")] = None,
    json: JsonOption = None,
) -> None:
    """Search for good settings: a named run for each, over one alignment, every release counted.

    Runs at the parties that stand by with `fdml up` and whose policy allows it, or on this machine with --simulate.
    The same command again goes on: runs that have finished are not repeated.
    """
    check_writable(json, best)
    check_plot(plot)
    wanted = read_search(search)
    sides = _sides(wanted, party, simulate=simulate, wait=wait, plain=plain, server=server)
    count, label_party = len(wanted.candidates), wanted.label_party
    print_line(stderr, f"search {wanted.settings.name!r}: {count} runs, compared at {label_party}")
    with resumable(f"fdml tune {search}"):
        found = run_search(
            wanted,
            sides,
            lambda each: print_line(stderr, ended_text(each)),
            lambda each: print_line(stderr, f"{each.name}: {each.text}"),
        )
    stdout.print(search_table(found))
    for line in (*best_lines(found), *spent_lines(found)):
        echo(line)
    write_json(json, search_json(found))
    if plot is not None:
        draw_search(plotted(found), found.choose_by, plot)
        print_line(stderr, f"plot drawn to {plot}")
    if found.best is None:
        raise FdmlError(f"no run of search {found.name!r} has finished with a {found.choose_by}; see why above")
    if best is not None:
        write_file(best, best_toml(found.best).encode(), mode=0o644)
        print_line(stderr, f"the best run's settings are in {best}")


def _sides(search: Search, party: Path, *, simulate: bool, wait: float, plain: bool, server: str | None) -> Sides:
    if simulate:
        return OneMachine(search, plain=plain)
    home = PartyHome.read(party, plain=plain, server=server)
    return StandingSides(home, accept_seconds=wait, run_seconds=search.settings.run_seconds)
