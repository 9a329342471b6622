"""A new federation and a first run that work as they are: settings, keys, and example data to replace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from cryptography import x509

from fdml.data.samples.adult import adult
from fdml.errors import SettingsError
from fdml.federation.addresses import checked_address
from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.key_files import members_table, write_credentials
from fdml.models.registry import DEFAULT_KIND, ready_kinds
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Role
from fdml.protocol.shuffle import permutation
from fdml.settings.federation import FEDERATION_FILE, RUN_FILE
from fdml.settings.names import LONGEST_NAME, check_name, check_parties

_EXAMPLE_ROWS = 4000
_UNWRITABLE = re.compile(r'[\s"\\]')
_UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+|^[_.-]+")
"""Letters of a folder's name that the name of a federation cannot have."""
_PARTS = ("party.toml", "data.csv", "keys")

_FEDERATION = """# Who works together. Agreed by all parties; every side needs the same file.
name = "{name}"
server = "{server}"
parties = [{parties}]
"""

_RUN = """# What is trained. Agreed by all parties; every side needs the same file.
name = "first"               # of this run: another name begins another run, the same goes on with it
label_party = "{label_party}"
task = "binary"              # or "multiclass", "regression"

[training]
epochs = "auto"              # by the number of rows, as batch_size and batches_per_block; or a number
seed = 7

[evaluation]
holdout = 0.2                # rows held out, the same at every party

[privacy]
labels = "shared"            # or "private": the other parties learn from gradients of randomised labels
server = "plain"             # or "blind": the server sees predictions only under masks
"""

_PARTY = """# Stays at this party.
party = "{party}"
federation = "../federation.toml"

[align]
max_rows = 10_000            # the most rows another party may bring: consent to telling all which are shared

[data]
path = "data.csv"            # example rows of UCI Adult; put your own file here
id = "user_id"
{label}
[model]
kind = {kind}# or {others}

# What leaves this party is protected only with a guard; `fdml budget plan --epsilon 5` says what to write.
# [guard]
# clip = 3.0
# noise = "gaussian"
# sigma = "auto"
# epsilon = 5.0

# `fdml up` keeps every run waiting for a person (`fdml runs approve`) unless a policy takes it (docs/settings.md).
# [policy]
# accept = "policy"
# max_releases = 100           # of a row in one run
"""


def scaffold(folder: Path, parties: Sequence[str], server: str, name: str | None = None) -> None:
    """Write a federation of these parties and a first run; the first party holds the labels. Nothing is overwritten."""
    _check(folder, parties, server)
    federation = name or _UNNAMED.sub("-", folder.resolve().name).strip("-")[:LONGEST_NAME] or "federation"
    check_name("federation name", federation)
    folder.mkdir(parents=True, exist_ok=True)
    listed = ", ".join(f'"{party}"' for party in parties)
    text = _FEDERATION.format(name=federation, server=server, parties=listed)
    (folder / FEDERATION_FILE).write_text(text, encoding="utf-8")
    (folder / RUN_FILE).write_text(_RUN.format(label_party=parties[0]), encoding="utf-8")
    write_keys(folder, federation, parties)
    kind = f'"{DEFAULT_KIND}"'.ljust(22)
    others = ", ".join(f'"{name}"' for name in ready_kinds() if name != DEFAULT_KIND)
    frame = adult().train.slice(0, _EXAMPLE_ROWS)
    for number, party in enumerate(parties):
        label = '\nlabel = "income"\n' if number == 0 else "\n"
        text = _PARTY.format(party=party, label=label.lstrip("\n"), kind=kind, others=others)
        (folder / party / "party.toml").write_text(text, encoding="utf-8")
        pyarrow.csv.write_csv(_example(frame, number, len(parties)), folder / party / "data.csv")


def write_keys(folder: Path, federation: str, parties: Sequence[str]) -> None:
    """Write the federation's authority, keys and certificates of the server and every party, and the members' table.

    All keys are made in one place: for trying out on one machine.
    """
    authority = AuthorityFolder.make(folder / "authority", federation)
    members: list[tuple[Role, str]] = [("server", SERVER), *(("party", party) for party in parties)]
    for role, name in members:
        made = authority.authority.issue(role, name)
        authority.keep(x509.load_pem_x509_certificate(made.certificate))
        write_credentials(folder / name / "keys", made)
    if (folder / FEDERATION_FILE).is_file():
        write_members(folder)


def write_members(folder: Path) -> None:
    """Put the members' table at the end of a federation.toml that has none, from the authority beside it."""
    with (folder / FEDERATION_FILE).open("a", encoding="utf-8") as file:
        file.write("\n" + members_table(AuthorityFolder(folder / "authority").members()))


def _check(folder: Path, parties: Sequence[str], server: str) -> None:
    check_parties(tuple(parties), parties[0] if parties else "")
    for name in (FEDERATION_FILE, RUN_FILE):
        if (folder / name).exists():
            raise SettingsError(f"{str(folder)!r} holds a {name} already; choose another folder")
    for name in ("server/keys", "authority", *(f"{party}/{part}" for party in parties for part in _PARTS)):
        if (folder / name).exists():
            raise SettingsError(f"{str(folder / name)!r} would be overwritten; move it away, or choose another folder")
    if _UNWRITABLE.search(checked_address(server)):
        raise SettingsError(f"the server's address is {server!r}; write it as host:port, like 127.0.0.1:7443")


def _example(frame: Any, number: int, parties: int) -> Any:
    """One party's columns with ids that all parties share, the rows in an order of its own."""
    features = [column for column in frame.column_names if column not in ("income", "fnlwgt")]
    mine = list(np.array_split(features, parties)[number])
    order = permutation(len(frame), "example", number)
    table = frame.select([*mine, *(["income"] if number == 0 else [])])
    ids = pa.array([f"user-{row:05d}" for row in range(len(frame))])
    return table.add_column(0, "user_id", ids).take(order)
