"""A party's folder with files, for the contracts of stores and data."""

from __future__ import annotations

from fdml.federation.party_folder import PartyFolder

FEDERATION = """
name = "shop"
parties = ["ann", "bob"]
"""
RUN = """
name = "first"
label_party = "ann"
task = "binary"

[evaluation]
holdout = 0.25
"""


def party_folder(path, rows, *, weighted=False, test_rows=0):
    """The folder of party ann: `rows` rows with the ids r0, r1, ..., features x and y, a label and maybe a weight."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "federation.toml").write_text(FEDERATION)
    (path / "run.toml").write_text(RUN)
    _write_table(path / "train.csv", 0, rows, weighted)
    lines = [
        'party = "ann"',
        'federation = "federation.toml"',
        "[align]",
        "max_rows = 1000",
        "[data]",
        'path = "train.csv"',
        'id = "id"',
        'label = "label"',
    ]
    if weighted:
        lines.append('weight = "weight"')
    if test_rows:
        _write_table(path / "test.csv", rows, test_rows, weighted)
        lines.append('test_path = "test.csv"')
    (path / "party.toml").write_text("\n".join(lines) + "\n")
    return PartyFolder(path / "party.toml")


def _write_table(path, first, rows, weighted):
    header = "id,x,y,label" + (",weight" if weighted else "")
    lines = [
        f"r{row},{0.5 * row},{(row * row) % 7},{'yes' if row % 3 else 'no'}" + (f",{1 + row % 2}" if weighted else "")
        for row in range(first, first + rows)
    ]
    path.write_text("\n".join([header, *lines]) + "\n")
