"""The one process of a party that speaks to Ray: it has an actor for each line, and passes tasks and answers on.

python -m fdml.cluster.ray_process ADDRESS SOCKET

It ends with its standard input, so it does not outlive its party, and its actors end with it. The party's own process,
which has the keys, opens no port of Ray's, unpickles nothing, and goes on where Ray ends this one.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError, RayTaskError

from fdml.cluster.frames import Frame, from_bytes, read_frame, to_bytes, write_frame
from fdml.cluster.ray_actor import RayWorker, content_of, file_facts, installed, processor
from fdml.cluster.row_files import file_places, place_key, size_of, with_sent

_LOOK, _MISSES, _PROBE = 1.0, 3, 2.0
"""Seconds between looks at a silent node, how often it may miss one, and seconds that it has to answer."""
_SHUNNED = 60.0
"""Seconds for which a node that was silent gets no new actor; Ray itself takes 15 s to know that one is dead."""
LABEL = "ray.io/node-id"


class _Lost(Exception):
    """An actor cannot be asked any more."""


class _PartyGone(Exception):
    """Nobody waits for the answer."""


class Nodes:
    """The nodes of the cluster: what a person calls them, whether they answer, where no new actor should be."""

    def __init__(self) -> None:
        self._silent: dict[str, float] = {}

    def name(self, node: str) -> str:
        """The node's name and address."""
        name, address = next(
            ((each["NodeName"], each["NodeManagerAddress"]) for each in _nodes() if each["NodeID"] == node),
            ("a node", "an unknown address"),
        )
        return str(address) if name == address else f"{name} at {address}"

    def answers(self, node: str) -> bool:
        """Whether something takes calls at the node's own port."""
        found = [each for each in _nodes() if each["NodeID"] == node and each["Alive"]]
        return any(_answers(each["NodeManagerAddress"], each["NodeManagerPort"]) for each in found)

    def shun(self, node: str) -> None:
        """Put no new actor there for a while."""
        self._silent[node] = time.monotonic()

    def unfit(self) -> list[str]:
        """Nodes that Ray takes for alive and that should get no new actor; none where all are such."""
        alive = [each["NodeID"] for each in _nodes() if each["Alive"]]
        silent = {node for node, since in self._silent.items() if time.monotonic() - since < _SHUNNED}
        unfit = [node for node in alive if node in silent or not self.answers(node)]
        return [] if len(unfit) == len(alive) else sorted(unfit)


def _nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _PROBE).close()
    except OSError:
        return False
    return True


