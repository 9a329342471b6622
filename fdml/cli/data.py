"""fdml data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import echo, stderr
from fdml.data.samples.app_store.dataset import PARTIES, AppStore
from fdml.data.samples.app_store.settings import NAME, write_settings
from fdml.errors import SettingsError
from fdml.federation.scaffold import write_keys
from fdml.monitor.terminal import progress_display
from fdml.storage.atomic import new_folder

KINDS = ("app-store",)


def data(
    kind: Annotated[str, typer.Argument(help=f"What to make: {', '.join(KINDS)}.")],
    out: Annotated[Path, typer.Option(help="A folder that is not there yet, or empty.")],
    rows: Annotated[int, typer.Option(help="Rows that all parties share; each has 2 % more of its own.")] = 5_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")] = 7,
    test_share: Annotated[float, typer.Option(help="Share of the rows for testing.")] = 0.1,
) -> None:
    """Make data to train on, with settings and keys: a run that works as it is.

    app-store is a twin of the paper's data, which is not public: a store, a browser and a guard that know the same
    users, with 7,000, 1,000 and 700 sparse features. Five million rows take 2.7 GB and a minute or two.
    """
    if kind not in KINDS:
        raise SettingsError(f"there is no data {kind!r} to make; it can be {' or '.join(KINDS)}")
    store = AppStore(rows, seed, test_share)
    with _complete_folder(out) as folder, progress_display(stderr, store.steps, "making rows", "chunks") as display:
        done = itertools.count(1)
        store.write(folder, lambda: display.move_to(next(done)))
        write_settings(folder)
        write_keys(folder, NAME, PARTIES)
    echo(f"wrote {out}: {rows:,} rows that {', '.join(PARTIES)} share. To train on them, all on this machine:")
    echo(f"  fdml simulate {out / 'run.toml'}")


@contextmanager
def _complete_folder(out: Path) -> Iterator[Path]:
    """A folder to write into that becomes `out` at the end; an error or Ctrl-C leaves nothing behind."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"--out is {str(out)!r}, which is not empty; choose a new folder, or empty it first")
    if out.resolve() == Path.cwd():
        raise SettingsError(f"--out is {str(out)!r}, the folder this command runs in; choose a new folder")
    try:
        with new_folder(out, mode=0o777) as folder:
            yield folder
    except OSError as error:
        raise SettingsError(f"cannot write {str(out)!r}: {error}; choose another folder with --out") from None
