"""The settings of a run on the app store's twin."""

from __future__ import annotations

from pathlib import Path

from fdml.data.app_store import PARTIES

NAME = "app-store"

_RUN = """# The app store's twin: LR as it is; for the NN see the comments, here and in each party.toml.
name = "{name}"
server = "127.0.0.1:7443"
parties = [{parties}]
label_party = "{label_party}"
task = "binary"

[training]
epochs = 5                   # NN: 10
batch_size = 100
batches_per_block = 256
learning_rate = 0.1          # NN: 1.0
patience = 600.0             # millions of rows take their time to be read
"""

_PARTY = """# Stays at this party.
party = "{party}"
run = "../run.toml"

[data]
path = "train.npz"           # its array `ids` has two columns, user_id and app_id: no data.id is needed
test_path = "test.npz"

[model]
kind = "linear"              # NN: "mlp"
hidden = [64]                # of the NN
l2 = 1e-3
"""


def write_settings(folder: Path) -> None:
    """Write `run.toml`, and `party.toml` into every party's folder, which is there already."""
    parties = ", ".join(f'"{party}"' for party in PARTIES)
    text = _RUN.format(name=NAME, parties=parties, label_party=PARTIES[0])
    (folder / "run.toml").write_text(text, encoding="utf-8")
    for party in PARTIES:
        (folder / party / "party.toml").write_text(_PARTY.format(party=party), encoding="utf-8")
