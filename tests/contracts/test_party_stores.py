"""What every store of a party must pass. Those that last give back at the next start what was saved."""

import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.errors import AlignmentError, SettingsError, StateCorrupt
from fdml.events import Evaluated
from fdml.experiments.in_memory import NothingStored
from fdml.federation.party_folder import PartyFolder
from fdml.models.bundle import Bundle
from fdml.models.calibration import Calibration
from fdml.models.registry import model_settings
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.checkpoint import Checkpoint, FinishedModel, Progress
from fdml.party.disk_store import DiskStore
from fdml.party.effects import WriteBundle
from fdml.privacy.statement import Spent, Statement
from fdml.protocol.messages import HeldOutPredictions, Release
from fdml.settings import run_hash
from tests.contracts.party_folders import party_folder
from tests.storage.memory_disk import MemoryDisk

FACTS = {"run.toml": "aa", "data": "bb", "model": "{}", "guard": "{}"}


class InFolder:
    """The folder of `fdml join`."""

    def __init__(self, path):
        self._path = path
        party_folder(path, 8)

    def start(self):
        """The store as a process that is started has it."""
        return PartyFolder(self._path / "party.toml")


class OnDisk:
    """The saved state on any disk; another run or other data are other instances."""

    def __init__(self, _):
        self.disk = MemoryDisk()

    def start(self, run=b"r" * 32, data="rows"):
        return DiskStore(self.disk, run_hash=run, data=data)


LASTING = {"folder": InFolder, "disk": OnDisk}


@pytest.fixture(params=LASTING)
def home(request, tmp_path):
    return LASTING[request.param](tmp_path)


def shared_rows():
    report = AlignmentReport("tokens", {"ann": 8, "bob": 9}, 6, 4, 2, 1.5, 100, 200, warning="few rows")
    return SharedRows(np.array([3, 1, 0, 5]), np.array([2, 7]), b"d" * 32, GroupKey(b"k" * 32), report)


def checkpoint(step=4, unacknowledged=()):
    progress = Progress(12.5, {1: (3.0, 0.5)}, 2)
    return Checkpoint(FACTS, step, {"weights": np.arange(6.0), "step": np.array(step)}, progress, unacknowledged)


def statement():
    spent = (Spent("training rows", 3, 1.5, 1e-5, "each row"),)
    return Statement("shop", "ann", plain_line=True, spent=spent, exposures=())


def trained(**other):
    given = {
        "parameters": {"weights": np.arange(3.0)},
        "calibration": Calibration(1.5, np.array([0.25])),
        "labels": None,
        "evaluated": Evaluated("ann", 3, 10.0, 0.5, 0.6, 0.9),
        "spent": (),
        "alignment_hash": b"d" * 32,
        "model": model_settings(l2=0.5),
        **other,
    }
    return WriteBundle(**given)


def trained_folder(path):
    """A folder whose rows were read once, as those of a party that has trained."""
    folder = party_folder(path, 8)
    folder.files.rows(shared_rows())
    return folder


# What lasts.


def test_a_new_store_has_nothing(home):
    store = home.start()
    assert store.shared_rows() is None
    saved = store.load()
    assert (saved.incarnation, saved.checkpoint, saved.result) == (1, None, None)


def test_every_start_has_a_number_of_its_own(home):
    assert [home.start().load().incarnation for _ in range(3)] == [1, 2, 3]


def test_an_alignment_is_there_at_the_next_start(home):
    home.start().save_alignment(shared_rows())
    found = home.start().shared_rows()
    np.testing.assert_array_equal(found.train, [3, 1, 0, 5])
    np.testing.assert_array_equal(found.held_out, [2, 7])
    assert (found.digest, found.key, found.report) == (b"d" * 32, GroupKey(b"k" * 32), shared_rows().report)


