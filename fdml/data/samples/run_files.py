"""The files of a run on a sample data set: federation.toml, run.toml, and each party's settings and rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from fdml.data.samples.sample_dataset import PartyTables, SampleDataset
from fdml.protocol.shuffle import permutation

_FEDERATION = """# {title}: who works together.
name = "{name}"
server = "{server}"
parties = [{parties}]
"""

_RUN = """# {title}: what is trained.
name = "first"               # of this run: another name begins another run, the same goes on with it
label_party = "{label_party}"
task = "{task}"
{unmatched}
[training]
seed = {seed}
{training}{evaluation}{keys}"""

_UNMATCHED = """unmatched = "drop"           # leaves out rows that lead to no row of some party; or "keep"
"""

_EVALUATION = """
[evaluation]
holdout = {holdout:g}                # rows held out, the same at every party
"""

_PARTY = """# Stays at this party.
party = "{party}"
federation = "../federation.toml"

[align]
max_rows = 1_000_000         # the most rows another party may bring: consent to telling all which are shared

[data]
{data}

[model]
kind = "linear"              # or "fm", "mlp"
"""

_TRAINING = """peer_timeout_seconds = 600.0 # hundreds of thousands of rows take their time to be read
"""
TRAIN, TEST = "train.parquet", "test.parquet"


def write_run_files(
    folder: Path,
    sample: SampleDataset,
    *,
    seed: int,
    holdout: float,
    server: str = "127.0.0.1:7443",
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Write the run into a folder; every party's rows are in an order of its own. Keys are made elsewhere."""
    listed = ", ".join(f'"{party}"' for party in sample.parties)
    who = _FEDERATION.format(title=sample.title, name=sample.name, server=server, parties=listed)
    (folder / "federation.toml").write_text(who, encoding="utf-8")
    text = _RUN.format(
        title=sample.title,
        label_party=sample.label_party,
        task=sample.task,
        seed=seed,
        training=_TRAINING,
        evaluation="" if sample.has_test_rows else _EVALUATION.format(holdout=holdout),
        unmatched=_UNMATCHED if sample.keys else "",
        keys=_keys(sample),
    )
    (folder / "run.toml").write_text(text, encoding="utf-8")
    for party, tables in sample.parties.items():
        _write_party(folder / party, party, tables, seed)
        progress()


def _keys(sample: SampleDataset) -> str:
    """Which columns of the label party lead to the rows of the others."""
    if not sample.keys:
        return ""
    lines = [f"{party} = {json.dumps(list(columns))}" for party, columns in sample.keys.items()]
    said = f"# By party: the columns of {sample.label_party!r} that lead to its rows, which have a key of their own."
    return "\n".join(["", said, "[keys]", *lines, ""])


def _write_party(home: Path, party: str, tables: PartyTables, seed: int) -> None:
    home.mkdir()
    lines = [f'path = "{TRAIN}"']
    for name, table in ((TRAIN, tables.train), (TEST, tables.test)):
        if table is not None:
            pa.parquet.write_table(table.take(permutation(len(table), seed, "rows of", party)), home / name)
    if tables.test is not None:
        lines.append(f'test_path = "{TEST}"')
    lines += [f"{name} = {json.dumps(value)}" for name, value in tables.data.items()]
    text = _PARTY.format(party=party, data="\n".join(lines))
    (home / "party.toml").write_text(text, encoding="utf-8")
