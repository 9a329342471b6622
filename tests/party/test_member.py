import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fdml.models.registry import model_settings
from fdml.party.member import Member
from fdml.privacy.noise import NoiseKey
from fdml.settings import GuardSettings, PrivacySettings, run_hash
from fdml.storage.arrays import hash_arrays
from tests.party.sessions import BROWSER, STORE, SmallRun, hold, with_training
from tests.storage.memory_disk import MemoryDisk


@pytest.fixture(scope="module")
def shared():
    return hold(SmallRun())[STORE].store.shared_rows()


def test_a_member_knows_its_part_in_the_run():
    store, browser = (SmallRun().member(party) for party in (STORE, BROWSER))
    assert (store.is_label_party, browser.is_label_party) == (True, False)
    assert not store.has_private_labels
    assert SmallRun(privacy=PrivacySettings(labels="private")).member(BROWSER).has_private_labels


def test_a_member_is_durable_where_it_has_a_disk():
    assert not SmallRun().member(STORE).is_durable
    assert SmallRun().member(STORE, disk=MemoryDisk()).is_durable


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda member: replace(member, model=model_settings("fm")), "model"),
        (lambda member: replace(member, guard=GuardSettings(clip=2.0)), "guard"),
        (lambda member: replace(member, run=with_training(SmallRun(), passes=2).settings), "run.toml"),
    ],
)
def test_saved_state_belongs_to_run_rows_model_and_guard(shared, change, named):
    member = SmallRun().member(STORE, disk=MemoryDisk())
    before, after = member.facts(shared), change(member).facts(shared)
    assert {key for key in before if before[key] != after[key]} == {named}
    other = replace(shared, digest=b"x" * 32)
    assert {key for key in before if before[key] != member.facts(other)[key]} == {"data"}


def test_what_does_not_change_the_result_may_change_between_starts(shared):
    member = SmallRun().member(STORE, disk=MemoryDisk())
    assert replace(member, threads=9, plain=True).facts(shared) == member.facts(shared) != {}


def test_where_nothing_is_saved_there_is_nothing_to_compare(shared):
    assert SmallRun().member(STORE).facts(shared) == {}


def test_the_plan_counts_all_parties_though_one_trains_here(shared):
    member = SmallRun().member(BROWSER)
    plan = member.plan(2, shared, member.data.rows(shared))
    assert (plan.party_count, plan.label_party, plan.loss, plan.classes) == (2, STORE, "logistic", 2)
    assert list(plan.models) == [BROWSER]


def test_no_two_starts_mask_under_one_id(shared):
    """The default draws 63 random bits; a test's members are numbered so that runs can be repeated."""
    member = SmallRun().member(STORE)
    drawn = replace(member, mask_id=Member.__dataclass_fields__["mask_id"].default)
    ids = {drawn.masks(shared.key).mask_id for _ in range(50)}
    assert len(ids) == 50
    assert all(0 < each <= 2**63 for each in ids)


def test_the_masks_of_all_parties_come_from_the_group_key(shared):
    ours, theirs = (SmallRun().member(party).masks(shared.key) for party in (STORE, BROWSER))
    codes = SmallRun().member(STORE).data.values.astype("int64").reshape(-1, 1)
    total = ours.add("push", 3, codes) + theirs.add("push", 3, codes)
    opened = ours.remove("push", (3, 3), (ours.mask_id, theirs.mask_id), total)
    assert opened.tolist() == (2 * codes).tolist()


# What the server compares models by.


def test_the_mac_of_a_model_is_no_function_of_the_parameters_that_anyone_else_can_compute(shared):
    """Finding 2: an unkeyed hash of the exact parameters told every cell that could be guessed, round all noise."""
    model_hash = hash_arrays({"theta": np.arange(3.0)})
    member = SmallRun().member(STORE)
    mac = member.model_mac(model_hash, shared.digest)
    assert len(mac) == 32
    parts = (run_hash(member.run), shared.digest, shared.key.secret, b"")
    guesses = [hashlib.blake2b(first + second + model_hash, digest_size=32) for first in parts for second in parts]
    guesses += [hashlib.blake2b(model_hash, digest_size=32, key=shared.key.derive(name)) for name in ("masks", "mac")]
    assert mac not in [model_hash, *(each.digest() for each in guesses)], "not even with what all parties know"
    others = [replace(member, noise=NoiseKey(bytes([number]) * 32)) for number in range(8)]
    macs = {each.model_mac(model_hash, shared.digest) for each in others}
    assert len(macs | {mac}) == 9, "whoever knows all but the secret has as many to choose from as there are secrets"


def test_the_mac_is_the_same_after_a_restart_and_another_for_another_model_run_alignment_or_secret(shared):
    member = SmallRun().member(STORE)
    mac = member.model_mac(b"m" * 32, shared.digest)
    assert mac == SmallRun().member(STORE).model_mac(b"m" * 32, shared.digest)
    others = [
        member.model_mac(b"n" * 32, shared.digest),
        member.model_mac(b"m" * 32, b"d" * 32),
        SmallRun(every="end").member(STORE).model_mac(b"m" * 32, shared.digest),
        replace(member, noise=NoiseKey(b"other".ljust(32))).model_mac(b"m" * 32, shared.digest),
    ]
    assert len({mac, *others}) == 5
