"""A small run in folders, and its server in a thread of this process."""

import asyncio
import threading
import time
from contextlib import contextmanager

import numpy as np

from fdml.federation.serve import serve

RUN = "runs/first"
"""The folder of the run at every side."""
ROWS, EPOCHS = 120, 2
"""Enough that held-out rows of one class alone, which have no AUC, do not occur: the split is drawn by the group key."""


def write_run(home, *, parties=("ann", "bob"), training="", group_key=""):
    """Settings and data of a run whose label is the sign of a sum over the parties; each has an order of rows.

    With a group key the shared rows have the same order whenever they are aligned.
    """
    home.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, len(parties)))
    labels = np.where(X.sum(axis=1) > 0, "yes", "no")
    listed = ", ".join(f'"{party}"' for party in parties)
    (home / "federation.toml").write_text(f'name = "small"\nserver = "127.0.0.1:0"\nparties = [{listed}]\n')
    (home / "run.toml").write_text(
        f'name = "first"\nlabel_party = "ann"\n'
        f"[training]\nepochs = {EPOCHS}\nbatch_size = 8\nbatches_per_block = 2\nvalue_bits = 64\ncheckpoint_seconds = 0.0\n{training}"
    )
    if group_key:
        (home / "group.key").write_text(group_key)
        (home / "group.key").chmod(0o600)
    shared_key = 'group_key = "../group.key"\n' if group_key else ""
    for number, party in enumerate(parties):
        (home / party).mkdir(exist_ok=True)
        order = random.permutation(ROWS)
        column = "id,x,label" if party == "ann" else "id,x"
        lines = [f"{at},{X[at, number]}" + (f",{labels[at]}" if party == "ann" else "") for at in order]
        (home / party / "data.csv").write_text("\n".join([column, *lines]) + "\n")
        label = 'label = "label"\n' if party == "ann" else ""
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\nthreads = 1\n{shared_key}'
            f'[align]\nmax_rows = {ROWS}\n[data]\npath = "data.csv"\nid = "id"\n{label}'
        )
    return home / "run.toml"


def rename(run_toml, name):
    """Let the next start begin another run."""
    text = run_toml.read_text()
    run_toml.write_text(text.replace(text.splitlines()[0], f'name = "{name}"', 1))


@contextmanager
def serving(run_toml, **options):
    """The address of a server in a thread; leaving waits for its end, which gives `.result` or `.error`."""
    port_file = run_toml.parent / "port"
    port_file.unlink(missing_ok=True)
    server = _Server(run_toml, port_file, options)
    server.start()
    while not port_file.exists() and server.is_alive():
        time.sleep(0.01)
    server.address = f"127.0.0.1:{port_file.read_text().strip()}" if port_file.exists() else ""
    yield server
    server.join(60)
    assert not server.is_alive(), "the server goes on though all parties have finished"


class _Server(threading.Thread):
    def __init__(self, run_toml, port_file, options):
        super().__init__(daemon=True)
        self._run, self._port_file, self._options = run_toml, port_file, options
        self.events, self.result, self.error = [], None, None
        self.stop = None
        """Ends it before its run is over."""

    def run(self):
        try:
            self.result = serve(
                self._run.parent / "federation.toml",
                self._run,
                plain=True,
                port_file=self._port_file,
                on_event=self.events.append,
                on_start=self._note,
                **self._options,
            )
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def _note(self, stop):
        self.stop = stop


def together(*works):
    """Run functions at once, each in a thread; their results in order, or the first error."""
    results, errors = [None] * len(works), []

    def run(number, work):
        try:
            results[number] = work()
        except Exception as error:  # noqa: BLE001 - raised below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    return results
