"""A party, the server or a whole run from Python: in a script, a notebook or a scheduler's task.

Nothing of the process is changed: no signal, hook, warning filter, log or limit of threads. An interrupt leaves what
was saved, and the same call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from rich.console import Console

from fdml.data.frames import Frame
from fdml.data.origins import frame_origins
from fdml.errors import NO_FRESH, SettingsError
from fdml.events import Event, Listener, Remark
from fdml.federation import join as parties
from fdml.federation import processes
from fdml.federation import serve as servers
from fdml.federation.asked_files import AskedFile, OwnKeys
from fdml.federation.predicting import asking_locally
from fdml.federation.serve import ServerResult, Stop
from fdml.monitor.listeners import all_of, ignore_events
from fdml.monitor.run_displays import run_terminal
from fdml.monitor.terminal import RunTerminal, print_line
from fdml.party.consent import Ask
from fdml.party.effects import PartyResult
from fdml.party.settings import PartySettings, in_folder, read_party
from fdml.serving.batch import answer_table
from fdml.settings.federation import federation_of

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
_STOP_SECONDS = 0.1
"""How often a server that is to stop is asked to."""


def _without_fresh(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Say what became of `fresh=`, instead of that there is no such argument."""

    @wraps(function)
    def call(*words: Parameters.args, **options: Parameters.kwargs) -> Result:
        if "fresh" in options:
            raise SettingsError(NO_FRESH)
        return function(*words, **options)

    return call


@_without_fresh
def join(
    run: str | Path,
    party: str | Path | None = None,
    *,
    data: Frame | None = None,
    test_data: Frame | None = None,
    settings: Mapping[str, Any] | None = None,
    plain: bool = False,
    server: str | None = None,
    wait: float | None = None,
    yes: bool = False,
    ask: Ask | None = None,
    on_event: Listener | None = None,
    progress: bool = True,
) -> PartyResult:
    """Be one party of a run to its end: align the rows, train with the others, save the model.

    Parameters
    ----------
    run : the run.toml that all sides agree on; or this party's party.toml, which takes the run.toml beside its
        federation.toml.
    party : this party's name, if `run` is a run.toml: its settings are in `party.toml` in the folder of that name
        beside it, or beside it directly. Or the path of a party.toml.
    data : this party's rows, if they are not where party.toml says: a pandas or polars frame, an Arrow table, or
        anything that has `__arrow_c_stream__`. [data] of party.toml says what their columns mean.
    test_data : the test rows; needs `data`.
    settings : what party.toml would say, {"data": {"id": "customer", "label": "bought"}, "model": {"kind": "mlp"}};
        then none is read. Keys and runs are in the folder of the party's name beside run.toml.
    plain : without TLS, on this machine alone.
    server : where the server is, if not where party.toml or federation.toml says.
    wait : how many seconds the server or a party may be missing before the first step; None waits as long as it takes.
    yes : consent to all parties being told which rows are shared, within `align.max_rows` of party.toml.
    ask : a function that puts that question to a person and returns whether they agree.
    on_event : called with every event of this party (`fdml.Event`), in the thread where it happens.
    progress : show a progress bar, in a terminal or a notebook; plain lines elsewhere.

    After an interrupt or a crash the same call goes on from the last saved state, and ends with the same model.
    """
    if data is None and test_data is not None:
        raise SettingsError("test_data is given without data; give both, or set data.test_path in party.toml")
    path, own = _party_of(Path(run), party, settings)
    chosen = None if party is None else Path(run)
    origins = None if data is None else frame_origins(data, test_data)
    with _resumable("fdml.join"), _displayed(own.party, progress=progress) as display:
        return parties.join(
            path,
            chosen,
            plain=plain,
            server=server,
            wait=wait,
            yes=yes,
            ask=ask,
            on_event=_both(display, on_event),
            origins=origins,
            settings=own,
        )


@_without_fresh
def serve(
    federation: str | Path,
    run: str | Path | None = None,
    *,
    plain: bool = False,
    listen: str | None = None,
    port_file: str | Path | None = None,
    on_event: Listener | None = None,
    progress: bool = True,
) -> ServerResult | None:
    """Be the server of a run until all its parties have finished; without `run` of all runs, until it is interrupted.

    Parameters
    ----------
    federation : the federation.toml that all sides agree on; the server's folder is `server` beside it.
    run : the run.toml that all sides agree on. Without it the server hosts all runs that parties start.
    plain : without TLS, on this machine alone.
    listen : an address other than the one by which the parties reach the server; port 0 takes a free one.
    port_file : a file that the port is written to once the server listens.
    on_event : called with every event of the server (`fdml.Event`).
    progress : print what happens.

    It serves in a thread of its own, so it can be called where an event loop runs, as in a notebook. After an
    interrupt or a crash the same call goes on from what was stored.
    """
    display: Listener = RunTerminal(Console(stderr=True)) if progress else ignore_events
    options: dict[str, Any] = {"plain": plain, "listen": listen, "on_event": _both(display, on_event)}
    stored, chosen = (None if path is None else Path(path) for path in (port_file, run))

    def work(on_start: Callable[[Stop], None]) -> ServerResult | None:
        if chosen is not None:
            return servers.serve(Path(federation), chosen, port_file=stored, on_start=on_start, **options)
        servers.serve_federation(Path(federation), port_file=stored, on_start=on_start, **options)
        return None

    with _resumable("fdml.serve"):
        return _in_a_thread(work)


