from dataclasses import replace

import pytest

from fdml.models.registry import model_settings
from fdml.party.member import Member
from fdml.settings import GuardSettings, PrivacySettings
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


def test_the_plan_counts_all_parties_though_one_trains_here():
    plan = SmallRun().member(BROWSER).plan(2)
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
