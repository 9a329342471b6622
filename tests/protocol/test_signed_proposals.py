"""Proposals: who is said to have started a run has signed all its settings."""

import json
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal, SettingsError
from fdml.federation.certificates import Authority
from fdml.protocol.certificates import fingerprint
from fdml.protocol.run_messages import Proposal
from fdml.protocol.signed_proposals import check_proposal, make_proposal, proposed_settings
from fdml.settings import RunSettings, TrainingSettings

AUTHORITY = Authority("shop")
ANN, BOB = (AUTHORITY.issue("party", name) for name in ("ann", "bob"))


def key_of(credentials):
    return fingerprint(x509.load_pem_x509_certificate(credentials.certificate))


MEMBERS = {"ann": key_of(ANN), "bob": key_of(BOB), "server": key_of(AUTHORITY.issue("server", "server"))}
RUN = RunSettings(name="first", federation="shop", parties=("ann", "bob"), label_party="ann", members=MEMBERS)


def check(proposal, party="ann", run=RUN, **options):
    check_proposal(proposal, run, party, AUTHORITY.certificate, **options)


def test_the_settings_of_a_proposal_are_those_of_the_run():
    run = RUN.model_copy(update={"training": TrainingSettings(epochs=3, class_weight={"yes": 2.0})})
    assert proposed_settings(make_proposal(run, "ann", ANN)) == run
    assert proposed_settings(make_proposal(run, "ann", None)) == run


def test_a_signed_proposal_holds():
    check(make_proposal(RUN, "ann", ANN))


def test_a_plain_proposal_has_neither_certificate_nor_signature():
    assert make_proposal(RUN, "ann", None) == Proposal(RUN.model_dump_json(exclude_unset=True).encode())


def other_run():
    return RUN.model_copy(update={"label_party": "bob"})


WRONG = {
    "unsigned": (make_proposal(RUN, "ann", None), "no certificate of the federation's authority"),
    "signed by another party": (make_proposal(RUN, "ann", BOB), "another key"),
    "other settings than were signed": (
        replace(make_proposal(RUN, "ann", ANN), settings=other_run().model_dump_json().encode()),
        "wrong signature",
    ),
    "of another authority": (make_proposal(RUN, "ann", Authority("shop").issue("party", "ann")), "no certificate"),
    "of another key than the members have": (make_proposal(RUN, "ann", AUTHORITY.issue("party", "ann")), "another key"),
    "of another federation": (
        make_proposal(RUN, "ann", AUTHORITY.issue("party", "ann", key=ANN.key, federation="x")),
        "does not name",
    ),
    "run out": (make_proposal(RUN, "ann", AUTHORITY.issue("party", "ann", days=-1, key=ANN.key)), "ran out"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_proposal_that_its_starter_has_not_signed_is_refused(what):
    proposal, text = WRONG[what]
    with pytest.raises(MessageRefused, match=text) as refused:
        check(proposal)
    assert refused.value.refusal is Refusal.UNAUTHENTICATED
    assert "'first', said to be started by 'ann'" in str(refused.value)


def test_a_revoked_starter_is_refused():
    serial = x509.load_pem_x509_certificate(ANN.certificate).serial_number
    with pytest.raises(MessageRefused, match="revoked"):
        check(make_proposal(RUN, "ann", ANN), revoked=frozenset([serial]))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"name": "x"}', b'{"evil": 1}', b"\xff", b"[" * 100_000])
def test_settings_that_are_none_are_refused(raw):
    with pytest.raises(MessageRefused, match="the proposed settings cannot be used") as refused:
        proposed_settings(Proposal(raw))
    assert refused.value.refusal is Refusal.INVALID


def test_a_key_that_cannot_sign_is_named_before_anything_is_sent():
    raw = ed25519.Ed25519PrivateKey.generate()
    pem = raw.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with pytest.raises(SettingsError, match="the key of party 'ann' is no EC key; `fdml keys request` makes one"):
        make_proposal(RUN, "ann", replace(ANN, key=pem))


@pytest.mark.parametrize("certificate", [b"", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", b"\0"])
def test_bytes_that_are_no_certificate_are_refused(certificate):
    with pytest.raises(MessageRefused, match="no certificate of the federation's authority"):
        check(replace(make_proposal(RUN, "ann", ANN), certificate=certificate))


@given(st.binary(max_size=80))
def test_no_other_bytes_are_a_signature(signature):
    with pytest.raises(MessageRefused, match="wrong signature"):
        check(replace(make_proposal(RUN, "ann", ANN), signature=signature))


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: json.dumps({text: text}).encode()))
def test_garbage_for_settings_is_refused_on_one_line(raw):
    with pytest.raises(MessageRefused, match="cannot be used") as refused:
        proposed_settings(Proposal(raw))
    assert str(refused.value).isprintable()