@_without_fresh
def simulate(
    run: str | Path,
    *,
    plain: bool = False,
    on_event: Listener | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Run the server and all parties on this machine, each as a process of its own.

    Parameters
    ----------
    run : a run.toml with federation.toml and the folders of all parties beside it.
    plain : without TLS.
    on_event : called with what the processes say, each line a remark of its side.
    progress : print these lines.

    Returns the counts of the alignment and, from the label party's file, the figures of every evaluated epoch. After
    an interrupt the same call goes on where the run stopped.
    """
    display = _printed_remarks(Console(stderr=True)) if progress else ignore_events
    with _resumable("fdml.simulate"):
        return processes.run_processes(Path(run), plain=plain, on_event=_both(display, on_event))


def predict(
    federation: str | Path,
    ids: Frame | Sequence[Any],
    *,
    run: str | None = None,
    version: str | None = None,
    party: str | None = None,
) -> Any:
    """Ask for joint scores where the folders of all parties are on this machine, as `simulate` leaves them.

    Parameters
    ----------
    federation : the federation.toml, with the folders of all parties beside it.
    ids : the ids of the rows: a list, or a frame with the columns of the asking party's `data.id`.
    run : the name of the run whose model is asked; None takes the newest.
    version : the version of the model, or its first characters.
    party : who asks; None is the label party.

    Returns an Arrow table with a row for every id: score, probability, prediction, who answered, who is missing and
    why. The parties answer by their own settings, and count what they answer in their ledgers.
    """
    place = Path(federation)
    with asking_locally(place, run=run, version=version, party=party) as asker:
        settings = read_party(place.parent / asker.own.party / "party.toml")
        frame = ids if hasattr(ids, "__arrow_c_stream__") or hasattr(ids, "columns") else _id_table(settings, ids)
        asked = AskedFile(frame_origins(frame)[0], settings, asker.own.run, OwnKeys(settings, asker.own.run))
        blocks = asked.table.blocks(asker.rows_at_once)
        return pa.concat_tables([answer_table(asked_columns, asker.ask(rows)) for asked_columns, rows in blocks])


def _id_table(settings: PartySettings, ids: Sequence[Any]) -> pa.Table:
    if len(settings.data.id) != 1:
        raise SettingsError(f"rows have the ids {', '.join(settings.data.id)}; give a frame with these columns")
    return pa.table({settings.data.id[0]: pa.array(ids)})


def party_file(run: Path, party: str | Path | None) -> Path:
    """The party.toml that `join` is meant for; an error if it is another party's or another federation's."""
    if party is None:
        return run
    if isinstance(party, Path) or party.endswith(".toml"):
        path = Path(party)
    else:
        places = (run.parent / party / "party.toml", run.parent / "party.toml")
        path = next((place for place in places if place.is_file()), places[0])
    settings = read_party(path)
    if isinstance(party, str) and party not in (settings.party, str(path)):
        raise SettingsError(f"{path} is of party {settings.party!r}, not of {party!r}; name that party, or its file")
    beside = federation_of(run)
    if beside.exists() and settings.federation.resolve() != beside.resolve():
        raise SettingsError(
            f"{path} is of the federation {str(settings.federation)!r}, and {str(run)!r} of {str(beside)!r}; correct "
            f"`federation` in it"
        )
    return path


def _party_of(run: Path, party: str | Path | None, given: Mapping[str, Any] | None) -> tuple[Path, PartySettings]:
    """Where a party's party.toml is or would be, and its settings."""
    if given is None:
        path = party_file(run, party)
        return path, read_party(path)
    if not isinstance(party, str):
        raise SettingsError("settings in Python need the party's name; give it as `party`")
    home = run.parent / party
    who = federation_of(run).absolute()
    return home / "party.toml", in_folder(PartySettings(**{"party": party, "federation": who, **given}), home)


@contextmanager
def _resumable(call: str) -> Iterator[None]:
    """Let an interrupt pass, with a line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        text = f"stopped; the same call of {call} goes on from here"
        interrupt.add_note(text)
        print_line(Console(stderr=True), f"fdml: {text}")
        raise


@contextmanager
def _displayed(party: str, *, progress: bool) -> Iterator[Listener]:
    if not progress:
        yield ignore_events
        return
    with run_terminal(Console(stderr=True), party) as listener:
        yield listener


def _both(display: Listener, on_event: Listener | None) -> Listener:
    return display if on_event is None else all_of(display, on_event)


def _printed_remarks(console: Console) -> Listener:
    def listen(event: Event) -> None:
        if isinstance(event, Remark):
            print_line(console, f"[{event.party}] {event.text}")

    return listen


def _in_a_thread(work: Callable[[Callable[[Stop], None]], Result]) -> Result:
    """What a function returns that runs an event loop in a thread of its own; an interrupt of this one stops it."""
    stops: list[Stop] = []
    with ThreadPoolExecutor(1, thread_name_prefix="fdml-server") as pool:
        future = pool.submit(work, stops.append)
        try:
            # A wait without end would not hear the interrupt where a library (polars) handles signals beside Python.
            while not wait([future], _STOP_SECONDS).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                if stops:
                    _stop(stops[0])
                wait([future], _STOP_SECONDS)
            raise


def _stop(stop: Stop) -> None:
    with suppress(RuntimeError):  # its loop has ended meanwhile
        stop()
