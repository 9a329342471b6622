import datetime
import subprocess

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fdml.federation.certificates import Authority
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Identity, host_name, parse_identity

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
ODD = ["store", "app store", "a/b", "../..", "ä ö", "日本", "%2f", "fdml://x", "?#&", "x" * 200, "-", "."]
AUTHORITY = Authority("run")


def read(certificate):
    return x509.load_pem_x509_certificate(certificate)


def san(certificate):
    return read(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def uris(certificate):
    return san(certificate).get_values_for_type(x509.UniformResourceIdentifier)


@given(names, st.sampled_from(["server", "party"]), names)
def test_an_identity_comes_back_from_its_uri(run, role, name):
    identity = Identity(run, role, name)
    assert identity.uri.isascii()
    assert parse_identity(identity.uri) == identity


@given(names, names, names, names)
def test_two_identities_never_share_a_uri(run, name, other_run, other_name):
    same = Identity(run, "party", name).uri == Identity(other_run, "party", other_name).uri
    assert same == ((run, name) == (other_run, other_name))


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "fdml://",
        "fdml://run/party",
        "fdml://run/party/",
        "fdml:///party/store",
        "fdml://run//store",
        "fdml://run/party/store/more",
        "https://run/party/store",
        "FDML://run/party/store",
        "run/party/store",
    ],
)
def test_what_is_none_of_ours_names_nobody(uri):
    assert parse_identity(uri) is None


def test_the_uri_is_readable():
    assert Identity("app-store", "party", "browser").uri == "fdml://app-store/party/browser"
    assert Identity("a b", "party", "c/d").uri == "fdml://a%20b/party/c%2Fd"


@pytest.mark.parametrize("name", ODD)
def test_a_certificate_names_its_party_however_odd_the_name(name):
    issued = AUTHORITY.issue("party", name)
    (uri,) = uris(issued.certificate)
    assert parse_identity(uri) == Identity("run", "party", name)


@pytest.mark.parametrize("run", ODD)
def test_a_run_may_have_an_odd_name_too(run):
    issued = Authority(run).issue("server", "server")
    (uri,) = uris(issued.certificate)
    assert parse_identity(uri) == Identity(run, "server", "server")
    assert san(issued.certificate).get_values_for_type(x509.DNSName) == [host_name(run)]


@settings(max_examples=15)
@given(names)
@example("\0")
@example("日" * 64)
def test_any_name_can_be_issued(name):
    (uri,) = uris(AUTHORITY.issue("party", name).certificate)
    assert parse_identity(uri) == Identity("run", "party", name)


@given(names)
@example("x" * 300)
def test_a_host_name_is_one_that_the_internet_knows(run):
    labels = host_name(run).split(".")
    assert labels[0] == "server"
    assert labels[-1] == "fdml"
    assert len(labels) == 3
    for label in labels:
        assert 1 <= len(label) <= 63
        assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in label)
        assert label.strip("-") == label
        assert label == label.lower()


def signed_by(authority, issued):
    key = read(authority.certificate).public_key()
    certificate = read(issued.certificate)
    try:
        key.verify(
            certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(certificate.signature_hash_algorithm)
        )
    except InvalidSignature:
        return False
    return True


def test_an_authority_signs_its_own_certificates_and_no_others():
    other = Authority("run")
    issued = AUTHORITY.issue("party", "store")
    assert signed_by(AUTHORITY, issued)
    assert not signed_by(other, issued)
    assert issued.authority == AUTHORITY.certificate


