"""The HTTP endpoint: paths, statuses and bodies of Open Inference Protocol v2, around models that can be asked."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from fdml.errors import RequestRefused
from fdml.monitor.prometheus import METRICS_TYPE
from fdml.protocol.quoting import quoted, shown
from fdml.serving.online.access import check_token
from fdml.serving.online.inference import HEADER_LENGTH, read_request, write_response
from fdml.serving.online.model import ServedModel, outputs_of
from fdml.serving.online.openapi import description, page
from fdml.serving.online.request_counts import UNKNOWN, RequestCounts
from fdml.serving.online.spans import Spans, no_spans

MOST_BODY = 8 * 2**20
"""Bytes of a request."""
_BODY_SECONDS = 10.0
"""In which a request's body must have come."""
_MOST_PASSING, _PASSING_SECONDS = 64 * 2**20, 5.0
"""Bytes of a refused request that are read and forgotten, and for how long."""
_LONGEST_ERROR = 800
_OPEN = ("/v2/health/live", "/v2/health/ready", "/openapi.json", "/docs")
"""Paths that need no token: they name no model."""
_INFER_TYPES = ("application/json", "application/octet-stream", "")


class Models(Protocol):
    """The models that are served just now."""

    def find(self, name: str, version: str | None) -> ServedModel:
        """A model by the name of its run or of the federation; raises `RequestRefused` where there is none."""
        ...

    def versions(self, name: str) -> list[str]:
        """All versions that go by this name."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the model that a caller means without a version can be asked."""
        ...

    async def run(self) -> None:
        """Keep them up to date, until it is cancelled."""
        ...


Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class _Answered:
    """What is counted of one request."""

    model: str = UNKNOWN
    rows: int = 0
    without: tuple[str, ...] = ()


