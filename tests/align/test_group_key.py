import datetime
import re
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.group_key import GroupKey, agree, read_key_file
from fdml.align.offers import check_offer, make_offer
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError, MessageRefused, PeerTimeout, Refusal, SettingsError
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_messages import KeyCheck, KeyGrant, KeyOffer
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings
from tests.align.bulletins import Hall
from tests.align.bulletins import all_together as align_all
from tests.align.test_matching import TEXTS, ids_of
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("bank", "shop", "clinic")
RUN = RunSettings(name="credit", parties=PARTIES, label_party="bank")
AUTHORITY = Authority("credit")
CREDENTIALS = {party: AUTHORITY.issue("party", party) for party in PARTIES}
KEY = GroupKey(bytes(range(32)))


def key_file(folder, text, mode=0o600):
    path = folder / "group.key"
    path.write_text(text)
    path.chmod(mode)
    return path


class Tampering:
    """A line by which someone in between changes what a party is shown."""

    def __init__(self, line, kind, change):
        self._line = line
        self._kind = kind
        self._change = change

    def post(self, message, to="", about=""):
        self._line.post(message, to, about)

    def fetch(self, kind, sender, about=""):
        message = self._line.fetch(kind, sender, about)
        return self._change(message) if kind is self._kind else message


def begin(hall, *others):
    """Let parties post their offers, so that another can go on."""
    kept = {}
    for party in others:
        kept[party] = Secrets.load_or_make(MemoryDisk(), RUN, party, CREDENTIALS[party])
        hall.line(party).post(kept[party].offer)
    return kept


def test_all_parties_get_one_key_over_signed_offers():
    found = align_all(RUN, ids_of(TEXTS), credentials=CREDENTIALS)
    assert len({key.secret for _, key in found.values()}) == 1


def test_plain_lines_go_unsigned():
    hall = Hall(RUN)
    found = align_all(RUN, ids_of(TEXTS), hall)
    assert len({key.secret for _, key in found.values()}) == 1
    assert b"CERTIFICATE" not in b"".join(hall.disk.files.values())


def test_a_party_alone_has_a_key_too():
    run = RunSettings(parties=("bank",), label_party="bank")
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    assert agree(Hall(run).line("bank"), run, "bank", secrets, None).secret == secrets.group_key


def offer_by(party, credentials, run=RUN):
    return make_offer(bytes(range(32)), run, party, credentials)


def swapped(offer):
    return replace(offer, public=bytes(31) + b"\x09")


def self_signed(party):
    """A certificate with the right name and issuer, signed by a key of the forger's own."""
    forger = Authority("credit")
    return forger.issue("party", party)


