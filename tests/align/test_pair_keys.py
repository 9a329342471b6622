"""Keys that each two parties share and nobody else: from their signed offers, for one run and one alignment."""

from dataclasses import replace

import pytest

from fdml.align.conversation import converse
from fdml.align.group_key import GroupKey, agree, pair_keys
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_messages import KeyOffer
from fdml.settings import RunSettings
from tests.align.bulletins import PartyCalls, open_store, take_turns
from tests.align.test_group_key import tampering
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("bank", "shop", "clinic")
RUN = RunSettings(name="first", federation="credit", parties=PARTIES, label_party="bank")
AUTHORITY = Authority("credit")
CREDENTIALS = {party: AUTHORITY.issue("party", party) for party in PARTIES}
DIGEST = b"d" * 32


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "group.key"
    path.write_text("ab" * 32)
    path.chmod(0o600)
    return path


def agreements(credentials=None, key_file=None):
    """What every party has agreed on, and its secrets."""
    credentials = credentials or dict.fromkeys(PARTIES)
    secrets = {party: Secrets.load_or_make(MemoryDisk(), RUN, party, credentials[party]) for party in PARTIES}
    store = open_store(RUN)
    found = take_turns(
        {party: agree(RUN, party, secrets[party], credentials[party], key_file) for party in PARTIES},
        {party: PartyCalls(store, party) for party in PARTIES},
    )
    return found, secrets


def keys_of(found, secrets, party, digest=DIGEST, run=RUN):
    return pair_keys(run, party, secrets[party], found[party], digest)


@pytest.mark.parametrize("source", ["agreed on", "agreed on without certificates", "file"])
def test_both_of_a_pair_find_the_same_key_and_every_pair_has_its_own(source, key_file):
    found, secrets = agreements(None if "without" in source else CREDENTIALS, key_file if source == "file" else None)
    keys = {party: keys_of(found, secrets, party) for party in PARTIES}
    for party in PARTIES:
        assert set(keys[party]) == set(PARTIES) - {party}
        for other, key in keys[party].items():
            assert key == keys[other][party]
    assert len({key for each in keys.values() for key in each.values()}) == 3
    assert all(len(key) == 32 for each in keys.values() for key in each.values())


@pytest.mark.parametrize("changed", ["alignment", "run", "group key", "an offer", "own secret"])
def test_a_pairs_key_is_bound_to_all_that_it_was_made_for(changed):
    found, secrets = agreements()
    before = keys_of(found, secrets, "bank")["shop"]
    run, digest = RUN, DIGEST
    agreement = found["bank"]
    if changed == "alignment":
        digest = b"e" * 32
    if changed == "run":
        run = RUN.model_copy(update={"name": "another"})
    if changed == "group key":
        agreement = replace(agreement, key=GroupKey(bytes(32)))
    if changed == "an offer":
        shop = replace(agreement.offers["shop"], brings_key=True)
        agreement = replace(agreement, offers={**agreement.offers, "shop": shop})
    if changed == "own secret":
        secrets = {**secrets, "bank": replace(secrets["bank"], private=bytes(range(32)))}
    assert pair_keys(run, "bank", secrets["bank"], agreement, digest)["shop"] != before


def test_another_partys_offer_has_no_part_in_a_pairs_key():
    found, secrets = agreements()
    before = keys_of(found, secrets, "bank")["shop"]
    clinic = replace(found["bank"].offers["clinic"], public=bytes(31) + b"\x09")
    changed = replace(found["bank"], offers={**found["bank"].offers, "clinic": clinic})
    assert pair_keys(RUN, "bank", secrets["bank"], changed, DIGEST)["shop"] == before


def test_on_unsigned_lines_too_who_shows_two_parties_different_offers_is_found_out(key_file):
    """The check is made of the group key, which is not on the line, and of all offers."""
    secrets = {party: Secrets.load_or_make(MemoryDisk(), RUN, party, None) for party in PARTIES}
    store = open_store(RUN)

    def swap(offer):
        return replace(offer, public=bytes(31) + b"\x09")

    class Swapping(PartyCalls):
        """What this party fetches is changed on its way."""

        def answer(self, request):
            return tampering(super(), KeyOffer, swap)(request)

    calls = {party: PartyCalls(store, party) for party in PARTIES} | {"bank": Swapping(store, "bank")}
    with pytest.raises(AlignmentError, match=r"has another group key than .*or other offers"):
        take_turns({party: agree(RUN, party, secrets[party], None, key_file) for party in PARTIES}, calls)


def test_a_party_alone_has_no_pairs():
    run = RunSettings(parties=("bank",), label_party="bank")
    secrets = Secrets.load_or_make(MemoryDisk(), run, "bank", None)
    agreement = converse(agree(run, "bank", secrets, None), PartyCalls(open_store(run), "bank").answer)
    assert pair_keys(run, "bank", secrets, agreement, DIGEST) == {}
