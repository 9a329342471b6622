"""A member's keys folder: what is written, what is refused before gRPC sees it, and what is revoked in mid-run."""

import datetime
import os
import stat
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fdml.errors import SettingsError
from fdml.events import Remark
from fdml.federation.certificates import Authority
from fdml.federation.key_files import members_table, own_credentials, read_credentials, write_credentials
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Identity
from fdml.settings import RunSettings
from fdml.storage.atomic import write_file

AUTHORITY = Authority("run")
STORE = AUTHORITY.issue("party", "store")
IDENTITY = Identity("run", "party", "store")
MEMBERS = {
    "store": fingerprint(x509.load_pem_x509_certificate(STORE.certificate)),
    "browser": "sha256:" + "1" * 64,
    "server": "sha256:" + "2" * 64,
}
RUN = RunSettings(federation="run", parties=("store", "browser"), label_party="store", members=MEMBERS)


def serial(credentials):
    return x509.load_pem_x509_certificate(credentials.certificate).serial_number


def write_revoked(folder, *credentials, authority=AUTHORITY):
    now = datetime.datetime.now(datetime.UTC)
    write_file(folder / "revoked.pem", authority.revocation_list({serial(each): now for each in credentials}))


@pytest.fixture
def folder(tmp_path):
    write_credentials(tmp_path / "keys", STORE)
    return tmp_path / "keys"


def test_credentials_come_back_as_they_were_written(tmp_path):
    write_credentials(tmp_path / "a" / "b", STORE)
    assert read_credentials(tmp_path / "a" / "b") == STORE


def test_credentials_do_not_show_their_key(folder):
    assert "PRIVATE" not in repr(read_credentials(folder))


def test_the_key_is_for_its_owner_only_also_over_an_older_file(tmp_path):
    before = os.umask(0)
    try:
        write_credentials(tmp_path, STORE)
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
    with pytest.raises(SettingsError, match=rf"there is no '.*{name}'; `fdml keys request` makes a key"):
        read_credentials(folder)


def test_a_missing_folder_is_named_too(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no '.*nowhere/key\.pem'"):
        read_credentials(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\0" * 100, b"-----BEGIN PRIVATE KEY-----\n", STORE.certificate[:200]]
)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("key.pem", r"is empty or no private key; put it back from your own backup, or make a new one"),
        (
            "certificate.pem",
            r"is empty or no certificate; ask whoever keeps the federation's authority to send it again",
        ),
        ("authority.pem", r"is empty or no certificate; ask whoever keeps the federation's authority to send it again"),
    ],
)
def test_a_damaged_file_is_named_before_grpc_sees_it(folder, name, text, content):
    """gRPC ends the whole process at an empty key."""
    write_file(folder / name, content)
    with pytest.raises(SettingsError, match=rf"'.*{name}' {text}"):
        read_credentials(folder)


def test_a_key_under_a_passphrase_or_of_another_kind_is_refused(folder):
    key = serialization.load_pem_private_key(STORE.key, None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_file(folder / "key.pem", key.private_bytes(pem, pkcs8, locked))
    with pytest.raises(SettingsError, match="is under a passphrase"):
        read_credentials(folder)
    other = rsa.generate_private_key(65537, 2048).private_bytes(pem, pkcs8, serialization.NoEncryption())
    write_file(folder / "key.pem", other)
    with pytest.raises(SettingsError, match="is no EC key"):
        read_credentials(folder)


def test_files_that_do_not_belong_together_are_refused(folder):
    write_file(folder / "key.pem", AUTHORITY.issue("party", "store").key)
    with pytest.raises(SettingsError, match=r"certificate\.pem' was made for another key than '.*key\.pem'"):
        read_credentials(folder)
    write_credentials(folder, STORE)
    write_file(folder / "authority.pem", Authority("run").certificate)
    with pytest.raises(SettingsError, match=r"certificate\.pem' is not signed by '.*authority\.pem'"):
        read_credentials(folder)


# What the other side would refuse.


def test_the_certificate_in_run_toml_is_taken(folder):
    assert own_credentials(folder, IDENTITY, RUN).certificate == STORE.certificate


def test_another_key_than_in_federation_toml_is_refused_at_home(folder):
    write_credentials(folder, AUTHORITY.issue("party", "store"))
    with pytest.raises(SettingsError, match=r"has another key \(sha256:.*\) than \[members\] in federation\.toml says"):
        own_credentials(folder, IDENTITY, RUN)


def test_a_renewed_certificate_is_taken(folder):
    write_credentials(folder, AUTHORITY.issue("party", "store", key=STORE.key))
    own_credentials(folder, IDENTITY, RUN)


def test_a_certificate_that_ran_out_is_refused_with_the_date_and_the_way_out(folder):
    write_credentials(folder, AUTHORITY.issue("party", "store", days=-1, key=STORE.key))
    with pytest.raises(SettingsError, match=r"ran out on 20\d\d-.* UTC; .*`fdml keys renew`"):
        own_credentials(folder, IDENTITY, RUN)


def test_a_run_that_does_not_name_its_members_is_refused_with_how_to_fill_the_table(folder):
    bare = RUN.model_copy(update={"members": {}})
    with pytest.raises(SettingsError, match=r"`fdml keys members` .* prints the \[members\] table; put it at the end"):
        own_credentials(folder, IDENTITY, bare)


@pytest.mark.parametrize("name", ["store", "app store", 'a"b', "ä", "", "x.y"])
def test_the_table_of_members_is_toml_whatever_the_names(name):
    assert tomllib.loads(members_table({name: "sha256:1"})) == {"members": {name: "sha256:1"}}


# What is revoked.


def test_without_a_list_nothing_is_revoked(folder):
    assert read_credentials(folder).revoked() == frozenset()


def test_a_list_that_changes_is_read_again_and_only_grows(folder):
    other = AUTHORITY.issue("party", "browser")
    revoked = read_credentials(folder).revoked
    write_revoked(folder, other)
    assert revoked() == {serial(other)}
    write_revoked(folder, STORE)
    assert revoked() == {serial(other), serial(STORE)}
    (folder / "revoked.pem").unlink()
    assert revoked() == {serial(other), serial(STORE)}
    write_revoked(folder, STORE)
    with pytest.raises(SettingsError, match=r"certificate\.pem' is revoked"):
        own_credentials(folder, IDENTITY, RUN)


@pytest.mark.parametrize("content", [b"", b"nonsense", AUTHORITY.certificate])
def test_a_damaged_list_is_an_error_at_the_start_and_a_remark_later(folder, content):
    events = []
    revoked = read_credentials(folder, events.append, "store").revoked
    write_revoked(folder, STORE)
    assert revoked() == {serial(STORE)}
    write_file(folder / "revoked.pem", content)
    assert revoked() == {serial(STORE)}
    assert revoked() == {serial(STORE)}
    (remark,) = events
    assert isinstance(remark, Remark)
    assert remark.party == "store"
    assert "is empty or no list of revoked certificates" in remark.text
    with pytest.raises(SettingsError, match=r"revoked\.pem' is empty or no list of revoked certificates; get it again"):
        read_credentials(folder)


def test_a_list_of_another_authority_revokes_nothing(folder):
    revoked = read_credentials(folder).revoked
    write_revoked(folder, STORE, authority=Authority("run"))
    assert revoked() == frozenset()
    with pytest.raises(SettingsError, match="is not signed by the federation's authority"):
        read_credentials(folder)
