"""A small run that was trained, and is published, in folders of this machine."""

from __future__ import annotations

import numpy as np

from fdml.federation.join import join
from tests.federation.folders import serving, together

PARTIES = ("ann", "bob", "cid")
ROWS = 240


def write_federation(
    home, *, parties=PARTIES, kinds=None, task="binary", run="", party=None, training="", seed=0, epochs=True, loss=""
):
    """Settings and data; each party has two features, an order of rows of its own, and a few rows that only it has."""
    home.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, 2 * len(parties)))
    score = X @ np.linspace(1.0, 2.0, X.shape[1])
    labels = {
        "binary": np.where(score > 0, "yes", "no"),
        "multiclass": np.array(["low", "mid", "top"])[np.digitize(score, [-1.5, 1.5])],
        "regression": np.round(score, 4),
        "counts": np.round(np.exp(score / 4)).astype(int),
    }[task]
    if task == "counts":
        task, loss = "regression", 'loss = "poisson"\n'
    blocks = "epochs = 2\nbatches_per_block = 4\n" if epochs else "epochs = 3\n"
    listed = ", ".join(f'"{name}"' for name in parties)
    (home / "federation.toml").write_text(f'name = "small"\nserver = "127.0.0.1:0"\nparties = [{listed}]\n')
    (home / "run.toml").write_text(
        f'name = "first"\nlabel_party = "{parties[0]}"\ntask = "{task}"\n{loss}'
        f"[training]\nbatch_size = 16\n{blocks}{training}\n{run}"
    )
    for number, name in enumerate(parties):
        folder = home / name
        folder.mkdir(exist_ok=True)
        write_rows(folder, X[:, 2 * number : 2 * number + 2], labels if number == 0 else None, random.permutation(ROWS))
        label = 'label = "label"\n' if number == 0 else ""
        kind = (kinds or {}).get(name, "linear")
        more = (party or {}).get(name, "")
        (folder / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\nthreads = 1\n[align]\nmax_rows = 1000\n'
            f'[data]\npath = "data.csv"\nid = "id"\n{label}[model]\n{kind if " = " in kind else f"kind = {kind!r}"}\n{more}'
        )
    return home / "run.toml"


def write_rows(folder, X, labels, order, extra=10):
    """data.csv; `extra` rows more have ids that no other party has."""
    lines = ["id,a,b" + (",label" if labels is not None else "")]
    for at in order:
        lines.append(f"r{at},{X[at, 0]},{X[at, 1]}" + (f",{labels[at]}" if labels is not None else ""))
    for number in range(extra):
        label = f",{labels[number]}" if labels is not None else ""
        lines.append(f"{folder.name}-{number},{number / 10},0.5{label}")
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


def train(run_toml, parties=PARTIES):
    """All parties in threads, over a server of the one run; their results."""
    home = run_toml.parent
    with serving(run_toml) as server:
        return together(
            *(
                lambda name=name: join(home / name / "party.toml", plain=True, server=server.address, yes=True)
                for name in parties
            )
        )


def trained(home, **options):
    """A folder with a trained and published run."""
    run = write_federation(home, **options)
    train(run, options.get("parties", PARTIES))
    return home
