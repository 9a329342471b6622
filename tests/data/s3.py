"""Enough of an S3 server to list and read the files of a folder, whose first folders are buckets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DATE = "Tue, 17 Nov 2026 10:00:00 GMT"


class _S3(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, root: Path, asked: list[str], *given: object) -> None:
        self.root, self.asked = root, asked
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        found = urlsplit(self.path)
        query = parse_qs(found.query, keep_blank_values=True)
        bucket, _, key = unquote(found.path).strip("/").partition("/")
        if "list-type" in query:
            self._list(bucket, query.get("prefix", [""])[0], "delimiter" in query)
        else:
            self._file(self.root / bucket / key)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self, bucket: str, prefix: str, shallow: bool) -> None:
        home = self.root / bucket
        keys = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
        keys = [key for key in keys if key.startswith(prefix)]
        folders = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in keys if "/" in key[len(prefix) :]}
        shown = [key for key in keys if not shallow or "/" not in key[len(prefix) :]]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(home / key).stat().st_size}</Size>"
            f"<LastModified>2026-11-17T10:00:00.000Z</LastModified></Contents>"
            for key in shown
        )
        items += "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders if shallow
        )
        self._send(
            200,
            f"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{len(shown)}</KeyCount>{items}</ListBucketResult>".encode(),
        )

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        content, asked = path.read_bytes(), self.headers.get("Range")
        if asked is None:
            self._send(200, content)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1]
        self._send(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"})

    def _send(self, code: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Last-Modified": _DATE, "ETag": '"x"', **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def s3_server(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the authorizations of what it was asked."""
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_S3, root, asked)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
