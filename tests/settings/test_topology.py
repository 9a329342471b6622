"""Where the sums are made, and what is refused as it would show more than a run over a server does."""

import pytest

from fdml.errors import SettingsError
from fdml.settings import RunSettings, run_hash
from fdml.settings.federation import FederationSettings
from fdml.settings.hash import training_hash

BLIND = {"server": "blind"}


def hosted(host="ann", parties=("ann", "bob", "cat"), align="ecdh", privacy=BLIND, **training):
    return RunSettings(
        parties=parties, label_party="ann", host=host, align=align, privacy=privacy, training={"epochs": 2, **training}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "dan"}, r"host is 'dan', which is not among the parties ann, bob, cat; name the party"),
        ({"align": "tokens"}, r'the host has the key of the tokens and could look for any id.*set align = "ecdh"'),
        ({"privacy": {}}, r'\[privacy\] server = "plain" would show that party the predictions.*set server = "blind"'),
        ({"staleness": 2}, r"staleness = 2: the masks are then under a key that every party has.*set staleness = 0"),
        (
            {"host": "bob", "privacy": {**BLIND, "labels": "private"}},
            r"keeps totals from all but the label party, and the host has them; set host = 'ann'",
        ),
    ],
)
def test_a_host_that_would_see_more_than_a_party_does_is_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        hosted(**changes)


def test_a_host_of_a_blind_server_at_staleness_0_is_taken():
    assert hosted().has_pairwise_masks
    assert hosted(privacy={**BLIND, "labels": "private"}).host == "ann"


def test_a_party_alone_may_host_anything():
    assert hosted(parties=("ann",), align="tokens", privacy={}).host == "ann"


def test_the_host_is_agreed_on_but_changes_neither_noise_nor_rows():
    runs = [hosted(host=host) for host in (None, "ann", "bob")]
    assert len({run_hash(run) for run in runs}) == 3
    assert len({training_hash(run) for run in runs}) == 1


def test_a_federation_names_its_host_for_all_its_runs():
    who = FederationSettings(parties=["ann", "bob"], host="bob")
    run = who.run(label_party="ann", align="ecdh", privacy=BLIND)
    assert run.host == "bob"
    assert FederationSettings.of_run(run).host == "bob"
    with pytest.raises(SettingsError, match=r"'host' stands in federation\.toml now"):
        who.run(label_party="ann", host="ann")
    with pytest.raises(SettingsError, match="host is 'cat', which is not among the parties ann, bob"):
        FederationSettings(parties=["ann", "bob"], host="cat")


# No server at all.

ADDRESSES = {"ann": "10.0.0.1:7443", "bob": "10.0.0.2:7443", "cat": "10.0.0.3:7443"}


def mesh(server="none", addresses=ADDRESSES, align="ecdh", privacy=BLIND, staleness=0, **more):
    return RunSettings(
        server=server,
        addresses=addresses,
        parties=("ann", "bob", "cat"),
        label_party="ann",
        align=align,
        privacy=privacy,
        training={"epochs": 2, "staleness": staleness},
        **more,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"server": "127.0.0.1:7443"},
            r"there is one at '127.0.0.1:7443'; set server = \"none\", or leave \[addresses\]",
        ),
        ({"addresses": {"ann": "10.0.0.1:7443"}}, r"\[addresses\] lacks 'bob' and 'cat'; add bob = \"host:7443\""),
        ({"addresses": {**ADDRESSES, "dan": "x:1"}}, r"\[addresses\] names 'dan', which is not among the parties"),
        ({"host": "ann"}, r"every party sum for itself, and host = 'ann'; leave one of them out"),
        ({"align": "tokens"}, r'a party would compare the tokens and has their key.*set align = "ecdh"'),
        ({"privacy": {}}, r'shows every party what all others push; set server = "blind" under \[privacy\]'),
        ({"staleness": 1}, r"with staleness = 1: every party would sum other parts.*set staleness = 0"),
        ({"privacy": {**BLIND, "labels": "private"}}, r"every party has them; have the label party host the server"),
        ({"comparing_party": "dan"}, r"comparing_party is 'dan', which is not among the parties ann, bob, cat"),
    ],
)
def test_a_mesh_that_would_show_more_than_totals_is_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        mesh(**changes)


def test_a_comparing_party_is_for_runs_without_a_server():
    with pytest.raises(SettingsError, match="compares blinded ids where there is no server, and there is one at"):
        mesh(server="127.0.0.1:7443", addresses={}, comparing_party="ann")


def test_a_mesh_has_masks_of_pairs_and_the_first_party_compares_unless_one_is_named():
    run = mesh()
    assert (run.is_mesh, run.has_pairwise_masks, run.comparer) == (True, True, "ann")
    assert mesh(comparing_party="cat").comparer == "cat"
    assert not hosted().is_mesh


def test_one_party_may_accept_no_connections():
    assert mesh(addresses={name: ADDRESSES[name] for name in ("ann", "cat")}).is_mesh


def test_the_topology_changes_neither_noise_nor_rows():
    runs = [mesh(), mesh(comparing_party="cat"), mesh(addresses={**ADDRESSES, "ann": "10.0.0.9:1"}), hosted()]
    assert len({run_hash(run) for run in runs}) == 4
    assert len({training_hash(run) for run in runs[:3]}) == 1


def test_a_federation_without_a_server_has_the_keys_of_its_parties_alone():
    keys = {name: f"sha256:{number:064x}" for number, name in enumerate(ADDRESSES)}
    who = FederationSettings(server="none", addresses=ADDRESSES, parties=tuple(ADDRESSES), members=keys)
    run = who.run(label_party="ann", align="ecdh", privacy=BLIND)
    assert FederationSettings.of_run(run) == who
    with pytest.raises(SettingsError, match="names 'server', which is neither a party nor the server"):
        FederationSettings(
            server="none",
            addresses=ADDRESSES,
            parties=tuple(ADDRESSES),
            members={**keys, "server": "sha256:" + "f" * 64},
        )


def test_members_of_a_mesh_are_all_its_parties_each_with_a_key_of_its_own():
    keys = {name: f"sha256:{number:064x}" for number, name in enumerate(ADDRESSES)}
    with pytest.raises(SettingsError, match=r"\[members\] lacks 'cat'"):
        mesh(members={name: keys[name] for name in ("ann", "bob")})
    with pytest.raises(SettingsError, match=r"two of the .* have the same key"):
        mesh(members={**keys, "cat": keys["ann"]})
    assert mesh(members=keys).members == keys


def test_who_works_together_does_not_stand_in_run_toml():
    who = FederationSettings(server="none", addresses=ADDRESSES, parties=tuple(ADDRESSES))
    with pytest.raises(SettingsError, match=r"'addresses' stands in federation\.toml now"):
        who.run(label_party="ann", addresses=ADDRESSES)
    assert who.run(label_party="ann", align="ecdh", privacy=BLIND, comparing_party="bob").comparer == "bob"


@pytest.mark.parametrize("comparing", [None, "ann", "bob", "cat"])
def test_any_party_may_compare_the_ids(comparing):
    run = mesh(comparing_party=comparing)
    assert run.comparer == (comparing or run.parties[0])
    assert run.comparer in run.parties


def test_addresses_are_the_same_in_any_order():
    turned = dict(reversed(ADDRESSES.items()))
    assert run_hash(mesh()) == run_hash(mesh(addresses=turned))