def test_key_and_certificate_belong_together_and_are_new_for_everyone():
    first, second = AUTHORITY.issue("party", "store"), AUTHORITY.issue("party", "store")
    for issued in (first, second):
        key = serialization.load_pem_private_key(issued.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == read(issued.certificate).public_key()
    assert first.key != second.key


def test_the_authoritys_key_is_not_in_what_parties_get():
    issued = AUTHORITY.issue("party", "store")
    for text in (issued.key, issued.certificate, issued.authority):
        assert AUTHORITY.key.strip() not in text
    assert b"PRIVATE" not in issued.authority + issued.certificate


def test_days_below_0_make_a_certificate_that_has_expired():
    now = datetime.datetime.now(datetime.UTC)
    assert read(AUTHORITY.issue("party", "store").certificate).not_valid_after_utc > now
    expired = read(AUTHORITY.issue("party", "store", days=-1).certificate)
    assert expired.not_valid_before_utc < expired.not_valid_after_utc < now


def test_a_certificate_for_another_run_says_so():
    (uri,) = uris(AUTHORITY.issue("party", "store", federation="other").certificate)
    assert parse_identity(uri).federation == "other"


def test_openssl_finds_nothing_wrong_with_what_is_signed(tmp_path):
    """Finding 12: `openssl verify -x509_strict` failed on the authority and on every certificate."""
    (tmp_path / "authority.pem").write_bytes(AUTHORITY.certificate)
    paths = []
    for role, name in (("server", "server"), ("party", "store")):
        paths.append(tmp_path / f"{name}.pem")
        paths[-1].write_bytes(AUTHORITY.issue(role, name).certificate)
    for usage, checked in (("sslserver", paths[:1]), ("sslclient", paths)):
        command = ["openssl", "verify", "-x509_strict", "-purpose", usage, "-CAfile", tmp_path / "authority.pem"]
        ended = subprocess.run([*command, *checked], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.count(": OK") == len(checked)


def test_a_certificate_is_good_from_now_on_for_90_days_and_never_before_its_authority():
    """Finding 12: leaves were valid from 826 days before they were made, earlier than their authority."""
    now, issued = datetime.datetime.now(datetime.UTC), read(AUTHORITY.issue("party", "store").certificate)
    authority = read(AUTHORITY.certificate)
    assert now - datetime.timedelta(minutes=10) < issued.not_valid_before_utc <= now
    assert issued.not_valid_before_utc >= authority.not_valid_before_utc
    assert issued.not_valid_after_utc - now > datetime.timedelta(days=89)
    assert issued.not_valid_after_utc - now <= datetime.timedelta(days=90)
    long = read(AUTHORITY.issue("party", "store", days=10_000).certificate)
    assert long.not_valid_after_utc == authority.not_valid_after_utc


def test_every_usage_stands_once():
    """Finding 12: parties carried clientAuth twice."""
    for role in ("party", "server"):
        usage = read(AUTHORITY.issue(role, "x").certificate).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert [each._name for each in usage.value] == ["serverAuth", "clientAuth"]


def test_openssl_takes_the_list_of_revoked_certificates(tmp_path):
    good, bad = AUTHORITY.issue("party", "store"), AUTHORITY.issue("party", "browser")
    now = datetime.datetime.now(datetime.UTC)
    (tmp_path / "authority.pem").write_bytes(AUTHORITY.certificate)
    (tmp_path / "revoked.pem").write_bytes(AUTHORITY.revocation_list({read(bad.certificate).serial_number: now}))
    found = []
    for each in (good, bad):
        (tmp_path / "shown.pem").write_bytes(each.certificate)
        words = [
            "-x509_strict",
            "-crl_check",
            "-CAfile",
            tmp_path / "authority.pem",
            "-CRLfile",
            tmp_path / "revoked.pem",
        ]
        command = ["openssl", "verify", *words, tmp_path / "shown.pem"]
        found.append(subprocess.run(command, capture_output=True, text=True, timeout=60))
    assert [each.returncode for each in found] == [0, 2], found
    assert "certificate revoked" in found[1].stderr


def test_a_renewed_certificate_has_the_same_fingerprint_and_another_serial_number():
    first = AUTHORITY.issue("party", "store")
    second = AUTHORITY.issue("party", "store", key=first.key)
    assert fingerprint(read(first.certificate)) == fingerprint(read(second.certificate))
    assert read(first.certificate).serial_number != read(second.certificate).serial_number


def test_a_party_is_no_authority_and_answers_under_no_name_but_its_own():
    """Without a server parties call each other; none can answer as the server, or as another party."""
    issued = read(AUTHORITY.issue("party", "store").certificate)
    with pytest.raises(x509.ExtensionNotFound):
        issued.extensions.get_extension_for_class(x509.BasicConstraints)
    (name,) = san(AUTHORITY.issue("party", "store").certificate).get_values_for_type(x509.DNSName)
    assert name == host_name(AUTHORITY.federation, "store")
    assert name not in (host_name(AUTHORITY.federation), host_name(AUTHORITY.federation, "browser"))