def test_the_newest_checkpoint_is_there_at_the_next_start(home):
    store = home.start()
    for step in (3, 4, 5):
        store.save_checkpoint(checkpoint(step))
    found = home.start().load().checkpoint
    assert (found.step, found.facts, found.progress) == (5, FACTS, checkpoint().progress)
    np.testing.assert_array_equal(found.worker["weights"], np.arange(6.0))
    assert int(found.worker["step"]) == 5


def test_messages_that_a_restart_would_not_make_again_are_saved_in_order(home):
    messages = tuple(HeldOutPredictions(epoch, Release(np.array([epoch, -epoch]))) for epoch in range(1, 13))
    home.start().save_checkpoint(checkpoint(unacknowledged=messages))
    found = home.start().load().checkpoint.unacknowledged
    assert [message.epoch for message in found] == list(range(1, 13))
    np.testing.assert_array_equal(found[10].release.values, [11, -11])


def test_a_result_is_there_at_the_next_start(home):
    for reported in (False, True):
        home.start().save_result(FinishedModel(FACTS, b"m" * 32, reported))
        assert home.start().load().result == FinishedModel(FACTS, b"m" * 32, reported)


def test_state_of_other_settings_is_not_gone_on_with():
    home = OnDisk(None)
    home.start().save_alignment(shared_rows())
    with pytest.raises(StateCorrupt, match=r"belongs to another run\.toml; put it back, or give the run a new name"):
        home.start(run=b"s" * 32).shared_rows()
    with pytest.raises(AlignmentError, match="the data of this party has changed since its rows were aligned"):
        home.start(data="other rows").shared_rows()


def test_a_folder_knows_its_run_and_data_by_itself(tmp_path):
    folder = party_folder(tmp_path, 8)
    folder.save_alignment(shared_rows())
    party_folder(tmp_path, 9)
    with pytest.raises(AlignmentError, match="the data of this party has changed"):
        PartyFolder(tmp_path / "party.toml").shared_rows()
    party_folder(tmp_path, 8)
    folder.run_folder.begin()
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text().replace("0.25", "0.5"))
    with pytest.raises(
        SettingsError, match=r"^evaluation\.holdout is 0\.5 here, 0\.25 when run 'first' began; give it"
    ):
        PartyFolder(tmp_path / "party.toml")


# What is written for people and for predictions.


def test_a_folder_has_statement_and_model_for_its_owner_only(tmp_path):
    folder = trained_folder(tmp_path)
    folder.write_statement(statement())
    written = folder.write_bundle(trained(spent=statement().spent))
    assert "epsilon 1.5" in (tmp_path / "runs" / "first" / "privacy.md").read_text()
    bundle = Bundle.load(written)
    np.testing.assert_array_equal(bundle.parameters["weights"], np.arange(3.0))
    assert (bundle.card.party, bundle.card.run, bundle.card.run_hash) == ("ann", "first", run_hash(folder.run).hex())
    assert (bundle.card.scale, tuple(bundle.card.offset)) == (1.5, (0.25,))
    assert bundle.card.metrics.test_metric == 0.9
    files = [
        *written.iterdir(),
        tmp_path / "runs" / "first" / "privacy.md",
        tmp_path / "runs" / "first" / "privacy.json",
    ]
    assert {path.stat().st_mode & 0o077 for path in files} == {0}


def test_a_model_that_is_written_again_takes_the_place_of_the_first(tmp_path):
    folder = trained_folder(tmp_path)
    folder.write_bundle(trained())
    written = folder.write_bundle(trained(parameters={"weights": np.zeros(2)}))
    np.testing.assert_array_equal(Bundle.load(written).parameters["weights"], np.zeros(2))


def test_a_store_that_keeps_nothing_takes_everything(tmp_path):
    store = NothingStored()
    store.save_alignment(shared_rows())
    store.save_checkpoint(checkpoint())
    store.save_result(FinishedModel(FACTS, b"m" * 32, reported=True))
    store.write_statement(statement())
    assert store.write_bundle(trained()) is None
    assert list(tmp_path.iterdir()) == []
