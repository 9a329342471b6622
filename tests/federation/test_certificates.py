import datetime
import os
import stat

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.federation.certificates import Authority, read_credentials, write_credentials
from fdml.protocol.identity import Identity, host_name, parse_identity
from fdml.storage.atomic import write_file

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
    (uri,) = uris(AUTHORITY.issue("party", "store", run="other").certificate)
    assert parse_identity(uri).run == "other"


def test_a_party_is_no_authority_and_no_server():
    issued = read(AUTHORITY.issue("party", "store").certificate)
    with pytest.raises(x509.ExtensionNotFound):
        issued.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in usage
    assert san(AUTHORITY.issue("party", "store").certificate).get_values_for_type(x509.DNSName) == []


# Files.


@pytest.fixture
def folder(tmp_path):
    write_credentials(tmp_path / "keys", AUTHORITY.issue("party", "store"))
    return tmp_path / "keys"


def test_credentials_come_back_as_they_were_written(tmp_path):
    issued = AUTHORITY.issue("party", "store")
    write_credentials(tmp_path / "a" / "b", issued)
    assert read_credentials(tmp_path / "a" / "b") == issued


def test_the_key_is_for_its_owner_only_also_over_an_older_file(tmp_path):
    before = os.umask(0)
    try:
        write_credentials(tmp_path, AUTHORITY.issue("party", "store"))
        assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
        (tmp_path / "key.pem").chmod(0o666)
        write_file(tmp_path / "key.pem", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert (tmp_path / "key.pem").read_bytes() == b"new"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_key_that_others_can_get_at_is_refused(folder, mode):
    (folder / "key.pem").chmod(mode)
    with pytest.raises(SettingsError, match=r"the key '.*key\.pem' can be read by others; run `chmod 600 .*key\.pem`"):
        read_credentials(folder)
    (folder / "key.pem").chmod(0o400)
    read_credentials(folder)


@pytest.mark.parametrize("name", ["key.pem", "certificate.pem", "authority.pem"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(SettingsError, match=rf"there is no '.*{name}'; `fdml new` makes keys and certificates"):
        read_credentials(folder)


def test_a_missing_folder_is_named_too(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no '.*nowhere/key\.pem'"):
        read_credentials(tmp_path / "nowhere")
