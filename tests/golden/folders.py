"""A golden run's folder on disk: settings, data, keys, and the secrets that must be the same every time."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import tomllib
from pathlib import Path
from typing import Any

from tests.golden.layout import FileLayout, Settings
from tests.golden.runs import ProcessRun

_GROUP_KEY = "5a" * 32


def write_run(home: Path, run: ProcessRun, keys: Path, layout: FileLayout) -> Path:
    """Write all that `fdml simulate` needs; returns run.toml. `keys` is a run that `fdml new` made."""
    home.mkdir(parents=True)
    made = tomllib.loads((keys / "federation.toml").read_text(encoding="utf-8"))
    federation = {
        "name": made["name"],
        "server": f"127.0.0.1:{_free_port()}",
        "parties": list(run.models),
        "members": {name: made["members"][name] for name in ("server", *run.models)},
    }
    (home / "federation.toml").write_text(_toml(federation), encoding="utf-8")
    (home / "run.toml").write_text(_toml(layout.named(run.run_settings)), encoding="utf-8")
    data = run.data(list(run.models))
    for name in ("server", *run.models):
        shutil.copytree(keys / name, home / name)
    for party, model in run.models.items():
        folder = home / party
        for file, text in data[party].files.items():
            (folder / file).write_text(text, encoding="utf-8")
        _write_secret(folder / "group.key", _GROUP_KEY.encode())
        for secret in (layout.noise_key, layout.label_secret):
            _write_secret(folder / secret, hashlib.blake2b(party.encode(), digest_size=32).digest())
        own = {
            "party": party,
            "federation": "../federation.toml",
            "group_key": "group.key",
            "data": data[party].settings,
            "model": {"l2": 1e-4, "optimizer": "sgd", **model},
            **({"guard": run.guards[party]} if party in run.guards else {}),
        }
        (folder / "party.toml").write_text(_toml(layout.named(own)), encoding="utf-8")
    return home / "run.toml"


def _write_secret(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _toml(settings: Settings, table: str = "") -> str:
    """Strings, numbers, truth values and lists of them are written in TOML as in JSON."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    lines = [f"[{table}]"] if table else []
    lines += [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    inner: dict[str, Any] = {name: value for name, value in settings.items() if name not in plain}
    return "\n".join(lines) + "\n" + "".join(_toml(each, f"{table}.{name}".lstrip(".")) for name, each in inner.items())


def _free_port() -> int:
    """A port of loopback that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
