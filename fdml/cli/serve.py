"""fdml serve."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import check_writable, echo, figures, remarks_to, resumable, stderr, write_json
from fdml.federation import serve as runs


def serve(
    run: Annotated[Path, typer.Argument(help="The run.toml that all parties agreed on.")],
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Forget what an earlier server stored and start over; at every side or none."),
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No TLS, no certificates; on loopback only.")] = False,
    listen: Annotated[
        str | None, typer.Option(help="Listen here, if not where the parties reach the server: '0.0.0.0:7443'.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the history of the run to this file.")] = None,
) -> None:
    """Run the server: it sums predictions and lets nobody run too far ahead.

    After a crash the same command goes on where the server stopped.
    """
    check_writable(json)
    with resumable(f"fdml serve {run}"):
        served = runs.serve(run, fresh=fresh, plain=plain, listen=listen, on_event=remarks_to(stderr))
    state, bulletin = served.state, served.bulletin
    records = runs.history(state)
    for each in records[-1:]:
        echo(f"all parties have finished: {figures(each.test_loss, each.test_metric)}")
    for party, (came, went) in served.traffic.items():
        stderr.print(f"{party}: {came / 1e6:.1f} MB came, {went / 1e6:.1f} MB went", highlight=False)
    shared = None if bulletin.shared is None else bulletin.shared.train
    alignment = {"rows": bulletin.rows, "shared_rows": shared, "train_rows": state.rows}
    write_json(json, {"alignment": alignment, "history": [asdict(each) for each in records]})
