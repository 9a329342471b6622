"""The live page of a run at one side: the server's status, asked once a second, and this side's own files.

The run does not know that it is watched. What is shown is what `fdml status` and the report show to the same side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fdml.errors import FdmlError, ServerUnreachable, SettingsError
from fdml.events import Evaluated
from fdml.federation.endpoint_counts import read_counts
from fdml.federation.findings import COMPARED
from fdml.federation.run_folder import RUNS, SETTINGS, run_names
from fdml.federation.run_record import RunRecord, newest_run, read_record
from fdml.federation.run_report import REPORT
from fdml.federation.status import AskedRun, ReadStatus
from fdml.federation.watch_sections import NOTHING_OWN, account_rows, own_sections, with_own_shares
from fdml.monitor.figures import TITLES
from fdml.monitor.history import metric_of
from fdml.monitor.live import LiveFacts, LiveRun, Sentence
from fdml.monitor.page_server import PageServer, Published
from fdml.monitor.prometheus import metrics_text
from fdml.monitor.thinning import thinned
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.protocol.messages import Metrics
from fdml.settings import GuardSettings

ASK_SECONDS = 1.0
"""How often the server is asked."""
_ANSWER_SECONDS = 2.0
"""How long the server may take to answer; then the page says so, and it is asked again."""
_FILE_SECONDS = 2.0
"""How often this side's own files are read."""
_PEER_TIMEOUT = 600.0
"""The time-out of a run whose settings are not known here yet."""


