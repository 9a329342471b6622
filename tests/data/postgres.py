"""A PostgreSQL server of the tests' own, in a temporary folder, reached by a socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

_OTHERS = ("postgres", "nobody")
"""Users to run it as where the tests run as root, which PostgreSQL refuses."""


def _program(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default="")
    if not found:
        pytest.skip("PostgreSQL is not installed here; scripts/postgres.sh installs it on Debian, as root")
    return found


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in _OTHERS if name in known)


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a running server with an empty database; skips the test where it cannot be had."""
    initdb, server = _program("initdb"), _program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="fdml-pg-", dir="/tmp"))  # a socket's path must be short
    user = _user()
    try:
        if user is not None:
            shutil.chown(folder, user)
        make = [
            initdb,
            "-D",
            str(folder / "data"),
            "-A",
            "trust",
            "-U",
            "fdml",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(make, check=True, user=user, stdout=subprocess.DEVNULL, cwd="/", timeout=120)
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        command = [server, "-D", str(folder / "data"), "-k", str(folder), *options]
        with (folder / "log").open("w") as log, subprocess.Popen(command, user=user, stderr=log, cwd="/") as process:
            try:
                yield f"postgresql:///postgres?host={folder}&user=fdml&connect_timeout=10"
            finally:
                process.terminate()
                process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connected(address: str) -> Any:
    """The first connection that a starting server accepts."""
    for _ in range(400):
        try:
            return dbapi.connect(address)
        except dbapi.Error:
            time.sleep(0.025)
    raise TimeoutError(f"no PostgreSQL at {address}")


def write_table(address: str, name: str, table: Any) -> None:
    """Write an Arrow table into the database, its rows as they come."""
    with connected(address) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(name, table)
        connection.commit()
