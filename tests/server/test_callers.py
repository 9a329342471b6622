"""Who calls: the name in a certificate of the federation, and nobody else."""

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.identity import Identity
from fdml.server.callers import caller_named, check_party
from fdml.settings.federation import FederationSettings

SHOP = FederationSettings(name="shop", parties=("ann", "bob"))


def uri(name, role="party", federation="shop"):
    return Identity(federation, role, name).uri


def test_a_party_is_whom_its_certificate_names():
    assert caller_named([uri("bob")], SHOP) == "bob"
    assert caller_named(["https://example.org", uri("ann")], SHOP) == "ann"
    assert caller_named([uri("any", role="server")], SHOP, "server") == "any"


@pytest.mark.parametrize(
    ("uris", "refusal", "text"),
    [
        ([], Refusal.UNAUTHENTICATED, "the certificate names nobody; this is federation 'shop'"),
        (["https://example.org"], Refusal.UNAUTHENTICATED, "names 'https://example.org'"),
        ([uri("bob", federation="other")], Refusal.UNAUTHENTICATED, "fdml://other/party/bob"),
        ([uri("bob", role="server")], Refusal.UNAUTHENTICATED, "only a party of it may join"),
        ([uri("zed")], Refusal.NOT_PERMITTED, "'zed' is not a party of this federation: ann, bob"),
    ],
)
def test_a_certificate_that_names_no_party_of_the_federation_is_refused(uris, refusal, text):
    with pytest.raises(MessageRefused, match=text) as refused:
        caller_named(uris, SHOP)
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("name", ["", "zed", "x" * 10_000])
def test_a_name_that_is_no_party_s_is_refused_and_not_quoted_at_length(name):
    with pytest.raises(MessageRefused) as refused:
        check_party(name, SHOP)
    assert len(str(refused.value)) < 200


def test_long_names_of_a_certificate_are_cut():
    with pytest.raises(MessageRefused) as refused:
        caller_named(["x" * 10_000, "y" * 10_000, "z", "z", "z"], SHOP)
    assert len(str(refused.value)) < 400
