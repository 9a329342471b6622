"""Standing and one-shot processes under a service manager: they recover from all that docs/operations.md lists."""

import contextlib
import os
import signal
import time

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.key_files import write_credentials
from tests.end_to_end.cluster import until
from tests.end_to_end.standing import PARTIES, SECONDS, one_shot_models, standing
from tests.end_to_end.units import Unit, fill_disk

pytestmark = pytest.mark.slow

SHORT = {"epochs": 2}
LONG = {"epochs": 100, "batch_size": 10, "peer_timeout_seconds": 4.0}


@contextlib.contextmanager
def kept_up(once=(), **starts):
    """Units, ended in the end; those of `once` are not started again once they have ended well."""
    units = {name: Unit(start, on_failure=name in once) for name, start in starts.items()}
    try:
        yield units
    finally:
        for unit in units.values():
            unit.end()


def said_by(cluster, name):
    """All that the starts of a unit have printed."""
    return "\n".join(path.read_text() for path in cluster.home.glob(f"{name}-*.log"))


def put_certificate(cluster, party, seconds):
    """A certificate for a party's own key that is good for so long."""
    folder = cluster.home / party / "keys"
    authority = AuthorityFolder(cluster.home / "authority").authority
    key = (folder / "key.pem").read_bytes()
    write_credentials(folder, authority.issue("party", party, days=seconds / 86400, key=key))


@contextlib.contextmanager
def changed(path, text=None):
    """A file that is gone, or holds something else, for a while."""
    before = path.read_bytes()
    path.unlink()
    if text is not None:
        path.write_text(text)
    yield
    path.write_bytes(before)


def child_of(cluster, party, run):
    """The process of a run at a party, once there is one."""
    until(lambda: cluster.child(party, run) is not None, f"{party}'s process", SECONDS)
    return cluster.child(party, run)


def cannot_store(cluster, run):
    """Whether the server has refused something of a run, or the run itself, as its disk is full."""
    try:
        return cluster.status_of(run).refused.get("not_stored", 0) > 0
    except MessageRefused as refused:
        return refused.refusal is Refusal.NOT_STORED


def processes_are_killed(cluster, units, run):
    cluster.run(run, **SHORT)
    os.kill(child_of(cluster, "cid", run), signal.SIGKILL)
    units["server"].kill()
    units["bob"].kill()


def the_server_is_away(cluster, units, run):
    cluster.run(run, **SHORT)
    units["server"].hold()
    until(lambda: "connection refused" in said_by(cluster, "bob"), "bob says so", SECONDS)
    units["server"].release()


def a_party_is_away(cluster, units, run):
    cluster.run(run, **LONG)
    cluster.await_run_step(run, 5)
    units["cid"].hold()
    until(lambda: "waited 4 s" in said_by(cluster, "ann"), "ann's process gives up", SECONDS)
    units["cid"].release()


def the_server_s_disk_is_full(cluster, units, run):
    cluster.run(run, **SHORT)
    cluster.await_state(run, "running")  # long before its processes have come
    make_room = units["server"].fill_disk(SECONDS)
    until(lambda: cannot_store(cluster, run), "the server cannot store", SECONDS)
    make_room()


def a_party_s_disk_is_full(cluster, units, run):
    cluster.run(run, **SHORT)
    fill_disk(child_of(cluster, "bob", run))
    until(lambda: f"run {run!r}: its process has ended" in said_by(cluster, "bob"), "bob's process ends", SECONDS)


def a_certificate_runs_out(cluster, units, run):
    put_certificate(cluster, "bob", 1)
    cluster.run(run, **SHORT)
    units["bob"].kill()
    until(lambda: "ran out on" in said_by(cluster, "bob"), "bob says so", SECONDS)
    put_certificate(cluster, "bob", 86400)


def settings_cannot_be_read(cluster, units, run):
    with changed(cluster.home / "bob" / "party.toml", "party = "):
        cluster.run(run, **SHORT)
        until(lambda: "party.toml" in said_by(cluster, "bob"), "bob says so", SECONDS)


def a_file_is_gone(cluster, units, run):
    with changed(cluster.home / "bob" / "data.csv"):
        cluster.run(run, **SHORT)
        until(lambda: f"run {run!r}: its process has ended" in said_by(cluster, "bob"), "bob says so", SECONDS)


FAILURES = (
    processes_are_killed,
    the_server_is_away,
    a_party_is_away,
    the_server_s_disk_is_full,
    a_party_s_disk_is_full,
    a_certificate_runs_out,
    settings_cannot_be_read,
    a_file_is_gone,
)


def test_standing_processes_that_are_started_again_recover_from_every_failure_without_a_person(tmp_path):
    with standing(tmp_path / "run") as cluster:
        ups = {party: lambda party=party: cluster.up(party) for party in PARTIES}
        with kept_up(server=cluster.serve, **ups) as units:
            for number, failure in enumerate(FAILURES):
                failure(cluster, units, f"run{number}")
                cluster.await_models(f"run{number}")
            until(lambda: set(cluster.states().values()) == {"finished"}, "the end of all runs", SECONDS)
            assert len(cluster.states()) == len(FAILURES)
        for name, settings in (("run0", SHORT), ("run2", LONG)):
            calm = one_shot_models(tmp_path / name, 150, cluster.run_toml(name, **settings), name)
            same = [f"run{number}" for number in range(len(FAILURES)) if (number == 2) == (settings is LONG)]
            assert all(cluster.models(each) == calm for each in same)
            assert all(cluster.history(each) == cluster.history(same[0]) for each in same), "AUC to the last bit"
            for party in PARTIES:
                assert all(cluster.split(party, each) == cluster.split(party, same[0]) for each in same)


def test_one_shot_parties_that_are_started_again_recover_from_every_failure_without_a_person(tmp_path):
    with standing(tmp_path / "run", **LONG) as cluster, contextlib.ExitStack() as faults:
        home = cluster.home
        put_certificate(cluster, "cid", -1)
        faults.enter_context(changed(home / "bob" / "data.csv"))
        faults.enter_context(changed(home / "ann" / "party.toml", "party = "))
        joins = {party: lambda party=party: cluster.join(party, "--yes") for party in PARTIES}
        with kept_up(once=PARTIES, server=cluster.serve, **joins) as units:
            until(lambda: all(len(units[party].codes) > 1 for party in PARTIES), "all have failed twice", SECONDS)
            faults.close()
            put_certificate(cluster, "cid", 86400)
            units["server"].hold()
            until(lambda: "connection refused" in said_by(cluster, "cid"), "cid says so", SECONDS)
            units["server"].release()
            cluster.await_run_step("first", 10)
            for unit in units.values():
                unit.kill()
            cluster.await_run_step("first", 20)
            units["bob"].hold()
            until(lambda: "waited 4 s" in said_by(cluster, "ann"), "ann gives up", SECONDS)
            units["bob"].release()
            cluster.await_run_step("first", 30)
            make_room = units["server"].fill_disk(SECONDS)
            units["cid"].fill_disk(SECONDS)
            time.sleep(2.0)
            make_room()
            until(lambda: all(units[party].is_done for party in PARTIES), "the end of all parties", SECONDS)
        calm = one_shot_models(tmp_path / "calm", 150, (home / "run.toml").read_text(), "first")
        assert cluster.models("first") == calm