class Endpoint:
    """All paths of the endpoint."""

    def __init__(
        self,
        models: Models,
        token: bytes | None,
        report: Callable[[BaseException], None],
        names_host: Callable[[str], bool],
        *,
        counts: RequestCounts | None = None,
        spans: Spans = no_spans,
    ) -> None:
        """`report` hears of errors that nobody foresaw; `names_host` says whether a Host header is this endpoint.

        `counts` counts requests, `spans` traces them.
        """
        self._models = models
        self._token = token
        self._report = report
        self._names_host = names_host
        self._counts = counts or RequestCounts()
        self._spans = spans

    def app(self) -> Starlette:
        """The application, for an ASGI server."""
        model = "/v2/models/{name}"
        paths: dict[str, Handler] = {
            "/v2": self._server,
            "/v2/health/live": self._live,
            "/v2/health/ready": self._ready,
            "/openapi.json": self._openapi,
            "/docs": self._page,
            "/metrics": self._metrics,
        }
        routes = [Route(path, self._guarded(path, handler), methods=["GET"]) for path, handler in paths.items()]
        for place in (model, f"{model}/versions/{{version}}"):
            routes += [
                Route(place, self._guarded(place, self._metadata), methods=["GET"]),
                Route(f"{place}/ready", self._guarded(place, self._model_ready), methods=["GET"]),
                Route(f"{place}/infer", self._counted(self._guarded(place, self._infer)), methods=["POST"]),
            ]
        handlers: Mapping[Any, Any] = {
            HTTPException: _http_error,
            Exception: self._unforeseen,
        }
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._models.run())
        try:
            yield
        finally:
            task.cancel()

    def _guarded(self, path: str, handler: Handler) -> Handler:
        """With the token asked for, but at paths that anybody may see."""

        async def guarded(request: Request) -> Response:
            try:
                if path not in _OPEN:
                    self._check_page(request)
                    check_token(self._token, request.headers.get("authorization"))
                return await handler(request)
            except RequestRefused as refused:
                if not getattr(request.state, "is_read", False):
                    await _let_pass(request)
                return _error(refused.status, str(refused))

        return guarded

    def _check_page(self, request: Request) -> None:
        """A page that somebody on this machine looks at could ask in their name."""
        if "origin" in request.headers:
            raise RequestRefused(403, "the request comes from a web page, and those may not ask")
        host = request.headers.get("host", "")
        if not self._names_host(host):
            raise RequestRefused(
                403, f"the request is for host {quoted(host)}; without a token ask at 127.0.0.1 or localhost"
            )

    def _counted(self, handler: Handler) -> Handler:
        """With every answer counted and traced, refusals too; a model counts under its run, whatever it was called."""

        async def counted(request: Request) -> Response:
            began, status, found = time.monotonic(), 500, _Answered()
            request.state.answered = found
            with self._spans("request") as span:
                try:
                    response = await handler(request)
                    status = response.status_code
                    return response
                finally:
                    self._counts.note(
                        found.model, status, time.monotonic() - began, rows=found.rows, without=found.without
                    )
                    span.set_attributes(
                        {"fdml.model": found.model, "fdml.rows": found.rows, "http.response.status_code": status}
                    )

        return counted

    # Paths

    async def _metrics(self, _: Request) -> Response:
        return Response(self._counts.metrics(), media_type=METRICS_TYPE)

    async def _server(self, _: Request) -> Response:
        return _json({"name": "fdml", "version": metadata.version("fdml"), "extensions": ["binary_tensor_data"]})

    async def _live(self, _: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, _: Request) -> Response:
        is_ready = self._models.is_ready
        return _json({"ready": is_ready}, 200 if is_ready else 503)

    async def _openapi(self, _: Request) -> Response:
        return _json(description())

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(
            page(), headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )

    async def _metadata(self, request: Request) -> Response:
        name, model = self._found(request)
        versions = self._models.versions(name)
        return _json({"name": name, "versions": versions, "run": model.run.name, **model.metadata})

    async def _model_ready(self, request: Request) -> Response:
        name, model = self._found(request)
        missing = model.missing()
        found: dict[str, Any] = {"name": name, "ready": model.is_ready}
        if missing:
            found["parameters"] = {"parties_missing": ",".join(missing), "why": _why(missing)}
        return _json(found, 200 if model.is_ready else 503)

    async def _infer(self, request: Request) -> Response:
        name, model = self._found(request)
        noted = request.state.answered
        noted.model = model.run.name
        _check_headers(request)
        body = await _body(request)
        asked = read_request(body, request.headers.get(HEADER_LENGTH), model.rows_at_once)
        answers = await model.answers(asked, self._spans)
        outputs = outputs_of(answers, asked.outputs, asked.is_binary)
        facts: dict[str, Any] = {"model_name": name, "model_version": model.version}
        if asked.id:
            facts["id"] = asked.id
        missing = [party for at, party in enumerate(model.run.parties) if answers.missed[:, at].any()]
        noted.rows, noted.without = len(answers.has_score), tuple(missing)
        facts["parameters"] = {
            "parties_missing": ",".join(missing),
            "rows_without_score": int((~answers.has_score).sum()),
        }
        content, length = write_response(facts, outputs)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(length)})

    def _found(self, request: Request) -> tuple[str, ServedModel]:
        name = request.path_params["name"]
        return name, self._models.find(name, request.path_params.get("version"))

    async def _unforeseen(self, _: Request, error: Exception) -> Response:
        self._report(error)
        return _error(500, "an error in this endpoint; its log says which")


def _check_headers(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise RequestRefused(415, f"the body has the encoding {quoted(encoding)}; send it as it is")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _INFER_TYPES:
        raise RequestRefused(415, f"the body has the type {quoted(kind)}; send application/json or octet-stream")


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is known to be too long."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > MOST_BODY):
        raise RequestRefused(413, f"the body has {length[:20]} bytes; {MOST_BODY} is the most: send fewer ids")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY:
                    raise RequestRefused(413, f"the body has over {MOST_BODY} bytes: send fewer ids")
                parts.append(part)
    except TimeoutError:
        raise RequestRefused(408, f"the body did not come within {_BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise RequestRefused(400, "the caller left before its request was complete") from None
    request.state.is_read = True
    return b"".join(parts)


async def _let_pass(request: Request) -> None:
    """Read the rest of a body and forget it: a caller that still sends would not see the answer."""
    size = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_PASSING_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _MOST_PASSING:
                    return


def _why(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {words}" for name, words in missing.items())


def _json(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content).encode(), status, headers, "application/json")


def _error(status: int, message: str) -> Response:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
    return _json({"error": shown(message, _LONGEST_ERROR)}, status, headers.get(status))


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Of the router: a path that there is none of, or a method that it does not take."""
    path = quoted(request.url.path)
    message = {404: f"there is no path {path}; /docs lists those that there are", 405: f"{path} takes another method"}
    found = _error(error.status_code, message.get(error.status_code, error.detail))
    found.headers.update(error.headers or {})
    return found
