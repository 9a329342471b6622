"""Who calls the server: a party of its federation, by the name in its certificate."""

from __future__ import annotations

from collections.abc import Sequence

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.identity import parse_identity
from fdml.protocol.quoting import quoted
from fdml.settings.federation import FederationSettings

_MOST_NAMED = 3
"""Names of one certificate that a refusal shows."""


def caller_named(uris: Sequence[str], federation: FederationSettings, *roles: str) -> str:
    """The name in a certificate with these URIs, of a party or another of these roles, or `MessageRefused`."""
    identity = next((found for uri in uris if (found := parse_identity(uri)) is not None), None)
    ours = federation.name
    if identity is None or identity.federation != ours or identity.role not in ("party", *roles):
        names = ", ".join(quoted(uri) for uri in uris[:_MOST_NAMED]) or "nobody"
        raise MessageRefused(
            f"the certificate names {names}; this is federation {ours!r}, and only a party of it may join",
            Refusal.UNAUTHENTICATED,
        )
    if identity.role == "party":
        check_party(identity.name, federation)
    return identity.name


def check_party(name: str, federation: FederationSettings) -> None:
    """Raise unless the federation has a party of this name."""
    if name not in federation.parties:
        known = ", ".join(federation.parties)
        raise MessageRefused(f"{quoted(name)} is not a party of this federation: {known}", Refusal.NOT_PERMITTED)
