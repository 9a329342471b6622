"""Who someone is: the name in a certificate, `fdml://<federation>/<role>/<name>`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

Role = Literal["server", "party"]


@dataclass(frozen=True)
class Identity:
    """Whom a certificate names."""

    federation: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """As the certificate has it."""
        return f"fdml://{quote(self.federation, safe='')}/{self.role}/{quote(self.name, safe='')}"


@dataclass(frozen=True)
class Credentials:
    """What one side of a line shows: PEM texts."""

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes
    revoked: Callable[[], frozenset[int]] = field(default=frozenset, compare=False, repr=False)
    """Gives the serial numbers of certificates that the authority has revoked, as they are known now."""


def parse_identity(uri: str) -> Identity | None:
    """Whom a URI names; None if it is not one of ours."""
    scheme, _, rest = uri.partition("://")
    parts = rest.split("/")
    if scheme != "fdml" or len(parts) != 3 or not all(parts):
        return None
    return Identity(unquote(parts[0]), parts[1], unquote(parts[2]))


def host_name(federation: str, party: str = "") -> str:
    """The name under which a federation's server shows itself, or a party that listens, on whatever machine."""
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in federation.lower())
    side = f"party-{hashlib.blake2b(party.encode(), digest_size=16).hexdigest()}" if party else "server"
    return f"{side}.{safe[:63].strip('-') or 'federation'}.fdml"
