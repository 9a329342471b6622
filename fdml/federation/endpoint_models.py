"""The models that an endpoint serves: those published in the party's folder, found again when that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from fdml.errors import FdmlError, RequestRefused
from fdml.federation.answering import files_fingerprint
from fdml.federation.asked_columns import AskedColumns
from fdml.federation.party_home import PartyHome
from fdml.federation.predicting import chosen_run, published_asker, published_runs
from fdml.federation.publish import refreshed
from fdml.federation.run_folder import RUNS
from fdml.federation.standing import STANDING
from fdml.party.settings import read_party
from fdml.protocol.quoting import quoted
from fdml.serving.asking import QuestionLine
from fdml.serving.online.model import ServedModel
from fdml.serving.publication import FOLDER, Publication
from fdml.storage.atomic import folder_identity
from fdml.storage.lock import is_locked

_LOOK_SECONDS = 2.0
"""How often the folder is looked at."""
_SHORTEST_VERSION = 4
"""Letters of a version that name it."""


@dataclass(eq=False)
class _Served:
    model: ServedModel
    written: tuple[int, int]
    """The identity of the folder it was read from."""
    files: object
    """The party's files as they were then."""
    watch: asyncio.Task[None] | None = None


class EndpointModels:
    """All published models of a party by the name of their run; the federation's name is that of the chosen one."""

    def __init__(
        self,
        home: PartyHome,
        line: QuestionLine,
        threads: Executor,
        *,
        seconds: float | None,
        report: Callable[[str, str], None],
        unforeseen: Callable[[BaseException], None],
    ) -> None:
        """`report` hears of troubles by their subject, `unforeseen` of errors of any other kind."""
        self._home = home
        self._line = line
        self._threads = threads
        self._seconds = seconds
        self._report = report
        self._unforeseen = unforeseen
        self._served: dict[str, _Served] = {}
        self._chosen = ""

    # As `Models` has it

    def find(self, name: str, version: str | None) -> ServedModel:
        """A model by the name of its run or of the federation, and the first characters of its version."""
        fitting = self._named(name)
        if not fitting:
            listed = ", ".join([*self._served, self._home.federation.name]) if self._served else "none yet"
            raise RequestRefused(404, f"there is no model {quoted(name)}; there are: {listed}")
        if version is None:
            chosen = self._chosen if name not in self._served else name
            if chosen not in fitting:
                raise RequestRefused(
                    503, f"the model that {quoted(name)} means is that of run {chosen!r}, which cannot be asked now"
                )
            return fitting[chosen]
        is_name = len(version) >= _SHORTEST_VERSION
        found = [model for model in fitting.values() if is_name and model.version.startswith(version)]
        if len(found) != 1:
            listed = ", ".join(model.version[:12] for model in fitting.values())
            raise RequestRefused(
                404, f"model {quoted(name)} has no version {quoted(version)}, or several; there are: {listed}"
            )
        return found[0]

    def versions(self, name: str) -> list[str]:
        """All versions that go by this name."""
        return [model.version for model in self._named(name).values()]

    @property
    def is_ready(self) -> bool:
        """Whether the chosen model can be asked."""
        served = self._served.get(self._chosen)
        return served is not None and served.model.is_ready

    async def run(self) -> None:
        """Look at the folder again and again, and probe the parties of every model."""
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(self._threads, self.look)
            for served in list(self._served.values()):
                if served.watch is None:
                    served.watch = loop.create_task(served.model.watch())
            await asyncio.sleep(_LOOK_SECONDS)

    def _named(self, name: str) -> dict[str, ServedModel]:
        served = {run: each.model for run, each in self._served.items()}
        if name in served:
            return {name: served[name]}
        return served if name == self._home.federation.name else {}

    # The folder

    def look(self) -> None:
        """Take in what has been published, changed or promoted since."""
        try:
            published = published_runs(self._home.folder)
            for run in published:
                self._try(run, published[run].version)
            for run in [run for run in self._served if run not in published]:
                gone = self._served.pop(run)
                if gone.watch is not None:
                    gone.watch.get_loop().call_soon_threadsafe(gone.watch.cancel)
            self._chosen = chosen_run(self._home.folder, None, None) if self._served else ""
            self._report("models", "")
        except (FdmlError, OSError) as error:
            self._report("models", f"the models stay as they were: {error}")

    def _try(self, run: str, version: str) -> None:
        """Take in one run; one that cannot be served keeps none of the others back."""
        try:
            self._take_in(run, version)
            self._report(f"trouble of {run}", "")
        except (FdmlError, OSError) as error:
            self._report(f"trouble of {run}", f"run {run!r} stays as it was: {error}")

    def _take_in(self, run: str, version: str) -> None:
        settings = read_party(self._home.file)
        files = files_fingerprint(settings.data.path, settings.data.test_path)
        place = self._home.folder / RUNS / run / FOLDER
        known = self._served.get(run)
        if known is not None and known.model.version == version:
            written = folder_identity(place)
            is_ours = not is_locked(self._home.folder / STANDING)  # else `fdml up` computes predictions anew
            columns = AskedColumns(settings, known.model.run)  # keys that lead on are those of the files as they are
            if written != known.written:
                known.model.renew(Publication.load(place), columns)
                known.written = written
            elif files != known.files and is_ours:
                known.model.renew(refreshed(settings, self._home.folder, run), columns)
                known.written = folder_identity(place)
            known.files = files
        elif self._counts(run):
            written = folder_identity(place)  # before it is read: what comes after is seen at the next look
            asker = published_asker(self._home, run, self._line, self._seconds)
            model = ServedModel(asker, AskedColumns(settings, asker.own.run), self._threads, self._unforeseen)
            if known is not None and known.watch is not None:
                known.watch.get_loop().call_soon_threadsafe(known.watch.cancel)
            self._served[run] = _Served(model, written, files)
            self._report(f"run {run}", f"run {run!r}, version {version[:12]}, can be asked")

    def _counts(self, run: str) -> bool:
        """Whether all parties have finished a run, as far as the server knows it."""
        with self._home.client() as client:
            facts = client.run(run)
        if facts is not None and facts.state != "finished":
            self._report(f"run {run}", f"run {run!r} is {facts.state}; it is served once all have finished")
            return False
        return True
