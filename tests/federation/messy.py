"""Three companies' files as a newcomer has them, a tenth as large: every one needs work before it can be used."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdml.federation.scaffold import write_keys

PEOPLE = 2_400
GENDERS = ("M", "m", "male", "F", "female")
PARTIES = ("bank", "telco", "shop")


def write_companies(home, parties=PARTIES):
    """federation.toml and run.toml, and for every company its file and a party.toml with nothing but id and label."""
    random = np.random.default_rng(5)
    people = np.sort(random.choice(10**6, PEOPLE, replace=False)) + 100_000
    listed = ", ".join(f'"{party}"' for party in PARTIES)
    home.mkdir(parents=True, exist_ok=True)
    (home / "federation.toml").write_text(f'name = "churn"\nserver = "127.0.0.1:7443"\nparties = [{listed}]\n')
    (home / "run.toml").write_text('name = "first"\nlabel_party = "bank"\n')
    write_keys(home, "churn", PARTIES)
    for party in parties:
        _WRITERS[party](home / party, people, random)
    return home


def bank_rows(people, random):
    """Ids with leading zeros, missing income, codes as whole numbers, a date, five spellings of gender, duplicates."""
    ids = random.permutation(people)[: int(0.9 * PEOPLE)]
    ids = np.concatenate([ids, random.choice(ids, 15, replace=False)])
    rows = len(ids)
    income = np.round(random.lognormal(8, 0.5, rows), 2).astype(str)
    income[random.random(rows) < 0.12] = ""
    return {
        "customer": [f"{each:010d}" for each in ids],
        "income": income,
        "age": random.integers(18, 95, rows),
        "product_code": random.choice(np.arange(101, 1000, 7), rows),
        "opened": [str(np.datetime64("2015-01-01") + int(day)) for day in random.integers(0, 3000, rows)],
        "gender": random.choice(GENDERS, rows),
        "churn": random.choice(["yes", "no"], rows, p=[0.2, 0.8]),
    }


def _write_bank(folder, people, random):
    columns = bank_rows(people, random)
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    folder.mkdir(exist_ok=True)
    (folder / "bank.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    _write_settings(folder, "bank.csv", "customer", 'label = "churn"\n')


def _write_telco(folder, people, random):
    """Ids as text, some with a space in front, a text of many levels, NaN in a third of the columns."""
    ids = np.concatenate([people[: int(0.85 * PEOPLE)], people[:30]])
    rows = len(ids)
    columns = {
        "subscriber": [(" " if random.random() < 0.1 else "") + str(each) for each in ids],
        "plan_text": [f"level {number}" for number in random.integers(0, 5_000, rows)],
    }
    for number in range(12):
        values = random.normal(size=rows)
        if number % 3 == 0:
            values[random.random(rows) < 0.2] = np.nan
        columns[f"usage_{number}"] = values
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "telco.parquet")
    _write_settings(folder, "telco.parquet", "subscriber")


def _write_shop(folder, people, random):
    """Ids as whole numbers, sparse counts."""
    ids = np.concatenate([people[-int(0.8 * PEOPLE) :], people[-4:]])
    columns = {"member": ids} | {f"bought_{each}": random.poisson(0.05, len(ids)) for each in range(20)}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "shop.parquet")
    _write_settings(folder, "shop.parquet", "member")


def _write_settings(folder, file, id_column, more=""):
    (folder / "party.toml").write_text(
        f'party = "{folder.name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = 100000\n'
        f'[data]\npath = "{file}"\nid = "{id_column}"\n{more}'
    )


_WRITERS = {"bank": _write_bank, "telco": _write_telco, "shop": _write_shop}
