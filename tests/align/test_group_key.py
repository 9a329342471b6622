import datetime
import re
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.conversation import converse
from fdml.align.group_key import GroupKey, agree, read_key_file
from fdml.align.offers import check_offer, make_offer
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError, MessageRefused, PeerTimeout, Refusal, SettingsError
from fdml.federation.certificates import Authority, subject_of
from fdml.protocol.alignment_messages import Fetch, KeyCheck, KeyGrant, KeyOffer, Post
from fdml.protocol.certificates import fingerprint
from fdml.protocol.identity import Credentials
from fdml.settings import RunSettings
from tests.align.bulletins import PartyCalls, align_all, open_store
from tests.align.test_matching import TEXTS, ids_of
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("bank", "shop", "clinic")
RUN = RunSettings(name="first", federation="credit", parties=PARTIES, label_party="bank")
AUTHORITY = Authority("credit")
CREDENTIALS = {party: AUTHORITY.issue("party", party) for party in PARTIES}
KEY = GroupKey(bytes(range(32)))


def key_file(folder, text, mode=0o600):
    path = folder / "group.key"
    path.write_text(text)
    path.chmod(mode)
    return path


def tampering(calls, kind, change):
    """Answers by which someone in between changes what a party fetches."""

    def answer(request):
        reply = calls.answer(request)
        return change(reply) if isinstance(request, Fetch) and request.kind is kind else reply

    return answer


def secrets_of(party, credentials=None):
    return Secrets.load_or_make(MemoryDisk(), RUN, party, credentials)


def post(store, party, message):
    PartyCalls(store, party).answer(Post(message))


def agreed(store, party, secrets, *, answer=None, credentials=None, key_file=None):
    """The key that a party agrees on; whom it would wait for raises `PeerTimeout`."""
    conversation = agree(RUN, party, secrets, credentials, key_file)
    return converse(conversation, answer or PartyCalls(store, party).answer)


def begin(store, *parties):
    """Let parties post their offers, so that another can go on."""
    secrets = {party: secrets_of(party, CREDENTIALS[party]) for party in parties}
    for party, each in secrets.items():
        post(store, party, each.offer)
    return secrets


def test_all_parties_get_one_key_over_signed_offers():
    found = align_all(RUN, ids_of(TEXTS), credentials=CREDENTIALS)
    assert len({key.secret for _, key in found.values()}) == 1


def test_plain_lines_go_unsigned():
    disk = MemoryDisk()
    found = align_all(RUN, ids_of(TEXTS), open_store(RUN, disk))
    assert len({key.secret for _, key in found.values()}) == 1
    assert b"CERTIFICATE" not in b"".join(disk.files.values())


