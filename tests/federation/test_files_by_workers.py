"""A party's files that workers read: the block stores of one process, and nothing of the parts is left."""

import numpy as np
import pytest

from fdml.cluster.parts import PartedSource
from fdml.cluster.settings import WorkersSettings
from fdml.experiments.in_memory import KEY
from fdml.federation.party_files import PARTS, PartyFiles, parts_folder
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.settings import PartySettings, read_party
from fdml.settings import RunSettings
from tests.cluster.tables import ROWS, in_files, in_one_file, sample

TABLE = sample()
RUN = RunSettings(parties=("ann", "bob"), label_party="ann")
POINTED = RunSettings(parties=("bob", "ann"), label_party="bob", keys={"ann": ["user"]}, unmatched="keep")
THREADS, NO_WORKERS = WorkersSettings(files=True, count=2), WorkersSettings()


def files_of(folder, data, run=RUN, workers=NO_WORKERS, **more):
    """The party's files, its data read by these workers."""
    settings = data.model_copy(update=more)
    party = PartySettings(party="ann", federation=folder, data=settings, workers=workers)
    return PartyFiles(party, run, folder / "state")


def shared(train, held_out, *, tests=False):
    report = AlignmentReport("tokens", {}, len(train) + len(held_out), len(train), len(held_out), 0.0)
    return SharedRows(np.array(train), np.array(held_out), b"d" * 32, KEY, report, has_test_files=tests)


def stored(folder):
    """The files of the block stores, and the encoder."""
    blocks = sorted((folder / "state" / "blocks").glob("*/*"))
    found = [(path.parent.name.partition("-")[0], path.name, path.read_bytes()) for path in blocks]
    return found, (folder / "state" / "encoder.json").read_bytes()


def one_and_many(tmp_path, files=200, run=RUN, workers=THREADS, **more):
    """The same rows in one file read here, and in many by workers."""
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
    one = files_of(tmp_path / "one", in_one_file(TABLE, tmp_path / "x.parquet"), run, **more)
    many = files_of(tmp_path / "many", in_files(TABLE, tmp_path / "rows", files), run, workers, **more)
    assert isinstance(many.sources[0], PartedSource)
    return one, many


@pytest.mark.slow
def test_the_block_stores_of_200_files_are_those_of_one(tmp_path):
    one, many = one_and_many(tmp_path)
    order = np.random.default_rng(1).permutation(ROWS)
    used = shared(order[100:1000], order[:100])
    for files in (one, many):
        assert files.row_ids().ids.train.to_pylist() == TABLE.column("user").to_pylist()
        files.rows(used)
    assert stored(tmp_path / "many") == stored(tmp_path / "one")
    assert not (tmp_path / "many" / "state" / PARTS).exists(), "the features are stored"
    (labels, _), (wanted, _) = many.labels(used), one.labels(used)
    assert (labels.train == wanted.train).all()
    assert (labels.train_weights == wanted.train_weights).all()


def test_a_later_start_uses_what_is_stored_and_makes_no_parts(tmp_path):
    _, many = one_and_many(tmp_path, 5)
    used, folder = shared(np.arange(900), np.arange(900, 1000)), tmp_path / "many"
    many.rows(used)
    before = stored(folder)
    again = files_of(
        folder,
        in_one_file(TABLE, tmp_path / "x.parquet").model_copy(update={"path": tmp_path / "rows"}),
        workers=THREADS,
    )
    again.rows(used)
    assert stored(folder) == before
    assert not (folder / "state" / PARTS).exists()


def test_test_files_have_parts_of_their_own(tmp_path):
    test = in_files(sample(150), tmp_path / "test", 4)
    one, many = one_and_many(tmp_path, 6, test_path=test.path)
    for files in (one, many):
        files.rows(shared(np.arange(500), np.arange(100), tests=True))
    assert stored(tmp_path / "many") == stored(tmp_path / "one")


def test_rows_that_others_point_to_are_fitted_as_often_as_they_are_used(tmp_path):
    more = {"label": None, "weight": None, "ignore": ("paid", "share")}
    one, many = one_and_many(tmp_path, 30, POINTED, **more)
    rows = np.random.default_rng(1).integers(-1, 300, 2000)
    for files in (one, many):
        files.rows(shared(rows[:1500], rows[1500:]))
    assert stored(tmp_path / "many") == stored(tmp_path / "one")
    assert not (tmp_path / "many" / "state" / PARTS).exists()


def test_what_workers_have_to_tell_is_told(tmp_path):
    _, many = one_and_many(tmp_path, 5)
    said = []
    many.remark = said.append
    many.row_ids()
    values = next((tmp_path / "many" / "state" / PARTS).rglob("values"))
    values.write_bytes(bytes(values.stat().st_size))
    many.rows(shared(np.arange(900), np.arange(900, 1000)))
    (text,) = said
    assert "has another SHA-256 than when it was written" in text


def test_parts_may_have_a_folder_that_other_machines_see(tmp_path):
    workers = THREADS.model_copy(update={"folder": tmp_path / "shared"})
    _, many = one_and_many(tmp_path, 5, workers=workers)
    many.row_ids()
    (place,) = (tmp_path / "shared").iterdir()
    assert place.name.startswith("ann-")
    assert len(list(place.glob("*/*"))) == 4
    many.rows(shared(np.arange(900), np.arange(900, 1000)))
    assert list((tmp_path / "shared").iterdir()) == []


def test_two_runs_and_two_parties_do_not_share_a_folder_of_parts(tmp_path):
    party = PartySettings(party="ann", federation=tmp_path, workers=WorkersSettings(folder=tmp_path))
    other = party.model_copy(update={"party": "bob"})
    found = {parts_folder(each, tmp_path / run / PARTS) for each in (party, other) for run in ("first", "second")}
    assert len(found) == 4
    plain = PartySettings(party="ann", federation=tmp_path)
    assert parts_folder(plain, tmp_path / PARTS) == tmp_path / PARTS


def test_the_folder_of_parts_is_taken_from_that_of_party_toml(tmp_path):
    path = tmp_path / "party.toml"
    text = 'party = "ann"\nfederation = "../federation.toml"\n[workers]\nkind = "processes"\n'
    path.write_text(text)
    assert read_party(path).workers.folder is None
    path.write_text(text + 'folder = "../shared"\n')
    assert read_party(path).workers.folder == tmp_path / "../shared"


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ({}, False),
        ({"kind": "processes"}, True),
        ({"kind": "processes", "files": False}, False),
        ({"files": True}, True),
    ],
)
def test_processes_read_files_and_threads_where_they_are_told_to(settings, reads):
    assert WorkersSettings(**settings).reads is reads
