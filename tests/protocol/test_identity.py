import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.identity import Identity, host_name, parse_identity

names = st.text(min_size=1).filter(lambda text: text.isprintable())


@given(names, st.sampled_from(["party", "server"]), names)
def test_an_identity_comes_back_from_its_uri(run, role, name):
    assert parse_identity(Identity(run, role, name).uri) == Identity(run, role, name)


def test_a_slash_in_a_name_names_nobody_else():
    tricky = Identity("credit", "party", "../server/ann")
    assert tricky.uri.count("/") == 4
    assert parse_identity(tricky.uri) == tricky


@pytest.mark.parametrize(
    "uri",
    ["", "fdml:", "fdml://credit/party", "fdml://credit/party/", "fdml:///party/ann", "fdml://credit//ann", "ann"],
)
def test_a_uri_without_all_three_parts_names_nobody(uri):
    assert parse_identity(uri) is None


@pytest.mark.parametrize("uri", ["fdml://credit/party/ann/more", "http://credit/party/ann", "FDML://credit/party/ann"])
def test_a_uri_of_another_kind_names_nobody(uri):
    assert parse_identity(uri) is None


@given(st.text())
def test_a_server_s_name_is_a_host_name_whatever_the_run_is_called(run):
    assert re.fullmatch(r"server\.[a-z0-9-]{1,63}\.fdml", host_name(run))


def test_a_federation_s_name_can_be_read_in_its_server_s_name():
    assert host_name("Credit 2026") == "server.credit-2026.fdml"
    assert re.fullmatch(r"party-[0-9a-f]{32}\.credit-2026\.fdml", host_name("Credit 2026", "a store"))
    assert host_name("???") == "server.federation.fdml"
