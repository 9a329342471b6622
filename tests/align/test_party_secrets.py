import stat

import pytest

from fdml.align.party_secrets import Secrets
from fdml.errors import StateCorrupt
from fdml.federation.certificates import Authority
from fdml.settings import RunSettings
from fdml.storage.disk import FolderDisk
from tests.storage.memory_disk import MemoryDisk

RUN = RunSettings(name="first", federation="credit", parties=("bank", "shop"), label_party="bank")
AUTHORITY = Authority("credit")
CREDENTIALS = AUTHORITY.issue("party", "bank")


def made(disk, run=RUN, party="bank", credentials=CREDENTIALS):
    return Secrets.load_or_make(disk, run, party, credentials)


@pytest.mark.parametrize("credentials", [CREDENTIALS, None])
def test_a_second_start_makes_the_same_choices(credentials):
    disk = MemoryDisk()
    first = made(disk, credentials=credentials)
    assert made(disk, credentials=credentials) == first
    assert bool(first.offer.signature) == (credentials is not None)


def test_choices_differ_from_disk_to_disk():
    first, second = made(MemoryDisk()), made(MemoryDisk())
    drawn = [first.private, first.group_key, first.scalar, second.private, second.group_key, second.scalar]
    assert len(set(drawn)) == 6
    assert {len(each) for each in drawn} == {32}


def test_the_file_is_for_its_owner_only(tmp_path):
    made(FolderDisk(tmp_path))
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made(FolderDisk(tmp_path)) == made(FolderDisk(tmp_path))


@pytest.mark.parametrize(
    "changed",
    [
        {"run": RUN.model_copy(update={"align": "ecdh"})},
        {"party": "shop"},
        {"credentials": None},
        {"credentials": AUTHORITY.issue("party", "bank")},
    ],
)
def test_choices_of_another_alignment_or_key_are_not_used(changed):
    disk = MemoryDisk()
    first, second = made(disk), made(disk, **changed)
    assert first.private != second.private
    assert first.group_key != second.group_key
    assert made(disk, **changed) == second, "and those are stored"


@pytest.mark.parametrize("changed", [{"name": "second"}, {"task": "regression"}, {"label_party": "shop"}])
def test_all_runs_that_match_rows_in_the_same_way_have_the_same_choices(changed):
    disk = MemoryDisk()
    assert made(disk, run=RUN.model_copy(update=changed)) == made(disk)


def test_rows_are_known_again_under_a_key_of_this_partys_own():
    secrets, other = made(MemoryDisk()), made(MemoryDisk())
    assert secrets.tag_key() == secrets.tag_key()
    assert len({secrets.tag_key(), secrets.tag_key(b"group key"), other.tag_key()}) == 3


def test_a_renewed_certificate_of_the_same_key_goes_on_with_the_same_choices():
    """Finding 12: a new certificate in mid-run was refused."""
    disk = MemoryDisk()
    first = made(disk)
    renewed = AUTHORITY.issue("party", "bank", key=CREDENTIALS.key)
    assert renewed.certificate != CREDENTIALS.certificate
    assert made(disk, credentials=renewed) == first


def test_damaged_choices_are_never_drawn_anew_in_silence():
    disk = MemoryDisk()
    made(disk)
    (name,) = disk.files
    disk.files[name] = disk.files[name][:-1] + b"?"
    with pytest.raises(StateCorrupt, match="a new name"):
        made(disk)


def test_secrets_do_not_show_themselves():
    secrets = made(MemoryDisk())
    shown = repr(secrets)
    for each in (secrets.private, secrets.group_key, secrets.scalar):
        assert repr(each)[2:-1] not in shown
        assert each.hex() not in shown
    assert "private" not in shown
