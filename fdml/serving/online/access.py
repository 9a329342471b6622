"""Who may call the endpoint: a bearer token from a file, client certificates, or whoever is on this machine."""

from __future__ import annotations

import hmac
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from fdml.errors import RequestRefused, SettingsError

_SHORTEST, _LONGEST = 16, 1024
"""Letters of a token."""


@dataclass(frozen=True)
class Access:
    """Where the endpoint listens, and what it asks of callers."""

    host: str = "127.0.0.1"
    token_file: Path | None = None
    certificate: Path | None = None
    """The endpoint's certificate chain, PEM."""
    key: Path | None = None
    clients: Path | None = None
    """The authorities whose certificates callers must show, PEM."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("--certificate and --key belong together; give both, or neither")
        if self.clients is not None and self.certificate is None:
            raise SettingsError("--clients needs TLS; give --certificate and --key too")
        if is_loopback(self.host):
            return
        if self.certificate is None:
            raise SettingsError(
                f"--host is {self.host!r}, which others can reach, and without TLS they could read ids and scores; "
                f"give --certificate and --key, or listen at 127.0.0.1"
            )
        if self.token_file is None and self.clients is None:
            raise SettingsError(
                f"--host is {self.host!r}, which others can reach, and anybody could ask; give --token-file or "
                f"--clients"
            )

    def names_host(self, header: str) -> bool:
        """Whether the Host of a request is this endpoint.

        It is asked where nothing else is: a web page whose name leads to this machine could call it otherwise.
        """
        if self.token_file is not None or self.certificate is not None:
            return True
        name = header[: header.rfind("]") + 1] if header.startswith("[") else header.partition(":")[0]
        return is_loopback(name.removeprefix("[").removesuffix("]"))

    def token(self) -> bytes | None:
        """The token of the file; None where there is no file. Raises where others than its owner may read it."""
        path = self.token_file
        if path is None:
            return None
        try:
            mode, found = path.stat().st_mode, path.read_bytes().strip()
        except OSError as error:
            raise SettingsError(f"the token file {str(path)!r} cannot be read ({error.strerror})") from None
        if mode & 0o077:
            raise SettingsError(f"the token file {str(path)!r} can be read by others; `chmod 600 {path}`")
        if not _SHORTEST <= len(found) <= _LONGEST or not all(33 <= each < 127 for each in found):
            raise SettingsError(
                f"the token file {str(path)!r} does not hold one line of {_SHORTEST} to {_LONGEST} characters without "
                f"spaces; `openssl rand -hex 32` makes one"
            )
        return found

    def tls(self) -> ssl.SSLContext | None:
        """For TLS 1.2 and newer; None where lines are plain."""
        if self.certificate is None or self.key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.clients is not None:
                context.load_verify_locations(self.clients)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"the certificates of the endpoint cannot be used: {error}") from None
        return context


def check_token(expected: bytes | None, header: str | None) -> None:
    """Raise where a request does not show the token; compared in constant time."""
    if expected is None:
        return
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise RequestRefused(401, "the request has no token; send the header Authorization: Bearer TOKEN")
    if not hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), expected):
        raise RequestRefused(403, "the token is not that of this endpoint")


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
