"""A head over real processes: every party's copy is the same bits, also where a party was killed."""

import numpy as np
import pytest

from tests.end_to_end.cluster import RUN, Cluster, running, until

pytestmark = pytest.mark.slow


def head_of(cluster: Cluster, party: str) -> dict[str, bytes]:
    """What a party's bundle has of the head."""
    with np.load(cluster.home / party / RUN / "model" / "parameters.npz", allow_pickle=False) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files if name.startswith("joint/")}


def test_a_killed_party_ends_with_the_head_that_all_others_have(tmp_path):
    found = []
    for name in ("calm", "killed"):
        with running(tmp_path / name, epochs=12, joint='"head"', joint_width=3, head_units=4) as cluster:
            cluster.start()
            if name == "killed":
                cluster.await_step(30)
                cluster["bob"].kill()
                until(lambda made=cluster: not made.statuses()["bob"].connected, "bob is away")
                cluster.join("bob")
            cluster.finish()
            ann, bob = head_of(cluster, "ann"), head_of(cluster, "bob")
            assert ann
            assert ann == bob
            found.append((cluster.model_hashes(), ann))
    assert found[0] == found[1]
