"""The settings of a run on the app store's twin."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fdml.data.samples.app_store.dataset import PARTIES

NAME = "app-store"

_FEDERATION = """# The app store's twin: who works together.
name = "{name}"
server = "{server}"
parties = [{parties}]
"""

_RUN = """# The app store's twin: what is trained{remark}.
name = "first"               # of this run: another name begins another run, the same goes on with it
label_party = "{label_party}"
task = "binary"

[training]
epochs = {epochs}
batch_size = 100
batches_per_block = {per_block}
value_bits = 16
learning_rate = {rate}
peer_timeout_seconds = 600.0             # millions of rows take their time to be read
"""

_PARTY = """# Stays at this party.
party = "{party}"
federation = "../federation.toml"

[align]
max_rows = 100_000_000       # the most rows another party may bring: consent to telling all which are shared

[data]
path = "train.npz"           # its array `ids` has two columns, user_id and app_id: no data.id is needed
test_path = "test.npz"

[model]
{model}
optimizer = "sgd"
l2 = 1e-3
"""


class Choice(NamedTuple):
    """What a kind of model is trained with."""

    epochs: int
    rate: float
    per_block: int
    model: str
    """Its lines of `[model]`."""


CHOICES: dict[str, Choice] = {
    "linear": Choice(10, 0.1, 1024, 'kind = "linear"'),
    "mlp": Choice(10, 1.0, 256, 'kind = "mlp"\nhidden = [64]'),
}


def write_settings(folder: Path, kind: str = "linear", server: str = "127.0.0.1:7443") -> None:
    """Write `federation.toml` and `run.toml`, and `party.toml` into every party's folder, which is there already."""
    parties, chosen = ", ".join(f'"{party}"' for party in PARTIES), CHOICES[kind]
    other = CHOICES["mlp"]
    remark = (
        f"; for an NN: {other.epochs} epochs, learning rate {other.rate:g}, {other.per_block} batches per block, and "
        f"kind mlp in each party.toml"
    )
    who = _FEDERATION.format(name=NAME, server=server, parties=parties)
    (folder / "federation.toml").write_text(who, encoding="utf-8")
    text = _RUN.format(
        label_party=PARTIES[0],
        epochs=chosen.epochs,
        rate=chosen.rate,
        per_block=chosen.per_block,
        remark=remark if kind == "linear" else "",
    )
    (folder / "run.toml").write_text(text, encoding="utf-8")
    for party in PARTIES:
        (folder / party / "party.toml").write_text(_PARTY.format(party=party, model=chosen.model), encoding="utf-8")