def rsa_credentials():
    """A certificate by the true authority, but with another kind of key."""
    key = rsa.generate_private_key(65537, 2048)
    now = datetime.datetime.now(datetime.UTC)
    own = AUTHORITY._key
    certificate = (
        x509.CertificateBuilder()
        .subject_name(AUTHORITY._name)
        .issuer_name(AUTHORITY._name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("fdml://credit/party/shop")]), critical=False
        )
        .sign(own, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Credentials(pem, certificate.public_bytes(serialization.Encoding.PEM), AUTHORITY.certificate)


SHOP = offer_by("shop", CREDENTIALS["shop"])
OTHER_RUN = RUN.model_copy(update={"task": "regression"})
FORGED = {
    "an unsigned offer": (offer_by("shop", None), "no certificate of the run's authority"),
    "no certificate at all": (replace(SHOP, certificate=b"none"), "no certificate of the run's authority"),
    "a certificate of another authority": (offer_by("shop", self_signed("shop")), "no certificate of the run's"),
    "one that has run out": (offer_by("shop", AUTHORITY.issue("party", "shop", days=-1)), "ran out on"),
    "that of another party": (offer_by("shop", CREDENTIALS["clinic"]), "does not name party 'shop'"),
    "that of the server": (offer_by("shop", AUTHORITY.issue("server", "shop")), "does not name party 'shop'"),
    "that of another run": (offer_by("shop", AUTHORITY.issue("party", "shop", run="x")), "of run 'credit'"),
    "a swapped public key": (swapped(SHOP), "wrong signature"),
    "a signature that is none": (replace(SHOP, signature=b"x" * 70), "wrong signature"),
    "a signature for another party": (offer_by("clinic", CREDENTIALS["shop"]), "wrong signature"),
    "a signature for another run.toml": (offer_by("shop", CREDENTIALS["shop"], OTHER_RUN), "wrong signature"),
    "a key of another kind": (replace(SHOP, certificate=rsa_credentials().certificate), "wrong signature"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_offer_is_refused_with_the_name_of_the_party(forgery):
    offer, said = FORGED[forgery]
    with pytest.raises(AlignmentError, match=f"posts as party 'shop'.*{re.escape(said)}"):
        check_offer(offer, RUN, "shop", AUTHORITY.certificate)
    check_offer(SHOP, RUN, "shop", AUTHORITY.certificate)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_server_that_swaps_a_public_key_is_found_out(party):
    other = "shop" if party == "bank" else "bank"
    hall = Hall(RUN)
    begin(hall, other)
    secrets = Secrets.load_or_make(MemoryDisk(), RUN, party, CREDENTIALS[party])
    line = Tampering(hall.line(party), KeyOffer, swapped)
    with pytest.raises(AlignmentError, match=f"posts as party {other!r}"):
        agree(line, RUN, party, secrets, CREDENTIALS[party])
    assert "board-key_grant-0-1" not in hall.disk.files
    assert f"board-key_check-{PARTIES.index(party)}" not in hall.disk.files


def test_a_certificate_without_names_is_refused():
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(AUTHORITY._name)
        .issuer_name(AUTHORITY._name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(AUTHORITY._key, hashes.SHA256())
    )
    offer = replace(SHOP, certificate=certificate.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(AlignmentError, match="does not name party 'shop'"):
        check_offer(offer, RUN, "shop", AUTHORITY.certificate)


def test_only_a_key_of_the_usual_kind_signs():
    with pytest.raises(SettingsError, match="no EC key"):
        offer_by("shop", rsa_credentials())


def test_a_public_key_that_is_none_names_its_party():
    hall = Hall(RUN)
    hall.line("shop").post(KeyOffer(bytes(32)))
    secrets = Secrets.load_or_make(MemoryDisk(), RUN, "bank", None)
    with pytest.raises(AlignmentError, match="party 'shop' offers a public key that is none"):
        agree(hall.line("bank"), RUN, "bank", secrets, None)


def test_a_grant_that_was_changed_on_the_way_is_refused():
    hall = Hall(RUN, peer_timeout_seconds=0.05)
    kept = begin(hall, "bank")
    shop = Secrets.load_or_make(MemoryDisk(), RUN, "shop", CREDENTIALS["shop"])
    hall.line("shop").post(shop.offer)
    with pytest.raises(PeerTimeout):
        agree(hall.line("bank"), RUN, "bank", kept["bank"], CREDENTIALS["bank"])
    line = Tampering(
        hall.line("shop"), KeyGrant, lambda grant: KeyGrant(grant.sealed[:-1] + bytes([grant.sealed[-1] ^ 1]))
    )
    with pytest.raises(AlignmentError, match="the group key that party 'bank' sealed for 'shop' cannot be opened"):
        agree(line, RUN, "shop", shop, CREDENTIALS["shop"])


def test_a_grant_holds_for_one_pair_of_offers_only():
    hall = Hall(RUN, peer_timeout_seconds=0.05)
    kept = begin(hall, "bank", "shop", "clinic")
    with pytest.raises(PeerTimeout):
        agree(hall.line("bank"), RUN, "bank", kept["bank"], CREDENTIALS["bank"])
    for_clinic = hall.line("clinic").fetch(KeyGrant, "bank")
    line = Tampering(hall.line("shop"), KeyGrant, lambda _: for_clinic)
    with pytest.raises(AlignmentError, match="cannot be opened"):
        agree(line, RUN, "shop", kept["shop"], CREDENTIALS["shop"])


def test_a_key_file_needs_no_offers(tmp_path):
    path = key_file(tmp_path, "ab" * 32 + "\n")
    hall = Hall(RUN)
    found = align_all(RUN, ids_of(TEXTS), hall, key_files=dict.fromkeys(PARTIES, path))
    assert {key.secret for _, key in found.values()} == {b"\xab" * 32}
    assert not any("offer" in name or "grant" in name for name in hall.disk.files)


def test_another_key_names_the_party_that_has_it(tmp_path):
    (tmp_path / "other").mkdir()
    same, other = key_file(tmp_path, "ab" * 32), key_file(tmp_path / "other", "cd" * 32)
    with pytest.raises(AlignmentError, match="party 'clinic' has another group key than 'bank'"):
        align_all(RUN, ids_of(TEXTS), key_files={"bank": same, "shop": same, "clinic": other})


def test_a_check_of_another_party_does_not_count_as_ones_own(tmp_path):
    path = key_file(tmp_path, "ab" * 32)
    hall = Hall(RUN, peer_timeout_seconds=0.05)
    secrets = Secrets.load_or_make(MemoryDisk(), RUN, "bank", None)
    with pytest.raises(PeerTimeout, match="'shop'"):
        agree(hall.line("bank"), RUN, "bank", secrets, None, path)
    copied = hall.line("shop").fetch(KeyCheck, "bank")
    hall.line("shop").post(copied)
    with pytest.raises(AlignmentError, match="party 'shop' has another group key"):
        agree(hall.line("bank"), RUN, "bank", secrets, None, path)


@pytest.mark.parametrize("first", ["with", "without"])
def test_a_key_file_at_one_party_only_is_told_at_once(tmp_path, first):
    path = key_file(tmp_path, "ab" * 32)
    hall = Hall(RUN, peer_timeout_seconds=0.05)
    files = {"bank": path if first == "with" else None, "shop": None if first == "with" else path}
    secrets = {party: Secrets.load_or_make(MemoryDisk(), RUN, party, None) for party in files}
    with pytest.raises(PeerTimeout):
        agree(hall.line("bank"), RUN, "bank", secrets["bank"], None, files["bank"])
    having, lacking = ("bank", "shop") if first == "with" else ("shop", "bank")
    said = f"party '{having}' came with a group_key file and party '{lacking}' without"
    with pytest.raises(MessageRefused, match=said) as raised:
        agree(hall.line("shop"), RUN, "shop", secrets["shop"], None, files["shop"])
    assert raised.value.refusal is Refusal.MISMATCH


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_key_file_that_others_can_read_is_refused(tmp_path, mode):
    with pytest.raises(SettingsError, match="can be read by others; run `chmod 600"):
        read_key_file(key_file(tmp_path, "ab" * 32, mode))


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "xy" * 32, "ab " * 32, "0x" + "ab" * 31])
def test_a_key_file_without_a_key_is_refused_and_not_shown(tmp_path, text):
    with pytest.raises(SettingsError, match="64 hexadecimal digits") as raised:
        read_key_file(key_file(tmp_path, text))
    assert "abab" not in str(raised.value)


def test_a_key_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match="there is no group_key file"):
        read_key_file(tmp_path / "none")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_key_file(tmp_path)


@given(st.binary(max_size=200), st.text(max_size=10))
def test_what_is_sealed_can_be_opened_and_is_the_same_every_time(plaintext, purpose):
    sealed = KEY.seal(purpose, plaintext)
    assert sealed == KEY.seal(purpose, plaintext)
    assert KEY.open(purpose, sealed) == plaintext
    assert len(sealed) == len(plaintext) + 28


@pytest.mark.parametrize("change", ["key", "purpose", "byte", "short"])
def test_what_was_changed_is_not_opened(change):
    sealed = KEY.seal("labels", b"the labels")
    key = GroupKey(bytes(32)) if change == "key" else KEY
    purpose = "masks" if change == "purpose" else "labels"
    if change == "byte":
        sealed = sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:]
    if change == "short":
        sealed = sealed[:5]
    with pytest.raises(AlignmentError, match=f"the sealed {purpose} of"):
        key.open(purpose, sealed)


def test_every_purpose_has_a_key_of_its_own():
    purposes = ["tokens", "ecdh", "check", "seal tokens", "nonce tokens"]
    assert len({KEY.derive(purpose) for purpose in purposes} | {KEY.secret}) == len(purposes) + 1
    assert KEY.seal("a", b"same")[:12] != KEY.seal("b", b"same")[:12]


def test_a_key_does_not_show_itself_and_has_one_size():
    assert "\\x" not in repr(KEY)
    assert KEY.secret.hex() not in repr(KEY)
    with pytest.raises(AlignmentError, match="a group key of 31 bytes"):
        GroupKey(bytes(31))
