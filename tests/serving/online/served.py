"""An endpoint on a real socket in a thread of the test process, around models that are made by hand."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from fdml.data.ids import key_texts
from fdml.errors import DataError, RequestRefused
from fdml.protocol.prediction_messages import Reply
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.client import EndpointClient
from fdml.serving.local_line import LocalLine
from fdml.serving.online.access import Access
from fdml.serving.online.app import Endpoint
from fdml.serving.online.connections import http_server
from fdml.serving.online.model import ServedModel
from fdml.serving.online.spans import no_spans
from fdml.settings.data import IdSettings
from tests.serving.published import IDS, answerer_of, publication_of, run_of, values_of
from tests.transport.served import until

INFER = "/v2/models/first/infer"


class DisturbedLine:
    """A line to parties in this process, of which some are away or slow for as long as a test wants."""

    def __init__(self, line):
        self._line = line
        self.away, self.slow = set(), {}
        self.asked = []
        """The number of rows in each question's sealed bytes is not seen: these are the parties of each."""
        self.error = None

    def exchange(self, questions, seconds):
        self.asked.append(tuple(each.party for each in questions))
        if self.error is not None:
            raise self.error
        delay = max([self.slow.get(each.party, 0.0) for each in questions])
        found = dict(self._line.exchange([each for each in questions if each.party not in self.away], seconds))
        time.sleep(min(delay, seconds))
        for each in questions:
            if each.party in self.away:
                found[each.party] = Reply(each.number, each.run, each.party, absent="it is not standing by (`fdml up`)")
            elif self.slow.get(each.party, 0.0) > seconds:
                del found[each.party]
        return found


class Columns:
    """Ids of one column."""

    def __init__(self, *names):
        self.needed = names or ("user",)
        self.optional = ()

    def rows(self, columns):
        texts = key_texts({name: columns[name] for name in self.needed}, IdSettings())
        if texts.null_count:
            raise DataError("row 1 has no id in user")
        return AskedRows(texts)


class FixedModels:
    """Models by name, which never change."""

    def __init__(self, **models):
        self._models = models

    def find(self, name, version):
        model = self._models.get(name)
        if model is None:
            raise RequestRefused(404, f"there is no model {name!r}")
        if version is not None and not model.version.startswith(version):
            raise RequestRefused(404, f"model {name!r} has no version {version!r}")
        return model

    def versions(self, name):
        return [self._models[name].version]

    @property
    def is_ready(self):
        return all(model.is_ready for model in self._models.values())

    async def run(self):
        for model in self._models.values():
            await model.watch()


class Listening:
    """An application on a port of this machine, in a thread."""

    def __init__(self, app, tls=None):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = http_server(app, tls)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def start(self):
        self._thread.start()
        until(lambda: self._server.started, "the endpoint")

    def stop(self):
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._socket.close()


@contextlib.contextmanager
def over_http(asker, column="id"):
    """A client of an endpoint around an asker, whose model is called "first"."""
    errors = []
    with ThreadPoolExecutor(4) as threads:
        model = ServedModel(asker, Columns(column), threads, errors.append)
        app = Endpoint(FixedModels(first=model), None, errors.append, Access().names_host).app()
        listening = Listening(app)
        listening.start()
        try:
            with EndpointClient(f"http://127.0.0.1:{listening.port}") as client:
                yield client
        finally:
            listening.stop()
    assert errors == []


class OpenEndpoint:
    """Use it as a context. `line` can be disturbed, and `values` are what each party has."""

    def __init__(
        self,
        *,
        run=None,
        ids=IDS,
        token=None,
        releases=None,
        rules=None,
        seconds=5.0,
        tls=None,
        columns=None,
        counts=None,
        spans=no_spans,
        **options,
    ):
        self.run = run or run_of()
        rows, width = len(ids), 3 if self.run.task == "multiclass" else 1
        self.values = values_of(self.run.parties, rows, width)
        found = {
            name: publication_of(name, ids, self.values[name], run=self.run, **options) for name in self.run.parties
        }
        self.publications = found
        asker = self.run.label_party
        answerers = {
            name: answerer_of(each, releases, **(rules or {})) for name, each in found.items() if name != asker
        }
        self.line = DisturbedLine(LocalLine(asker, answerers, self.run.parties))
        self.asker = Asker(found[asker], self.line, seconds=seconds)
        self.errors = []
        self._threads = ThreadPoolExecutor(8)
        self.model = ServedModel(self.asker, columns or Columns(), self._threads, self.errors.append)
        access = Access(token_file=token and Path("token"))
        models, report = FixedModels(first=self.model), self.errors.append
        app = Endpoint(models, token, report, access.names_host, counts=counts, spans=spans).app()
        self._server = Listening(app, tls)
        self.port = self._server.port
        self.token, self.tls = token, tls

    def __enter__(self):
        self._server.start()
        until(lambda: self.model.missing() != dict.fromkeys(self.model.others, "it was not asked yet"), "a first probe")
        return self

    def __exit__(self, *_):
        self._server.stop()
        self._threads.shutdown()

    @property
    def url(self):
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def client(self, **options):
        token = None if self.token is None else self.token.decode()
        return EndpointClient(self.url, **{"token": token, **options})

    def call(self, method, path, body=None, headers=None):
        """Status, headers and body of a request that may be anything."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            line.request(method, path, body, headers or {})
            response = line.getresponse()
            return response.status, response.headers, response.read()
        finally:
            line.close()

    def infer(self, content, path=INFER, **headers):
        """Status and JSON of a request with a JSON body."""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): each for name, each in headers.items()}}
        status, _, body = self.call("POST", path, raw, given)
        return status, json.loads(body)

    def total(self, rows):
        """What the scores of rows must be."""
        return sum(self.values[name][rows] for name in self.values)


def ids_input(*ids, name="user", **more):
    return {"name": name, "datatype": "BYTES", "shape": [len(ids)], "data": list(ids), **more}


def asked(*ids, **more):
    return {"inputs": [ids_input(*ids)], **more}


def output(content, name):
    return next(each["data"] for each in content["outputs"] if each["name"] == name)


def rows_of(*ids):
    return AskedRows(pa.array(ids, pa.large_string()))
