"""The `fdml` command."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from fdml.cli import align, bench, compare, demo, join, new, serve, simulate, status
from fdml.errors import FdmlError

app = typer.Typer(
    name="fdml",
    help="Train one model over features that several parties keep to themselves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("compare")(compare.compare)
app.command("new")(new.new)
app.command("serve")(serve.serve)
app.command("join")(join.join)
app.command("align")(align.align)
app.command("simulate")(simulate.simulate)
app.command("status")(status.status)
app.command("bench")(bench.bench)


def main() -> None:
    """Run the command; what fdml can explain becomes one line and exit code 1. Ctrl-C ends with exit code 130."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a script's shell starts what it puts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_ctrl_c)
    try:
        app()
    except FdmlError as error:
        sys.exit(f"fdml: {error}")


def _as_ctrl_c(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
