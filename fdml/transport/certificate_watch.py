"""The certificates of a line, looked at again and again while a run goes on: refused, or warned of in time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping

from cryptography import x509

from fdml.protocol.certificates import end_warning, utc_now, why_refused
from fdml.protocol.identity import Credentials


class CertificateWatch:
    """Says why a member's certificate is not taken now, and once a day which certificates end soon."""

    def __init__(
        self,
        own: Credentials,
        members: Mapping[str, str],
        remark: Callable[[str], None],
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._own = x509.load_pem_x509_certificate(own.certificate)
        self._revoked = own.revoked
        self._members = members
        self._remark = remark
        self._now = now
        self._warned: dict[str, datetime.date] = {}

    def why_refused(self, name: str, certificate: x509.Certificate) -> str | None:
        """What is wrong with a member's certificate now, to be read after "the certificate of ..."; None if nothing."""
        now = self._now()
        why = why_refused(certificate, name, members=self._members, revoked=self._revoked(), now=now)
        if why is None:
            self._warn(repr(name), certificate, now)
        return why

    def why_own_refused(self) -> str | None:
        """What is wrong with this side's own certificate now; None if nothing."""
        now = self._now()
        self._warn("this side", self._own, now)
        return why_refused(self._own, "", members={}, revoked=self._revoked(), now=now)

    def _warn(self, owner: str, certificate: x509.Certificate, now: datetime.datetime) -> None:
        text = end_warning(owner, certificate, now)
        if text is not None and self._warned.get(owner) != now.date():
            self._warned[owner] = now.date()
            self._remark(text)
