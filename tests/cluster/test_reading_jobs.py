"""Jobs that read: set up over a pipe as in this process, and what they answer where a disk or a row is bad."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fdml.cluster.frames import Frame, read_frame, to_bytes
from fdml.cluster.jobs import job_of
from fdml.cluster.lines import LinedWorkers
from fdml.cluster.part_tables import PieceTable, piece_facts
from fdml.cluster.reading_jobs import EncodingJob, EncodingSetup, LearningJob, LearningSetup
from fdml.data.column_roles import roles_of
from fdml.data.encoding import Statistics
from fdml.data.origins import origins_of
from fdml.data.sources import open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.cluster.learners import FramedLine
from tests.cluster.tables import in_files, sample
from tests.serving.bundles import bundle_of


@pytest.fixture
def table(tmp_path):
    """Settings, a table for workers and its pieces."""
    settings = in_files(sample(200), tmp_path / "rows", 4)
    (place,) = origins_of(settings)
    return settings, *PieceTable.of(place, place.table(()))


def sent(frame):
    """A frame after its way over a pipe."""
    return read_frame(io.BytesIO(to_bytes(frame)))


def encoding(settings, known, bundle=None):
    (source,) = open_sources(settings)
    return EncodingSetup(known, "rows", source.roles, source.encoder, settings.ids, bundle)


def test_a_job_that_was_sent_is_the_job_that_was_set_up(table):
    settings, known, _ = table
    for setup, kind in (
        (LearningSetup(known, ("wide", "city"), settings), LearningJob),
        (encoding(settings, known), EncodingJob),
    ):
        job = job_of(sent(setup.frame()))
        assert isinstance(job, kind)
        assert job._setup == setup


def test_a_bundle_travels_with_the_job(table):
    settings, known, _ = table
    bundle = bundle_of("mlp")
    job = job_of(sent(encoding(settings, known, bundle).frame()))
    assert job._setup.bundle.card == bundle.card
    assert {name: array.tobytes() for name, array in job._model.state().items()} == {
        name: np.asarray(array).tobytes() for name, array in bundle.parameters.items()
    }


def test_a_piece_that_was_sent_has_the_rows_of_the_piece(table):
    settings, known, pieces = table
    columns = roles_of(known.piece(piece_facts(pieces[0])).names, settings).features
    for piece in pieces:
        facts = sent(Frame({"piece": piece_facts(piece)})).facts["piece"]
        assert list(known.piece(facts).batches(columns)) == list(piece.batches(columns))


def test_what_is_learned_is_sent_without_loss(table):
    settings, known, pieces = table
    features = ("wide", "income", "city", "joined")
    job = LearningJob(LearningSetup(known, features, settings))
    merged, whole = Statistics(features, settings), Statistics(features, settings)
    for piece in pieces:
        task = Frame({"piece": piece_facts(piece), "first": piece.first})
        merged.merge(sent(job.run(task)).facts["learned"], known.types)
        whole.learn(piece.batches(features), piece.first)
    assert merged.encoder() == whole.encoder()


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(table, tmp_path):
    settings, known, pieces = table
    (tmp_path / "file").write_bytes(b"")
    task = Frame({"piece": piece_facts(pieces[0]), "folder": str(tmp_path / "file" / "part")})
    with pytest.raises(DataError, match=r"part 'part' cannot be written to .*Not a directory.*workers\.folder"):
        EncodingJob(encoding(settings, known)).run(task)


@pytest.mark.parametrize("job", ["learning", "encoding"])
def test_a_file_that_a_worker_does_not_see_is_named_with_its_machine(table, tmp_path, job):
    settings, known, pieces = table
    setup = LearningSetup(known, ("wide",), settings) if job == "learning" else encoding(settings, known)
    workers = LinedWorkers(lambda _: FramedLine(setup.frame()), 1, 60.0)
    tasks = [
        Frame({"piece": piece_facts(each), "first": each.first, "folder": str(tmp_path / f"{at}")})
        for at, each in enumerate(pieces)
    ]
    workers.map(tasks)
    path = Path(pieces[1].part.path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=rf"^here: '{path}' is not there; every worker must see the party's files"):
        workers.map(tasks[1:])
    path.mkdir()
    with pytest.raises(DataError, match=rf"^here: '{path}' cannot be read \(.*\); every worker"):
        workers.map(tasks[1:])
    path.rmdir()
    pq.write_table(sample(7), path)
    if job == "learning":
        with pytest.raises(DataError, match=rf"^here: {path.name} was changed while it was read"):
            workers.map(tasks[1:])
    workers.close()


def test_one_file_of_one_piece_or_another_place_is_not_for_workers(tmp_path):
    in_files(sample(60), tmp_path / "rows", 3)
    for path, pieces in ((tmp_path / "rows" / "rows-00000.parquet", None), (tmp_path / "rows", 2)):
        (place,) = origins_of(DataSettings(path=path))
        found = PieceTable.of(place, place.table(()))
        assert (None if found is None else len(found[1])) == pieces
