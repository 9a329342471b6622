"""The `fdml` command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

import fdml
from fdml.cli.lossy_output import OUTPUTS, LossyOutput
from fdml.errors import NO_FRESH, FdmlError

COMMANDS = (
    "demo",
    "compare",
    "new",
    "check",
    "keys",
    "serve",
    "up",
    "run",
    "runs",
    "tune",
    "join",
    "align",
    "simulate",
    "status",
    "report",
    "watch",
    "predict",
    "evaluate",
    "explain",
    "endpoint",
    "model",
    "budget",
    "audit",
    "forget",
    "data",
)
"""Each is a function, or a group of them, of the same name in a module of the same name."""


RENAMED = {"plan": "fdml budget plan", "bench": "python -m benchmarks"}
"""Commands under the names they had before."""


def app_for(words: Sequence[str]) -> typer.Typer:
    """The command line for these words. Only the wanted command is imported: every start of a party waits for it."""
    app = typer.Typer(
        name="fdml",
        help="Train one model over features that several parties keep to themselves.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",  # as rich markup, words in square brackets would vanish
        pretty_exceptions_enable=False,
        callback=_options,
    )
    wanted = () if "--version" in words[:1] else words[:1] if words and words[0] in COMMANDS else COMMANDS
    for name in wanted:
        found = getattr(importlib.import_module(f"fdml.cli.{name}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fdml {fdml.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command; with them, also a single command is called by its name."""


def main() -> None:
    """Run the command. An `FdmlError` becomes one line and exit code 1; Ctrl-C ends with exit code 130."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log has a line for every call that it refuses
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a script's shell starts what it puts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_ctrl_c)
    if (name := next(iter(sys.argv[1:]), "")) in RENAMED:
        typer.echo(f"fdml: the command {name!r} is now called `{RENAMED[name]}`", err=True)
        sys.exit(2)
    if "--fresh" in sys.argv[1:]:
        typer.echo(f"fdml: {NO_FRESH}", err=True)
        sys.exit(2)
    try:
        app_for(sys.argv[1:])()
    except FdmlError as error:
        sys.exit(f"fdml: {error}")
    finally:
        for name in OUTPUTS:
            LossyOutput(name).settle()


def _as_ctrl_c(_: int, __: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
