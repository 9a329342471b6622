"""What gRPC says when a line to the server does not come about, in plain words."""

from __future__ import annotations

_NO_HOST = ("errors resolving", "Domain name not found", "DNS resolution failed")
_NOBODY = ("Connection refused",)
_ENDED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY")
_NO_TLS = ("WRONG_VERSION_NUMBER", "Handshake read failed")
_OTHER_AUTHORITY = ("CERTIFICATE_VERIFY_FAILED", "UNKNOWN_CA")
_OTHER_NAME = ("verification check failed", "Verification Check failed")
_OTHER_PROGRAM = ("Failed parsing HTTP/2", "http1", "Received http2 header with status")
_SILENT = ("Deadline Exceeded", "DEADLINE_EXCEEDED", "timed out", "timeout")
_NO_WAY = ("No route to host", "Network is unreachable", "Host is unreachable")


def in_plain_words(details: str, target: str, *, plain: bool) -> str:
    """Why there is no line to `target`, and what to look at; text that is not known here stays as it is."""
    host, _, port = target.rpartition(":")
    ended = (
        f"it ends every line at once: it uses TLS and this side was started with --plain, or port {port} is another "
        "program's"
        if plain
        else "it ends every line at once: it does not know this party's certificate (keys of another authority?), or "
        f"port {port} is another program's"
    )
    words = {
        _NO_HOST: f"the name {host!r} is not known (it does not resolve); check the host",
        _NOBODY: "connection refused",
        _NO_TLS: f"what listens there uses no TLS: a server started with --plain, or port {port} is another program's",
        _OTHER_AUTHORITY: "its certificate is of another authority than this party's keys",
        _OTHER_NAME: "its certificate is of another federation's server",
        _OTHER_PROGRAM: f"another program listens there, or a proxy stands between; check port {port}",
        _ENDED: ended,
        _SILENT: "it takes the line and says nothing; check host and port, and firewalls between",
        _NO_WAY: f"there is no way to {host!r}; check the host, the network and firewalls",
    }
    return next((text for signs, text in words.items() if any(sign in details for sign in signs)), details)
