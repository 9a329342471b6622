"""A standing party's answers: a thread holds its line to the server, one computes columns anew when files change.

Where there is no server, a thread holds a line to each other party, over which that one asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from fdml.errors import ExchangeError, FdmlError, ServerUnreachable
from fdml.events import Listener
from fdml.federation.party_folder import PartyFolder
from fdml.federation.party_home import PartyHome
from fdml.federation.predicting import answer_rules, releases_of
from fdml.federation.publish import publish, refreshed
from fdml.federation.run_folder import MODEL, RUNS, begun_run, run_names
from fdml.party.settings import PartySettings, read_party
from fdml.protocol.prediction_messages import Question, Reply
from fdml.serving.answer_rules import AnsweredRows
from fdml.serving.answering import Answerer
from fdml.serving.publication import FOLDER, Publication, is_published
from fdml.serving.releases import LedgerReleases
from fdml.storage.atomic import folder_identity
from fdml.transport.grpc_relay import answer_questions

_LOOK_SECONDS = 2.0
"""How often it is looked whether files have changed."""


class PublishedModels:
    """The published models of a party's folder by the name of their run, each mapped when it is first asked for."""

    def __init__(self, home: Path, is_finished: Callable[[str], bool]) -> None:
        """`is_finished` says of a run whether all parties have finished it: before that its version does not count."""
        self._home = home
        self._is_finished = is_finished
        self._known: dict[str, tuple[tuple[int, int], Publication]] = {}

    def find(self, run: str) -> Publication | None:
        """The model of a run as it is on disk now."""
        place = self._home / RUNS / run / FOLDER
        if run not in run_names(self._home) or not self._is_finished(run) or not is_published(place):
            self._known.pop(run, None)  # one that was forgotten stays on disk for as long as it is mapped
            return None
        written = folder_identity(place)
        known = self._known.get(run)
        if known is None or known[0] != written:
            known = self._known[run] = (written, Publication.load(place))
        return known[1]


class Answering:
    """Answers questions for as long as a party stands by."""

    def __init__(
        self,
        read: Callable[[], PartyHome],
        is_finished: Callable[[str], bool],
        *,
        on_event: Listener,
        report: Callable[[str, str], None],
    ) -> None:
        """`read` gives the party's settings and keys as they are now; `report` hears of troubles, by their subject."""
        self._read = read
        self._home = home = read()
        self._on_event = on_event
        self._report = report
        self._is_finished = is_finished
        self._over = threading.Event()
        self._models = PublishedModels(home.folder, is_finished)
        self._fingerprints: dict[str, object] = {}
        self._releases: tuple[object, LedgerReleases] | None = None
        self._answered = AnsweredRows()
        self._turn = threading.Lock()
        """Questions are answered one after the other, over whatever line they come."""
        self._threads = [
            *(threading.Thread(target=self._answer, args=(name,), name="answers", daemon=True) for name in home.relays),
            threading.Thread(target=self._refresh, name="columns", daemon=True),
        ]

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Answer nothing more."""
        self._over.set()

    # Answers

    def _answer(self, relay: str) -> None:
        while not self._over.is_set():
            try:
                self._home = self._read()
                answer_questions(
                    self._home.relays[relay],
                    self._reply,
                    self._over.is_set,
                    on_event=self._on_event,
                    trouble=self._note,
                )
            except FdmlError as error:
                self._report("questions", str(error))
                self._over.wait(_LOOK_SECONDS)

    def _note(self, trouble: ExchangeError | None) -> None:
        """That the server is away is told by whoever watches for runs."""
        if not isinstance(trouble, ServerUnreachable):
            self._report("questions", "" if trouble is None else f"no questions can be answered: {trouble}")

    def _reply(self, question: Question) -> Reply:
        """By party.toml as it is now: who may ask and what may be spent can be changed while it stands by."""
        with self._turn:
            return self._reply_in_turn(question)

    def _reply_in_turn(self, question: Question) -> Reply:
        try:
            settings = read_party(self._home.file)
            kept = (settings.ledger, settings.guard, settings.policy)
            if self._releases is None or self._releases[0] != kept:
                self._releases = (kept, releases_of(settings))
            rules = answer_rules(settings.policy)
            return Answerer(self._models.find, self._releases[1], lambda: rules, self._answered).answer(question)
        except (FdmlError, OSError) as error:
            self._report("questions", f"a question of {question.party} could not be answered: {error}")
            return Reply(question.number, question.run, question.party, absent="it has an error; its log says which")

    # Columns

    def _refresh(self) -> None:
        """Compute columns anew whose files have changed: seen by the time and size of local files."""
        while not self._over.wait(_LOOK_SECONDS):
            try:
                settings = read_party(self._home.file)
                fingerprint = files_fingerprint(settings.data.path, settings.data.test_path)
                for run in run_names(self._home.folder):
                    if self._fingerprints.get(run) != fingerprint and self._is_finished(run):
                        self._renew_column(settings, run, is_new=run not in self._fingerprints)
                        self._fingerprints[run] = fingerprint
            except (FdmlError, OSError) as error:
                self._report("rows", f"predictions stay as they were: {error}")

    def _renew_column(self, settings: PartySettings, run: str, *, is_new: bool) -> None:
        """Of a run that has a model: one that ended in a crash may not be published yet."""
        home = self._home.folder
        if is_published(home / RUNS / run / FOLDER):
            found = refreshed(settings, home, run)
            if not is_new:
                self._report(f"rows of {run}", f"run {run!r}: {len(found.column):,} rows can be asked for")
        elif (home / RUNS / run / MODEL).is_dir():
            publish(PartyFolder(self._home.file, begun_run(home, run)))


def files_fingerprint(*places: Path | str | None) -> object:
    """Another one where a local file has changed; folders and addresses are looked at once, when the party starts."""
    stats = [place.stat() for place in places if isinstance(place, Path) and place.is_file()]
    return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in stats)
