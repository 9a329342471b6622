"""What lies on disk after real runs: a host's and every party's session keep all parts, and none can be read there."""

import numpy as np
import pyarrow as pa
import pytest

from fdml.server.run_state import RunDefinition, RunState
from fdml.serving.publication import Publication
from fdml.settings import run_hash
from fdml.settings.federation import read_run
from fdml.storage.arrays import unpack_arrays
from fdml.storage.disk import FolderDisk
from tests.end_to_end.cluster import RUN
from tests.end_to_end.topologies import PARTIES, topology

pytestmark = pytest.mark.slow
THREE, ROWS = PARTIES[:3], 2000


def parts_kept(home, session):
    """By party: the part of every training row that a session's files have last."""
    settings = read_run(home / "run.toml")
    disk = FolderDisk(session / "server" / RUN / "state")
    coordinator = RunState.open(RunDefinition(settings, run_hash(settings)), disk).coordinator
    return {name: coordinator.matrix.column(at).ravel() for at, name in enumerate(THREE)}


def true_parts(home, party):
    """The party's own predictions of the training rows, in the run's order, as it publishes them after the run."""
    ids = [line.split(",")[0] for line in (home / party / "data.csv").read_text().splitlines()[1:]]
    train = unpack_arrays((home / party / RUN / "state" / "alignment").read_bytes())["train"]
    published = Publication.load(home / party / RUN / "serving")
    tokens = published.facts.keys.tokens_of(pa.array([ids[row] for row in train], pa.large_string()))
    return published.column.codes[published.column.find(tokens)].ravel()


def told(kept, true):
    """How far what is kept goes with the predictions, and how often it has their sign."""
    return np.corrcoef(kept.astype(float), true.astype(float))[0, 1], np.mean((kept > 0) == (true > 0))


@pytest.mark.parametrize("kind", ["host", "mesh"])
def test_files_of_a_host_and_of_every_party_tell_no_other_party_s_predictions(tmp_path, kind):
    with topology(tmp_path / "run", kind, THREE, ROWS) as run:
        run.run()
        sessions = [run.home] if kind == "host" else [run.home / party for party in THREE]
        for session in sessions:
            kept = parts_kept(run.home, session)
            for party in THREE:
                together, same_sign = told(kept[party], true_parts(run.home, party))
                assert abs(together) < 4 / np.sqrt(len(kept[party])), (session.name, party)
                assert abs(same_sign - 0.5) < 2 / np.sqrt(len(kept[party])), (session.name, party)


def test_the_same_files_of_a_plain_server_tell_everything(tmp_path):
    """So the test above looks where something could be seen."""
    with topology(tmp_path / "run", "server", THREE, ROWS) as run:
        run.change('server = "blind"', 'server = "plain"')
        run.run()
        kept = parts_kept(run.home, run.home)
        for party in THREE:
            together, same_sign = told(kept[party], true_parts(run.home, party))
            assert together > 0.95
            assert same_sign > 0.9
