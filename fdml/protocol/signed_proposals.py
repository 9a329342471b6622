"""Proposals under their starter's signature: a server relays them, and cannot start a run in a party's name."""

from __future__ import annotations

import json

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import MessageRefused, Refusal, SettingsError
from fdml.protocol.certificates import identities, utc_now, why_refused
from fdml.protocol.identity import Credentials, Identity
from fdml.protocol.quoting import shown
from fdml.protocol.run_messages import Proposal
from fdml.settings import RunSettings

_PURPOSE = b"fdml proposal 1\0"


def make_proposal(run: RunSettings, party: str, credentials: Credentials | None) -> Proposal:
    """A run with all its settings, signed by the party that proposes it; unsigned on plain lines."""
    settings = run.model_dump_json(exclude_unset=True).encode()  # what is written out counts as set
    if credentials is None:
        return Proposal(settings)
    key = serialization.load_pem_private_key(credentials.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"the key of party {party!r} is no EC key; `fdml keys request` makes one")
    return Proposal(settings, credentials.certificate, key.sign(_signed(settings, party), ec.ECDSA(hashes.SHA256())))


def proposed_settings(proposal: Proposal) -> RunSettings:
    """The settings in a proposal, or `MessageRefused` with what is wrong with them."""
    try:
        values = json.loads(proposal.settings)
        if not isinstance(values, dict):
            raise ValueError("no table of settings")
        return RunSettings(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise MessageRefused(f"the proposed settings cannot be used: {shown(str(error))}", Refusal.INVALID) from None


def check_proposal(
    proposal: Proposal, run: RunSettings, party: str, authority: bytes, revoked: frozenset[int] = frozenset()
) -> None:
    """Raise unless the party that is said to have proposed the run has signed it.

    The key must be the one in `run.members`, which have to be the receiver's own.
    """
    try:
        certificate = x509.load_pem_x509_certificate(proposal.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        raise _refused(run, party, "has no certificate of the federation's authority") from None
    why = why_refused(certificate, party, members=run.members, revoked=revoked, now=utc_now())
    if why is not None:
        raise _refused(run, party, f"has a certificate that {why}")
    if identities(certificate) != [Identity(run.federation, "party", party)]:
        raise _refused(run, party, f"has a certificate that does not name party {party!r}")
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(proposal.signature, _signed(proposal.settings, party), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise _refused(run, party, "has a wrong signature") from None


def _signed(settings: bytes, party: str) -> bytes:
    return _PURPOSE + len(settings).to_bytes(8, "big") + settings + party.encode()


def _refused(run: RunSettings, party: str, why: str) -> MessageRefused:
    return MessageRefused(
        f"run {run.name!r}, said to be started by {party!r}, {why}; someone may be in between: ask that party and the "
        f"server's operator",
        Refusal.UNAUTHENTICATED,
    )