class Gateway:
    """Serves lines, each with an actor of its own."""

    def __init__(self) -> None:
        self._nodes = Nodes()
        self._sent: dict[str, Any] = {}
        self._lock = threading.Lock()

    def serve(self, connection: socket.socket) -> None:
        """One line, until either side of it is gone."""
        actor = None
        made = connection.makefile("rwb")
        with connection, made, contextlib.suppress(OSError, _PartyGone):
            file = cast(IO[bytes], made)
            opening = read_frame(file)
            if opening is None:
                return
            deadline = time.monotonic() + opening.facts["seconds"]
            try:
                actor = self._placed()
                node = self._begun(actor, opening, connection, file, deadline)
                while node is not None and (asked := read_frame(file)) is not None:
                    deadline = time.monotonic() + asked.facts["seconds"]
                    answer = self._wait(actor.answer.remote(_content(asked)), node, connection, deadline)
                    write_frame(file, _with_content({}, answer))
            except _Lost as lost:
                write_frame(file, Frame({"lost": str(lost)}))
            except RayError as error:  # of placing an actor, or of storing rows
                write_frame(file, Frame({"lost": f"is lost: {type(error).__name__}: {' '.join(str(error).split())}"}))
            finally:
                if actor is not None:
                    ray.kill(actor)

    def _placed(self) -> Any:
        """A new actor, which Ray puts where there is room, one node after the other."""
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        if unfit := self._nodes.unfit():
            options["label_selector"] = {LABEL: f"!in({','.join(unfit)})"}
        return ray.remote(RayWorker).options(**options, scheduling_strategy="SPREAD").remote()

    def _begun(
        self, actor: Any, opening: Frame, connection: socket.socket, file: IO[bytes], deadline: float
    ) -> str | None:
        """Set an actor up and tell the party where it is, or why it may not be there; its node, if it may."""
        setup = from_bytes(_content(opening))
        places = list(file_places(setup.facts))
        files = {path: file_facts(path) for path in {place["file"] for place in places}}
        asked = actor.look.remote(to_bytes(Frame({"files": files})))
        found = from_bytes(self._wait(asked, None, connection, deadline)).facts
        node, name = found["node"], self._nodes.name(found["node"])
        here = installed()
        others = [
            f"{each} {found['installed'][each]}, not {here[each]}"
            for each in here
            if found["installed"][each] != here[each]
        ]
        if others:
            write_frame(file, Frame({"refused": f"{name} has {'; '.join(others)}"}))
            return None
        unseen = [place for place in places if place["file"] in found["unseen"]]
        names = {place_key(place): f"sent/{number}" for number, place in enumerate(unseen)}
        facts = Frame(with_sent(setup.facts, names), setup.arrays)
        begun = actor.begin.remote(to_bytes(facts), list(names.values()), *self._references(unseen))
        answer = self._wait(begun, node, connection, deadline)
        told = {
            "machine": f"{name}, process {found['process']}",
            "other processor": "" if found["processor"] == processor() else f"{name} ({found['processor']})",
            "sent": sum(map(size_of, unseen)),
        }
        write_frame(file, _with_content(told, answer))
        return str(node)

    def _references(self, places: Sequence[dict[str, Any]]) -> list[Any]:
        """Arrays in Ray's own store, which brings each to a node once."""
        found = {}
        for place in places:
            key = place_key(place)
            with self._lock:
                if key not in self._sent:
                    self._sent[key] = ray.put(content_of(place))
                found[key] = self._sent[key]
        return list(found.values())

    def _wait(self, result: Any, node: str | None, connection: socket.socket, deadline: float) -> bytes:
        """A result; raises where its node is silent, at the deadline, and where the party has gone."""
        began, misses = time.monotonic(), 0
        while True:
            left = deadline - time.monotonic()
            done, _ = ray.wait([result], timeout=max(0.0, min(_LOOK, left)))
            if done:
                return _result(done[0])
            if select.select([connection], [], [], 0.0)[0]:
                raise _PartyGone
            if node is not None:
                misses = 0 if self._nodes.answers(node) else misses + 1
                if misses >= _MISSES or left <= 0.0:
                    self._nodes.shun(node)
            if misses >= _MISSES:
                raise _Lost("is gone: its node does not answer any more")
            if left <= 0.0:
                what = "has not answered" if node else "was not started by Ray (is there a node with a free CPU?)"
                raise _Lost(f"{what} within {time.monotonic() - began:.0f} s")


def _result(reference: Any) -> bytes:
    try:
        return bytes(ray.get(reference))
    except RayTaskError as error:
        raise _Lost(f"failed with {type(error.cause).__name__}: {error.cause}") from None
    except ActorUnschedulableError:
        raise _Lost("has no node that it can be on") from None
    except RayActorError:
        raise _Lost("is gone: its process or its node has ended") from None
    except RayError as error:
        raise _Lost(f"is lost ({type(error).__name__})") from None


def _content(frame: Frame) -> bytes:
    return frame.arrays["content"].tobytes()


def _with_content(facts: dict[str, Any], content: bytes) -> Frame:
    return Frame(facts, {"content": np.frombuffer(content, np.uint8)})


def _connect(address: str) -> None:
    """Connect to the cluster; whatever is wrong ends this process with a line that says it."""
    host, _, port = address.rpartition(":")
    if host and not _answers(host, int(port)):
        sys.exit(f"nothing answers at {address}")
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _end_with_the_party(folder: Path) -> None:
    while os.read(0, 1):  # not of sys.stdin: its lock would be missed when the interpreter ends
        continue
    shutil.rmtree(folder, ignore_errors=True)  # a party that was killed cannot
    os._exit(0)


def main() -> None:
    """Serve lines until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the party ends this process itself
    address, path = sys.argv[1:]
    os.chdir(Path(path).parent)  # Ray has its workers import from where this process is
    threading.Thread(target=_end_with_the_party, args=(Path(path).parent,), daemon=True).start()
    _connect(address)
    gateway = Gateway()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=gateway.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
