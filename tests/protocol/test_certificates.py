"""What a certificate says: whom it names, and why it is refused. Certificates are made here, without an authority."""

import datetime
import hashlib
import itertools

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.protocol.certificates import (
    WARNING_DAYS,
    end_warning,
    fingerprint,
    fingerprint_of,
    identities,
    utc_now,
    why_refused,
)
from fdml.protocol.identity import Identity

NOON = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
BANK = Identity("loans", "party", "bank")
KEY, OTHER_KEY = (ec.derive_private_key(number, ec.SECP256R1()) for number in (7, 8))
SERIALS = itertools.count(1)


def certificate(*uris, key=KEY, first=NOON - DAY, last=NOON + 30 * DAY):
    subject = x509.Name([])
    builder = (
        x509.CertificateBuilder(subject, subject, key.public_key(), next(SERIALS))
        .not_valid_before(first)
        .not_valid_after(last)
    )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=True)
    return builder.sign(key, hashes.SHA256())


def refused(shown, name="bank", *, members=None, revoked=(), now=NOON):
    return why_refused(shown, name, members=members or {}, revoked=frozenset(revoked), now=now)


def test_a_fingerprint_is_the_sha256_of_the_public_key_as_other_tools_print_it():
    info = KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint_of(KEY.public_key()) == f"sha256:{hashlib.sha256(info).hexdigest()}"


def test_a_renewed_certificate_of_the_same_key_has_the_same_fingerprint():
    assert fingerprint(certificate()) == fingerprint(certificate(BANK.uri, last=NOON + 400 * DAY))
    assert fingerprint(certificate()) != fingerprint(certificate(key=OTHER_KEY))


def test_a_certificate_names_whom_its_uris_name():
    assert identities(certificate(BANK.uri)) == [BANK]
    assert identities(certificate(BANK.uri, "https://bank.example/")) == [BANK, None]


def test_a_certificate_without_names_names_nobody():
    assert identities(certificate()) == []


def test_a_request_is_read_like_a_certificate():
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(BANK.uri)])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(names, critical=False)
    assert identities(builder.sign(KEY, hashes.SHA256())) == [BANK]


def test_a_good_certificate_is_not_refused():
    shown = certificate(BANK.uri)
    assert refused(shown) is None
    assert refused(shown, members={"bank": fingerprint(shown)}, revoked=[shown.serial_number + 1]) is None


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (NOON + 30 * DAY, None),
        (NOON + 30 * DAY + datetime.timedelta(seconds=1), "ran out on 2026-07-01 12:00 UTC"),
        (NOON - DAY, None),
        (NOON - DAY - datetime.timedelta(seconds=1), "is valid only from 2026-05-31 12:00 UTC on"),
    ],
    ids=["its last second", "one second later", "its first second", "one second earlier"],
)
def test_a_certificate_is_good_from_its_first_to_its_last_second(now, words):
    assert refused(certificate(), now=now) == words


def test_a_revoked_certificate_is_refused_though_its_key_is_known():
    shown = certificate()
    assert refused(shown, members={"bank": fingerprint(shown)}, revoked=[shown.serial_number]) == "is revoked"


def test_a_key_that_the_members_do_not_have_is_refused_and_both_are_shown():
    shown, known = certificate(key=OTHER_KEY), fingerprint(certificate())
    text = refused(shown, members={"bank": known})
    assert (
        text
        == f"has another key ({fingerprint(shown)[:19]}...) than [members] in federation.toml says ({known[:19]}...)"
    )


def test_a_name_that_is_no_member_is_refused():
    shown = certificate()
    assert "no such member" in refused(shown, "stranger", members={"bank": fingerprint(shown)})


@pytest.mark.parametrize("days", [0, 1, WARNING_DAYS])
def test_a_certificate_that_ends_soon_is_warned_of_with_the_way_out(days):
    text = end_warning("bank", certificate(last=NOON + days * DAY), NOON)
    assert text.startswith(f"the certificate of bank ends on {NOON + days * DAY:%Y-%m-%d}, in {days} days; ")
    assert "`fdml keys renew`" in text


@pytest.mark.parametrize("left", [WARNING_DAYS * DAY + datetime.timedelta(seconds=1), -datetime.timedelta(seconds=1)])
def test_a_certificate_with_time_left_or_none_is_not_warned_of(left):
    assert end_warning("bank", certificate(first=NOON - 60 * DAY, last=NOON + left), NOON) is None


def test_the_time_that_certificates_are_compared_with_has_a_zone():
    assert utc_now().utcoffset() == datetime.timedelta()
