"""fdml join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import echo, resumable, stderr
from fdml.federation import join as parties
from fdml.monitor.terminal import progress
from fdml.party.settings import read_party
from fdml.settings import read_run


def join(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget saved state and start over; at every side or none.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No TLS, no certificates; on loopback only.")] = False,
) -> None:
    """Train one party's model together with the others, and save it.

    After a crash the same command goes on from the last saved state, and ends with the same model.
    """
    settings = read_party(party)
    epochs = read_run(settings.run).training.epochs
    with resumable(f"fdml join {party}"), progress(stderr, epochs, settings.party) as listener:
        done = parties.join(
            party, fresh=fresh, plain=plain, listener=listener, say=lambda line: stderr.print(line, highlight=False)
        )
    echo(
        f"{settings.party}: trained {done.seconds:.1f} s, waited {done.waited:.1f} s for others in all; "
        f"model in {done.model_path} (hash {done.model_hash.hex()[:16]})"
    )
