"""Certificates in the middle of a run, with real processes: revoked, run out, renewed (finding 12)."""

import shutil
import signal
import stat

import pytest

from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.key_files import write_credentials
from tests.end_to_end.cluster import Started, running, until

pytestmark = pytest.mark.slow
_SECONDS = 120.0


def keys(cluster, *words):
    """An `fdml keys` command that must end well."""
    log = cluster.home / "keys.log"
    log.unlink(missing_ok=True)
    return Started(log, "keys", *words).expect(0)


def renew(cluster, settings, name):
    """Renew a certificate as its owner and the signer do."""
    folder = cluster.home / name / "keys"
    keys(cluster, "renew", settings)
    keys(cluster, "sign", folder / f"{name}.request.pem", "--authority", cluster.home / "authority", "--yes")
    keys(cluster, "install", settings, folder / f"{name}.certificate.pem")


def test_renewed_certificates_of_a_party_and_of_the_server_go_on_with_the_run(tmp_path):
    with running(tmp_path / "run", epochs=60) as cluster:
        before = {name: (cluster.home / name / "keys" / "key.pem").read_bytes() for name in ("bob", "server")}
        cluster.start()
        cluster.await_step(20)
        cluster["ann"].send(signal.SIGSTOP)  # holds the run meanwhile
        renew(cluster, cluster.home / "bob" / "party.toml", "bob")
        renew(cluster, cluster.home / "federation.toml", "server")
        cluster["bob"].kill()
        cluster.join("bob")
        cluster["ann"].send(signal.SIGCONT)
        cluster.await_step(cluster.statuses()["bob"].served + 20)
        cluster["server"].kill()
        cluster.serve()
        cluster.finish(_SECONDS)
        after = {name: (cluster.home / name / "keys" / "key.pem").read_bytes() for name in ("bob", "server")}
        assert after == before
        issued = AuthorityFolder(cluster.home / "authority").issued()
        assert len(issued) == 5, "three at first, two renewed"


def test_a_revoked_party_is_put_out_of_a_running_run_and_stays_out(tmp_path):
    with running(tmp_path / "run", epochs=100_000, peer_timeout_seconds=120.0) as cluster:
        cluster.start()
        cluster.await_step(20)
        keys(cluster, "revoke", "bob", "--authority", cluster.home / "authority")
        for name in ("server", "ann"):
            shutil.copy(cluster.home / "authority" / "revoked.pem", cluster.home / name / "keys")
        cluster["bob"].expect(1, "the certificate of 'bob' is revoked", "`fdml keys renew`")
        cluster.join("bob").expect(1, "the certificate of 'bob' is revoked")
        assert cluster["server"].code is None
        assert cluster["ann"].code is None
        assert cluster.statuses()["ann"].connected
        assert cluster.status().refused["unauthenticated"] >= 2


def test_parties_leave_a_server_whose_certificate_is_revoked(tmp_path):
    with running(tmp_path / "run", epochs=100_000) as cluster:
        cluster.start()
        cluster.await_step(20)
        keys(cluster, "revoke", "server", "--authority", cluster.home / "authority")
        shutil.copy(cluster.home / "authority" / "revoked.pem", cluster.home / "bob" / "keys")
        cluster["bob"].expect(1, "the certificate of the server at", "is revoked", "nothing more is sent to it")
        assert cluster["ann"].code is None


def short_lived(cluster, name, seconds):
    """Put a certificate for the same key in place that is good for a few seconds."""
    folder = cluster.home / name / "keys"
    authority = AuthorityFolder(cluster.home / "authority").authority
    issued = authority.issue("party", name, days=seconds / 86400, key=(folder / "key.pem").read_bytes())
    write_credentials(folder, issued)


def join_for(cluster, seconds):
    """Start bob with a certificate that is good for so many seconds; whether he has come before it ran out."""
    short_lived(cluster, "bob", seconds)
    bob = cluster.join("bob")
    until(lambda: bob.code is not None or cluster.statuses()["bob"].served >= 0, "bob trains or has ended", _SECONDS)
    return bob.code is None


def test_a_certificate_that_runs_out_in_a_running_run_is_refused_and_a_renewed_one_goes_on(tmp_path):
    with running(tmp_path / "run", epochs=200, peer_timeout_seconds=240.0) as cluster:
        cluster.serve()
        cluster.join("ann")
        assert any(join_for(cluster, seconds) for seconds in (12, 24, 48, 96))
        cluster["ann"].send(signal.SIGSTOP)  # holds the run, whatever this machine is busy with
        cluster["bob"].expect(1, "the certificate of 'bob' ran out on", seconds=_SECONDS)
        cluster.join("bob").expect(1, "ran out on", "`fdml keys renew`")
        cluster["ann"].send(signal.SIGCONT)
        assert cluster["server"].code is None
        renew(cluster, cluster.home / "bob" / "party.toml", "bob")
        cluster.join("bob")
        cluster.finish(_SECONDS)


def test_an_empty_or_damaged_key_is_an_error_of_one_line_not_an_abort(tmp_path):
    """gRPC ends the whole process, without a word, at an empty key."""
    with running(tmp_path / "run") as cluster:
        path = cluster.home / "bob" / "keys" / "key.pem"
        for content in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
            path.write_bytes(content)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            cluster.join("bob").expect(1, "is empty or no private key", "key.pem")
        server = cluster.home / "server" / "keys" / "certificate.pem"
        server.write_bytes(b"")
        cluster.serve().expect(1, "is empty or no certificate", "certificate.pem")