def test_a_party_alone_has_a_key_too():
    run = RunSettings(parties=("bank",), label_party="bank")
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    conversation = agree(run, "bank", secrets, None)
    assert converse(conversation, PartyCalls(open_store(run), "bank").answer).key.secret == secrets.group_key


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
        .subject_name(subject_of("fdml credit"))
        .issuer_name(subject_of("fdml credit"))
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
OTHER_RUN = RUN.model_copy(update={"align": "ecdh"})
FORGED = {
    "an unsigned offer": (offer_by("shop", None), "no certificate of the federation's authority"),
    "no certificate at all": (replace(SHOP, certificate=b"none"), "no certificate of the federation's authority"),
    "a certificate of another authority": (offer_by("shop", self_signed("shop")), "no certificate of the federation's"),
    "one that has run out": (offer_by("shop", AUTHORITY.issue("party", "shop", days=-1)), "ran out on"),
    "that of another party": (offer_by("shop", CREDENTIALS["clinic"]), "does not name party 'shop'"),
    "that of the server": (offer_by("shop", AUTHORITY.issue("server", "shop")), "does not name party 'shop'"),
    "that of another run": (offer_by("shop", AUTHORITY.issue("party", "shop", federation="x")), "of 'credit'"),
    "a swapped public key": (swapped(SHOP), "wrong signature"),
    "a signature that is none": (replace(SHOP, signature=b"x" * 70), "wrong signature"),
    "a signature for another party": (offer_by("clinic", CREDENTIALS["shop"]), "wrong signature"),
    "a signature for another alignment": (offer_by("shop", CREDENTIALS["shop"], OTHER_RUN), "wrong signature"),
    "a key of another kind": (replace(SHOP, certificate=rsa_credentials().certificate), "wrong signature"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_offer_is_refused_with_the_name_of_the_party(forgery):
    offer, reason = FORGED[forgery]
    with pytest.raises(AlignmentError, match=f"posts as party 'shop'.*{re.escape(reason)}"):
        check_offer(offer, RUN, "shop", AUTHORITY.certificate)
    check_offer(SHOP, RUN, "shop", AUTHORITY.certificate)


PINNED = RUN.model_copy(
    update={
        "members": {
            **{
                name: fingerprint(x509.load_pem_x509_certificate(each.certificate))
                for name, each in CREDENTIALS.items()
            },
            "server": "sha256:" + "0" * 64,
        }
    }
)


def test_an_authority_that_signs_a_second_certificate_for_a_party_gets_nothing():
    """Finding 12: a server with the authority's key signed a certificate for a party and had the group key."""
    forged = AUTHORITY.issue("party", "shop")
    offer = offer_by("shop", forged, PINNED)
    check_offer(offer_by("shop", CREDENTIALS["shop"], PINNED), PINNED, "shop", AUTHORITY.certificate)
    with pytest.raises(
        AlignmentError, match=r"posts as party 'shop' shows a certificate that has another key \(sha256:"
    ):
        check_offer(offer, PINNED, "shop", AUTHORITY.certificate)
    renewed = AUTHORITY.issue("party", "shop", key=CREDENTIALS["shop"].key)
    check_offer(offer_by("shop", renewed, PINNED), PINNED, "shop", AUTHORITY.certificate)


def test_a_server_with_the_authoritys_key_gets_no_grant_of_the_group_key():
    """Finding 12, the whole attack: it swaps a party's offer for one of its own making and waits for the grant."""
    store = open_store(PINNED)
    private = bytes(range(32))
    forged = make_offer(private, PINNED, "shop", AUTHORITY.issue("party", "shop"))
    begin(store, "shop")
    calls = PartyCalls(store, "bank")
    answer = tampering(calls, KeyOffer, lambda _: forged)
    own = Secrets.load_or_make(MemoryDisk(), PINNED, "bank", CREDENTIALS["bank"])
    with pytest.raises(AlignmentError, match=r"posts as party 'shop' shows a certificate that has another key"):
        converse(agree(PINNED, "bank", own, CREDENTIALS["bank"]), answer)
    assert [kind for kind, *_ in calls.posted] == ["key_offer"], "no grant was posted"


def test_an_offer_under_a_revoked_certificate_is_refused():
    serial = x509.load_pem_x509_certificate(CREDENTIALS["shop"].certificate).serial_number
    with pytest.raises(AlignmentError, match=r"posts as party 'shop' shows a certificate that is revoked"):
        check_offer(SHOP, RUN, "shop", AUTHORITY.certificate, frozenset({serial}))


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_server_that_swaps_a_public_key_is_found_out(party):
    other = "shop" if party == "bank" else "bank"
    store = open_store(RUN)
    begin(store, other, "clinic")
    calls = PartyCalls(store, party)
    answer = tampering(calls, KeyOffer, swapped)
    with pytest.raises(AlignmentError, match=f"posts as party {other!r}"):
        agreed(store, party, secrets_of(party, CREDENTIALS[party]), answer=answer, credentials=CREDENTIALS[party])
    assert [kind for kind, *_ in calls.posted] == ["key_offer"]


def test_a_certificate_without_names_is_refused():
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject_of("fdml credit"))
        .issuer_name(subject_of("fdml credit"))
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
    store = open_store(RUN)
    post(store, "clinic", secrets_of("clinic").offer)
    post(store, "shop", KeyOffer(bytes(32)))
    with pytest.raises(AlignmentError, match="party 'shop' offers a public key that is none"):
        agreed(store, "bank", secrets_of("bank"))


def with_another_last_byte(grant):
    return KeyGrant(grant.sealed[:-1] + bytes([grant.sealed[-1] ^ 1]))


def test_a_grant_that_was_changed_on_the_way_is_refused():
    store = open_store(RUN)
    secrets = begin(store, "bank", "shop", "clinic")
    with pytest.raises(PeerTimeout, match="'shop'"):
        agreed(store, "bank", secrets["bank"], credentials=CREDENTIALS["bank"])
    answer = tampering(PartyCalls(store, "shop"), KeyGrant, with_another_last_byte)
    with pytest.raises(AlignmentError, match="the group key that party 'bank' sealed for 'shop' cannot be opened"):
        agreed(store, "shop", secrets["shop"], answer=answer, credentials=CREDENTIALS["shop"])


def test_a_grant_holds_for_one_pair_of_offers_only():
    store = open_store(RUN)
    secrets = begin(store, "bank", "shop", "clinic")
    with pytest.raises(PeerTimeout):
        agreed(store, "bank", secrets["bank"], credentials=CREDENTIALS["bank"])
    for_clinic = PartyCalls(store, "clinic").answer(Fetch(KeyGrant, "bank"))
    answer = tampering(PartyCalls(store, "shop"), KeyGrant, lambda _: for_clinic)
    with pytest.raises(AlignmentError, match="cannot be opened"):
        agreed(store, "shop", secrets["shop"], answer=answer, credentials=CREDENTIALS["shop"])


def test_a_key_file_needs_no_grant_but_offers_are_made_for_the_keys_of_pairs(tmp_path):
    path = key_file(tmp_path, "ab" * 32 + "\n")
    disk = MemoryDisk()
    found = align_all(RUN, ids_of(TEXTS), open_store(RUN, disk), key_files=dict.fromkeys(PARTIES, path))
    assert {key.secret for _, key in found.values()} == {b"\xab" * 32}
    assert not any("grant" in name for name in disk.files)
    assert sum("offer" in name for name in disk.files) == len(PARTIES)


def test_another_key_names_both_parties(tmp_path):
    (tmp_path / "other").mkdir()
    same, other = key_file(tmp_path, "ab" * 32), key_file(tmp_path / "other", "cd" * 32)
    with pytest.raises(AlignmentError, match="party 'bank' has another group key than 'clinic'"):
        align_all(RUN, ids_of(TEXTS), key_files={"bank": same, "shop": same, "clinic": other})


def test_a_check_of_another_party_does_not_count_as_ones_own(tmp_path):
    path = key_file(tmp_path, "ab" * 32)
    store, secrets = open_store(RUN), secrets_of("bank")
    for other in ("shop", "clinic"):
        post(store, other, replace(secrets_of(other).offer, brings_key=True))
    with pytest.raises(PeerTimeout, match="'shop'"):
        agreed(store, "bank", secrets, key_file=path)
    post(store, "shop", PartyCalls(store, "shop").answer(Fetch(KeyCheck, "bank")))
    with pytest.raises(AlignmentError, match="party 'shop' has another group key"):
        agreed(store, "bank", secrets, key_file=path)


@pytest.mark.parametrize("first", ["with", "without"])
def test_a_key_file_at_one_party_only_is_refused_at_once(tmp_path, first):
    path, store = key_file(tmp_path, "ab" * 32), open_store(RUN)
    files = {"bank": path if first == "with" else None, "shop": None if first == "with" else path}
    with pytest.raises(PeerTimeout):
        agreed(store, "bank", secrets_of("bank"), key_file=files["bank"])
    having, lacking = ("bank", "shop") if first == "with" else ("shop", "bank")
    text = f"party '{having}' came with a group_key file and party '{lacking}' without"
    with pytest.raises(MessageRefused, match=text) as raised:
        agreed(store, "shop", secrets_of("shop"), key_file=files["shop"])
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


@pytest.mark.parametrize("change", ["run", "rows"])
def test_one_key_file_gives_every_run_and_every_alignment_a_key_of_its_own(change):
    """Finding 19: sealed labels and masks were bound to neither, so that one run's fitted in another."""
    one = KEY.bound_to(b"r" * 32, b"a" * 32)
    other = KEY.bound_to(b"s" * 32, b"a" * 32) if change == "run" else KEY.bound_to(b"r" * 32, b"b" * 32)
    assert one == KEY.bound_to(b"r" * 32, b"a" * 32), "the same at every party"
    assert len({KEY.secret, one.secret, other.secret}) == 3
    assert one.derive("masks") != other.derive("masks")
    with pytest.raises(AlignmentError, match="cannot be opened"):
        other.open("labels", one.seal("labels", b"the labels"))