class Watch:
    """Watches one run, and keeps what its page shows."""

    def __init__(
        self,
        path: Path,
        run: str | None = None,
        *,
        plain: bool = False,
        server: str | None = None,
        seconds: float = _ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._asked = AskedRun(path, run, plain=plain, server=server, seconds=seconds)
        self._clock = clock
        self._live = LiveRun(self._facts(run or "", None), clock)
        self._record: RunRecord | None = None
        self._read_at = -_FILE_SECONDS
        self._read_times: list[tuple[str, int]] = []
        self._metrics: tuple[Metrics, ...] = ()
        own = self._asked.folder / "party.toml"
        self._settings = read_party(own) if own.is_file() and self.side != SERVER else None
        self._guard = GuardSettings() if self._settings is None else self._settings.guard
        self._accounts: dict[str, Any] | None = None
        self._drawn: tuple[object, dict[str, Any]] | None = None
        """The curves, and what they are made of."""
        self.published = Published()

    @property
    def side(self) -> str:
        """Who watches."""
        return self._asked.side

    def look(self) -> None:
        """Ask the server once, read the files if it is time, and publish what there is."""
        if not self._is_over:
            self._ask()
        self._read_files()
        if self._record is not None and self._record.card is not None:
            self._live.note_own_end()
        self.published.publish(self.state())

    @property
    def _is_over(self) -> bool:
        """Whether all parties have finished, so that the server has nothing new to say."""
        status = self._live.status
        return status is not None and bool(status.parties) and all(each.finished for each in status.parties)

    def _ask(self) -> None:
        try:
            self._take(self._asked.ask())
        except ServerUnreachable as error:
            self._live.note_silence(str(error))
        except FdmlError as error:
            self._live.note_refusal(str(error))

    def _take(self, found: ReadStatus) -> None:
        self._metrics = found.metrics
        self._live.note(found.status)

    def _read_files(self) -> None:
        now = self._clock()
        if now - self._read_at < _FILE_SECONDS:
            return
        self._read_at = now
        if self.side == SERVER or (name := self._name) not in run_names(self._asked.folder):
            return
        times = _file_times(self._asked.folder, name)
        if times == self._read_times:  # a long history takes a second to read
            return
        self._read_times = times
        self._record = read_record(self._asked.folder, self.side, name)
        self._accounts = None if self._settings is None else account_rows(self._settings)
        self._live.facts = self._facts(name, self._record)

    @property
    def _name(self) -> str:
        """The run that is shown: where no server answers, the one that was begun last here."""
        if self._live.status is not None:
            return self._live.status.run
        known = run_names(self._asked.folder)
        return self._live.facts.run or (newest_run(self._asked.folder) if known and self.side != SERVER else "")

    def _facts(self, name: str, record: RunRecord | None) -> LiveFacts:
        if record is None:
            return LiveFacts(name, self._asked.side, (), _PEER_TIMEOUT)
        planned = record.measures.scheduled
        run = record.settings
        return LiveFacts(
            name,
            self._asked.side,
            run.parties,
            run.training.peer_timeout_seconds,
            rows_per_step=None if planned is None else planned.rows / planned.blocks,
            blocks=None if planned is None else planned.blocks,
            epochs=None if planned is None else planned.epochs,
        )

    def state(self) -> dict[str, Any]:
        """All that the page shows, as JSON values."""
        status, said, record = self._live.status, self._live.sentence, self._record
        has_finished = record is not None and record.card is not None
        steps = self._planned if status is None else status.steps
        if record is not None and has_finished:
            text = said.text if said.level == "done" else "Finished: this party's model is written."
            report = f"{RUNS}/{record.settings.name}/{REPORT}"
            said = Sentence(text, "done", f"What it brought is in `{report}`, in this party's folder.")
        return {
            "run": self._name,
            "side": self.side,
            "sentence": {"text": said.text, "level": said.level, "advice": said.advice},
            "steps": steps,
            "step": steps if has_finished else self._live.step,
            "seconds_left": self._live.seconds_left,
            "parties": with_own_shares(self._live.rows(), None if record is None else record.measures),
            "refused": {} if status is None else dict(status.refused),
            "curves": self._curves(),
            "levels_note": "" if record is None else record.levels_note,
            "serving": None if self.side == SERVER else read_counts(self._asked.folder),
            **self._own(),
        }

    @property
    def _planned(self) -> int:
        """Steps of the run by this party's own plan; 0 where there is none."""
        facts = self._live.facts
        return (facts.blocks or 0) * (facts.epochs or 0)

    def _curves(self) -> dict[str, Any]:
        """Made anew only where there is something new: a long history takes a while."""
        source: object = self._metrics if self._record is None or not self._record.epochs else self._record
        if self._drawn is None or self._drawn[0] is not source:
            self._drawn = source, self._new_curves()
        return self._drawn[1]

    def _new_curves(self) -> dict[str, Any]:
        record = self._record
        epochs: Sequence[Evaluated | Metrics] = ()
        if record is not None and record.epochs:
            epochs = record.epochs
        elif self._metrics:
            epochs = self._metrics
        metric = "metric" if record is None else TITLES[metric_of(record.settings.task, record.settings.loss)]
        names = {"train_loss": "Training loss", "test_loss": "Held-out loss", "test_metric": f"Held-out {metric}"}
        found = {name: self._series(epochs, name, title) for name, title in names.items()}
        for name, levels in {} if record is None else record.levels.items():
            found[name]["levels"] = [[scheme, value] for scheme, value in levels.items()]
        return {name: each for name, each in found.items() if each["epoch"]}

    @staticmethod
    def _series(epochs: Sequence[Evaluated | Metrics], name: str, title: str) -> dict[str, Any]:
        """At most 2,000 points, each with its epoch, the seconds of training, and its value."""
        known = [each for each in epochs if getattr(each, name) is not None]
        seconds = {float(each.epoch): each.seconds or 0.0 for each in known}
        points = thinned([(float(each.epoch), float(getattr(each, name))) for each in known])
        return {
            "title": title,
            "epoch": [x for x, _ in points],
            "seconds": [round(seconds[x], 3) for x, _ in points],
            "values": [y for _, y in points],
            "levels": [],
        }

    def _own(self) -> dict[str, Any]:
        """What only this party's own files have."""
        record = self._record
        if record is None:
            return NOTHING_OWN
        return {**own_sections(record, self._guard), "accounts": self._accounts, "next": _next(record)}

    def metrics(self) -> str:
        """The same for Prometheus."""
        return metrics_text(self.state())


def _file_times(home: Path, name: str) -> list[tuple[str, int]]:
    """When each file about a run was written last; empty while files are being replaced."""
    try:
        kept = [path for path in (home / RUNS / name).iterdir() if not path.name.startswith(".")]
        kept += home.glob(COMPARED)
        return sorted((path.name, path.stat().st_mtime_ns) for path in kept)
    except OSError:
        return []


def _next(record: RunRecord) -> list[str]:
    """What to type next, and why."""
    name = record.settings.name
    if record.card is not None:
        return ["The run is over. Its report again:", f"fdml report party.toml --run {name}"]
    return [
        "After a crash this goes on where the party stopped:",
        f"fdml join party.toml --run {RUNS}/{name}/{SETTINGS}",
    ]


def _page_server(watched: Watch, host: str, port: int, token: str | None) -> PageServer:
    try:
        return PageServer(host, port, watched.published, watched.metrics, token)
    except OSError as error:
        raise SettingsError(
            f"cannot listen at {host}:{port} ({error.strerror}): choose another place with --listen HOST:PORT; port 0 "
            f"takes a free one"
        ) from None


def watch(
    watched: Watch,
    host: str,
    port: int,
    *,
    token: str | None = None,
    on_start: Callable[[PageServer], None],
    stop: threading.Event | None = None,
) -> None:
    """Serve the page until `stop` is set; `on_start` is called once it can be opened."""
    ended = stop or threading.Event()
    with _page_server(watched, host, port, token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="page", daemon=True)
        watched.published.publish(watched.state())
        thread.start()
        try:
            watched.look()
            on_start(server)
            while not ended.wait(ASK_SECONDS):
                watched.look()
        finally:
            watched.published.close()
            server.shutdown()
            thread.join(5.0)
