"""Keys made where they are used: requests at a member, signing and revoking at the authority, and renewal."""

import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import SettingsError
from fdml.federation import key_requests
from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.key_facts import key_facts, members_of
from fdml.federation.key_files import own_credentials, read_credentials
from fdml.federation.key_requests import MemberKeys, member_keys, read_request
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Identity
from fdml.settings import RunSettings
from fdml.storage.atomic import write_file

STORE = Identity("shop", "party", "store")


@pytest.fixture
def store(tmp_path):
    return MemberKeys(STORE, tmp_path / "store" / "keys")


@pytest.fixture
def signer(tmp_path):
    return AuthorityFolder.make(tmp_path / "authority", "shop")


def signed(signer, member, tmp_path, name="store.certificate.pem"):
    """The file that comes back from the authority."""
    (tmp_path / name).write_bytes(signer.sign(*read_request(member.request_path)))
    return tmp_path / name


def private_keys(*folders):
    """Every private key below the folders."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if b"PRIVATE KEY" in path.read_bytes()]


def test_a_key_and_its_request_are_made_and_the_key_is_for_its_owner_only(store):
    shown = key_requests.request(store)
    assert sorted(path.name for path in store.folder.iterdir()) == ["key.pem", "store.request.pem"]
    assert stat.S_IMODE((store.folder / "key.pem").stat().st_mode) == 0o600
    assert b"PRIVATE" not in store.request_path.read_bytes()
    identity, _ = read_request(store.request_path)
    assert identity == STORE
    (facts,) = key_facts(store.request_path)
    assert (facts.fingerprint, facts.state) == (shown, "request, not signed yet")


def test_a_key_that_is_there_is_never_overwritten(store):
    key_requests.request(store)
    before = (store.folder / "key.pem").read_bytes()
    with pytest.raises(SettingsError, match=r"there is a key .* already; `fdml keys renew`"):
        key_requests.request(store)
    assert (store.folder / "key.pem").read_bytes() == before


def test_what_is_signed_and_installed_is_what_a_run_takes(store, signer, tmp_path):
    shown = key_requests.request(store)
    certificate = key_requests.install(store, signed(signer, store, tmp_path))
    assert fingerprint(certificate) == shown
    others = {"server": "sha256:" + "1" * 64}
    run = RunSettings(
        federation="shop", parties=("store",), label_party="store", members={**signer.members(), **others}
    )
    own_credentials(store.folder, STORE, run)
    assert signer.members() == {"store": shown} == members_of(key_facts(signer.path))
    assert private_keys(signer.path) == [signer.path / "key.pem"]
    assert private_keys(tmp_path / "store") == [store.folder / "key.pem"]


def test_a_renewed_certificate_of_the_same_key_has_the_same_fingerprint(store, signer, tmp_path):
    shown = key_requests.request(store)
    first = key_requests.install(store, signed(signer, store, tmp_path))
    key = (store.folder / "key.pem").read_bytes()
    assert key_requests.renew(store) == shown
    assert read_credentials(store.folder).certificate == first.public_bytes(serialization.Encoding.PEM)
    second = key_requests.install(store, signed(signer, store, tmp_path))
    assert fingerprint(second) == shown
    assert second.serial_number != first.serial_number
    assert (store.folder / "key.pem").read_bytes() == key


def test_a_new_key_takes_the_old_ones_place_when_its_certificate_comes(store, signer, tmp_path):
    old = key_requests.request(store)
    before = signed(signer, store, tmp_path)
    key_requests.install(store, before)
    new = key_requests.renew(store, new_key=True)
    assert new != old
    assert stat.S_IMODE((store.folder / "next-key.pem").stat().st_mode) == 0o600
    key_requests.install(store, before)
    assert members_of(key_facts(store.folder)) == {"store": old}, "the old key goes on until the new certificate comes"
    key_requests.install(store, signed(signer, store, tmp_path, "second.pem"))
    assert members_of(key_facts(store.folder)) == {"store": new} == signer.members()
    assert not (store.folder / "next-key.pem").exists()
    read_credentials(store.folder)


def test_a_certificate_of_someone_else_or_another_key_is_not_installed(store, signer, tmp_path):
    key_requests.request(store)
    path = signed(signer, store, tmp_path)
    other = MemberKeys(Identity("shop", "party", "browser"), tmp_path / "browser" / "keys")
    key_requests.request(other)
    with pytest.raises(SettingsError, match="names fdml://shop/party/store, not fdml://shop/party/browser"):
        key_requests.install(other, path)
    again = MemberKeys(STORE, tmp_path / "again")
    key_requests.request(again)
    with pytest.raises(
        SettingsError, match=r"was made for another key than '.*key\.pem'; send the newest store\.request"
    ):
        key_requests.install(again, path)
    only = tmp_path / "only.pem"
    only.write_bytes(signer.issued()[0].public_bytes(serialization.Encoding.PEM))
    with pytest.raises(SettingsError, match="does not hold a certificate and the authority"):
        key_requests.install(store, only)


def test_an_authority_signs_for_its_own_run_only(signer, tmp_path):
    member = MemberKeys(Identity("other", "party", "store"), tmp_path / "keys")
    key_requests.request(member)
    with pytest.raises(SettingsError, match="names federation 'other', and this authority is that of 'shop'"):
        signer.sign(*read_request(member.request_path))


def test_a_revoked_key_is_not_signed_again_but_a_new_one_is(store, signer, tmp_path):
    key_requests.request(store)
    certificate = key_requests.install(store, signed(signer, store, tmp_path))
    assert [each.serial_number for each in signer.revoke("store")] == [certificate.serial_number]
    assert signer.revoke("store") == []
    assert list(signer.revoked()) == [certificate.serial_number]
    assert signer.members() == {}
    key_requests.renew(store)
    with pytest.raises(SettingsError, match="was revoked; ask for a new key: `fdml keys renew --new-key`"):
        signed(signer, store, tmp_path)
    new = key_requests.renew(store, new_key=True)
    key_requests.install(store, signed(signer, store, tmp_path))
    assert signer.members() == {"store": new}
    assert list(signer.revoked()) == [certificate.serial_number]


def test_only_who_was_signed_for_can_be_revoked(store, signer, tmp_path):
    key_requests.request(store)
    signed(signer, store, tmp_path)
    with pytest.raises(SettingsError, match="has signed nothing for 'browser', only for store"):
        signer.revoke("browser")


def test_an_authority_is_found_again_and_its_key_is_for_its_owner_only(signer):
    again = AuthorityFolder(signer.path)
    assert again.authority.federation == "shop"
    assert again.fingerprint == signer.fingerprint
    assert stat.S_IMODE((signer.path / "key.pem").stat().st_mode) == 0o600
    with pytest.raises(SettingsError, match="is there, but is no authority"):
        AuthorityFolder.make(signer.path, "shop")


def odd_request(names, key=None):
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if names:
        uris = [x509.UniformResourceIdentifier(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=False)
    made = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty or no certificate request"),
        (b"nonsense", "is empty or no certificate request"),
        (odd_request([]), "does not name one member of a federation"),
        (odd_request(["https://example.org"]), "does not name one member of a federation"),
        (odd_request(["fdml://shop/party/a", "fdml://shop/party/b"]), "does not name one member of a federation"),
        (odd_request(["fdml://shop/authority/authority"]), "does not name one member of a federation"),
    ],
)
def test_a_request_that_will_not_do_is_refused_with_its_name(tmp_path, content, text):
    write_file(tmp_path / "x.request.pem", content)
    with pytest.raises(SettingsError, match=rf"x\.request\.pem' {text}"):
        read_request(tmp_path / "x.request.pem")


def test_a_request_with_someone_elses_key_is_refused(tmp_path):
    """Whoever sends a request must have its key: here the key in it was swapped."""
    mine, theirs = (x509.load_pem_x509_csr(odd_request(["fdml://shop/party/a"])) for _ in range(2))
    point = {x509_csr: x509_csr.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint) for x509_csr in (mine, theirs)}  # fmt: skip
    raw = mine.public_bytes(serialization.Encoding.DER).replace(point[mine], point[theirs])
    swapped = x509.load_der_x509_csr(raw)
    (tmp_path / "x.pem").write_bytes(swapped.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(SettingsError, match="is not signed with its own EC key"):
        read_request(tmp_path / "x.pem")


def test_whose_keys_are_meant_follows_from_the_settings_file(tmp_path):
    (tmp_path / "federation.toml").write_text('name = "shop"\nparties = ["store"]\n')
    party = 'party = "{}"\nfederation = "federation.toml"\n[data]\npath = "x.csv"\n'
    (tmp_path / "party.toml").write_text(party.format("store"))
    assert member_keys(tmp_path / "party.toml") == MemberKeys(STORE, tmp_path / "keys")
    server = Identity("shop", "server", "server")
    assert member_keys(tmp_path / "federation.toml") == MemberKeys(server, tmp_path / "server" / "keys")
    (tmp_path / "party.toml").write_text(party.format("zed"))
    with pytest.raises(SettingsError, match="party 'zed' is not among the federation's parties store"):
        member_keys(tmp_path / "party.toml")
