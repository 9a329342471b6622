"""Certificates while a run goes on: run out, revoked, of another key, and warned of in time."""

import datetime

import pytest
from cryptography import x509

from fdml.federation.certificates import Authority
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Credentials
from fdml.transport.certificate_watch import CertificateWatch

AUTHORITY = Authority("shop")
OWN, BOB = AUTHORITY.issue("server", "server"), AUTHORITY.issue("party", "bob")
DAY = datetime.timedelta(days=1)


def read(credentials):
    return x509.load_pem_x509_certificate(credentials.certificate)


class Watched:
    """A watch with a clock and a list of its own."""

    def __init__(self, members=None, own=OWN):
        self.now = datetime.datetime.now(datetime.UTC)
        self.revoked = frozenset()
        self.said = []
        known = {"bob": fingerprint(read(BOB))} if members is None else members
        given = Credentials(own.key, own.certificate, own.authority, lambda: self.revoked)
        self.watch = CertificateWatch(given, known, self.said.append, lambda: self.now)

    def refused(self, credentials=BOB, name="bob"):
        return self.watch.why_refused(name, read(credentials))


def test_a_good_certificate_is_good_until_its_last_moment():
    watched = Watched()
    assert watched.refused() is None
    watched.now = read(BOB).not_valid_after_utc
    assert watched.refused() is None
    watched.now += datetime.timedelta(seconds=1)
    assert watched.refused().startswith("ran out on 20")


def test_one_whose_time_has_not_come_is_refused():
    watched = Watched()
    watched.now -= DAY
    assert watched.refused().startswith("is valid only from 20")


def test_a_certificate_is_refused_from_the_moment_it_is_on_the_list():
    watched = Watched()
    assert watched.refused() is None
    watched.revoked = frozenset({read(BOB).serial_number})
    assert watched.refused() == "is revoked"
    renewed = AUTHORITY.issue("party", "bob", key=BOB.key)
    assert watched.refused(renewed) is None, "the list names certificates, not keys"


def test_the_key_in_run_toml_counts_not_who_signed():
    watched = Watched()
    assert watched.refused(AUTHORITY.issue("party", "bob", key=BOB.key)) is None
    assert watched.refused(AUTHORITY.issue("party", "bob")).startswith("has another key (sha256:")
    assert "no such member" in watched.refused(name="zed")


def test_without_members_the_key_is_not_looked_at():
    """The commands never come here: they refuse a run over TLS that names no members."""
    assert Watched(members={}).refused(AUTHORITY.issue("party", "bob")) is None


@pytest.mark.parametrize(("days", "warned"), [(15, False), (14, True), (3, True), (0, True)])
def test_it_warns_from_two_weeks_before_the_end(days, warned):
    watched = Watched()
    watched.now = read(BOB).not_valid_after_utc - days * DAY
    assert watched.refused() is None
    assert bool(watched.said) == warned
    for text in watched.said:
        assert "the certificate of 'bob' ends on 20" in text
        assert f"in {days} days" in text
        assert "`fdml keys renew`" in text


def test_it_warns_once_a_day_of_each_and_of_its_own_too():
    watched = Watched()
    watched.now = min(read(BOB).not_valid_after_utc, read(OWN).not_valid_after_utc) - 10 * DAY
    for _ in range(3):
        watched.refused()
        assert watched.watch.why_own_refused() is None
    assert [text.split(" ends on ")[0] for text in watched.said] == [
        "the certificate of 'bob'",
        "the certificate of this side",
    ]
    watched.now += DAY
    watched.refused()
    assert len(watched.said) == 3


def test_its_own_certificate_is_refused_too_once_it_is_no_longer_good():
    watched = Watched()
    watched.revoked = frozenset({read(OWN).serial_number})
    assert watched.watch.why_own_refused() == "is revoked"
    watched.now = read(OWN).not_valid_after_utc + DAY
    assert watched.watch.why_own_refused().startswith("ran out on")
