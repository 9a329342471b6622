"""The server of the live page: one page, its files, and a stream of the run's state. It downloads nothing.

It listens on loopback; elsewhere every request needs the token. Requests that name another host or come from another
origin are refused, so that no other page of the same browser can read a run.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from fdml.monitor.prometheus import METRICS_TYPE

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/theme.css": ("theme.css", "text/css; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
    "/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_COOKIE = "fdml-page"
_MOST_VIEWERS = 32
_IDLE_SECONDS = 30.0
"""A connection that says nothing for so long is closed."""
_ALIVE_SECONDS = 10.0
"""A stream without news says that it is there so often."""


class Published:
    """The last state of a run, for all who look; whoever publishes wakes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text = "{}"
        self._number = 0
        self._closed = False

    def publish(self, state: dict[str, Any]) -> None:
        """Show this from now on."""
        text = json.dumps(state, separators=(",", ":"), allow_nan=False)
        with self._changed:
            self._text, self._number = text, self._number + 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """The last state."""
        with self._changed:
            return self._text

    def newer(self, than: int, seconds: float) -> tuple[int, str | None]:
        """The state after the one of this number, or None if none came in this time; -1 if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._number > than, seconds)
            if self._closed:
                return -1, None
            return (self._number, self._text) if self._number > than else (than, None)


class PageServer(ThreadingHTTPServer):
    """Serves the page in threads of its own."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, host: str, port: int, published: Published, metrics: Callable[[], str], token: str | None = None
    ) -> None:
        """Elsewhere than on loopback there is always a token, a new one if none is given."""
        self.published = published
        self.metrics = metrics
        self.token = token or (None if host in LOOPBACK else secrets.token_urlsafe(24))
        self.host = host
        self.viewers = threading.BoundedSemaphore(_MOST_VIEWERS)
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """What to open; the token is in it, once."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def allows_host(self, host: str) -> bool:
        """Whether a request may name us so: else another name for this machine could be a page of someone else."""
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if port != str(self.port):
            return False
        return name.strip("[]") in (*LOOPBACK, self.host) if self.host in LOOPBACK else True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that is gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "fdml"
    sys_version = ""
    timeout = _IDLE_SECONDS
    _files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        """Answer one request."""
        parts = urlsplit(self.path)
        if not self._is_from_here():
            return self._refuse(HTTPStatus.FORBIDDEN, "this page answers its own origin only")
        if self.server.token is not None:
            given = parse_qs(parts.query).get("token", [""])[0]
            if given and self._is_token(given):
                return self._let_in(parts.path)
            if not self._is_token(self._shown_token()):
                return self._refuse(
                    HTTPStatus.UNAUTHORIZED, "open the address that `fdml watch` printed, with its token"
                )
        if parts.path in FILES:
            name, kind = FILES[parts.path]
            return self._answer(_read(name), kind)
        if parts.path == "/state":
            return self._answer(self.server.published.text.encode(), "application/json")
        if parts.path == "/metrics":
            return self._answer(self.server.metrics().encode(), METRICS_TYPE)
        if parts.path == "/events":
            return self._stream()
        return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _is_from_here(self) -> bool:
        host = self.headers.get("Host", "")
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        same = origin is None or origin == f"http://{host}"
        return self.server.allows_host(host) and same and site in ("none", "same-origin")

    def _shown_token(self) -> str:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind == "Bearer":
            return given
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), (self.server.token or "").encode())

    def _let_in(self, path: str) -> None:
        """Keep the token in a cookie that scripts cannot read, and take it out of the address."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", path if path in FILES else "/")
        self.send_header("Set-Cookie", f"{_COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self._end(0)

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self._end(len(content))
        self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        content = f"{why}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self._end(len(content))
        self.wfile.write(content)

    def _end(self, length: int | None) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _stream(self) -> None:
        """The run's state, again whenever it changes, until the viewer is gone."""
        if not self.server.viewers.acquire(blocking=False):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{_MOST_VIEWERS} pages are open; close one")
        try:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self._end(None)
            self.wfile.write(b"retry: 1000\n\n")
            number = 0
            while number >= 0:
                number, text = self.server.published.newer(number, _ALIVE_SECONDS)
                if number >= 0:
                    self.wfile.write(b": here\n\n" if text is None else f"data: {text}\n\n".encode())
                    self.wfile.flush()
        except OSError:  # the viewer is gone
            self.close_connection = True
        finally:
            self.server.viewers.release()
        return None

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: who looks at the page is in no log."""


def _read(name: str) -> bytes:
    return resources.files("fdml.monitor").joinpath("page", name).read_bytes()
