"""The bundled Adult data set, raw and as LIBSVM's a9a.

UCI Adult (Becker and Kohavi, 1996, CC BY 4.0; see adult/LICENSE.txt). a9a is
made from it at loading, and equals the LIBSVM files row by row.
"""

from __future__ import annotations

import lzma
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fdml.data.column_features import Entries
from fdml.data.encoding import gather
from fdml.data.table import PartyData, Table

LABEL = "income"

BOUNDS = {
    "age": (25, 32, 40, 49),
    "fnlwgt": (106647, 158661, 196337, 259872),
    "education-num": (8, 9, 10, 12),
    "capital-gain": (0,),
    "capital-loss": (0,),
    "hours-per-week": (34, 39, 40, 47),
}
"""A number falls into the first bin whose upper bound it does not exceed, else into one more."""

CATEGORIES = {
    "workclass": "Private,Self-emp-not-inc,Self-emp-inc,Federal-gov,Local-gov,State-gov,Without-pay,Never-worked",
    "education": "Bachelors,Some-college,11th,HS-grad,Prof-school,Assoc-acdm,Assoc-voc,9th,7th-8th,12th,Masters,"
    "1st-4th,10th,Doctorate,5th-6th,Preschool",
    "marital-status": "Married-civ-spouse,Divorced,Never-married,Separated,Widowed,Married-spouse-absent,"
    "Married-AF-spouse",
    "occupation": "Tech-support,Craft-repair,Other-service,Sales,Exec-managerial,Prof-specialty,Handlers-cleaners,"
    "Machine-op-inspct,Adm-clerical,Farming-fishing,Transport-moving,Priv-house-serv,Protective-serv,Armed-Forces",
    "relationship": "Wife,Own-child,Husband,Not-in-family,Other-relative,Unmarried",
    "race": "White,Asian-Pac-Islander,Amer-Indian-Eskimo,Other,Black",
    "sex": "Female,Male",
    "native-country": "United-States,Cambodia,England,Puerto-Rico,Canada,Germany,Outlying-US(Guam-USVI-etc),India,"
    "Japan,Greece,South,China,Cuba,Iran,Honduras,Philippines,Italy,Poland,Jamaica,Vietnam,Mexico,Portugal,Ireland,"
    "France,Dominican-Republic,Laos,Ecuador,Taiwan,Haiti,Columbia,Hungary,Guatemala,Nicaragua,Scotland,Thailand,"
    "Yugoslavia,El-Salvador,Trinadad&Tobago,Peru,Hong,Holand-Netherlands",
}
"""In the order in which Adult's own description lists them, which is a9a's."""


class Adult(NamedTuple):
    """The two parts of Adult as pyarrow tables."""

    train: Any
    test: Any


def adult() -> Adult:
    """Adult with its 14 columns and `income` (">50K" or "<=50K"); an unknown value ("?") is null."""
    return Adult(_read("train"), _read("test"))


def a9a() -> PartyData:
    """LIBSVM's a9a: 123 features that are 0 or 1, label 1 for an income over 50K, 0 otherwise."""
    raw = adult()
    return PartyData(_encode(raw.train), _encode(raw.test))


def _read(part: str) -> Any:
    packed = files("fdml.data.samples").joinpath("adult_files", f"{part}.csv.xz").read_bytes()
    options = pa.csv.ConvertOptions(null_values=["?"], strings_can_be_null=True)
    return pa.csv.read_csv(pa.py_buffer(lzma.decompress(packed)), convert_options=options)


def _encode(frame: Any) -> Table:
    columns = [name for name in frame.column_names if name != LABEL]
    names = [_names(column) for column in columns]
    entries = [_entries(column, frame.column(column)) for column in columns]
    rows = gather(entries, [len(part) for part in names], len(frame))
    labels = pc.equal(frame.column(LABEL), ">50K").to_numpy().astype(np.int64)
    return Table(rows, tuple(name for part in names for name in part), labels=labels)


def _names(column: str) -> list[str]:
    if column in CATEGORIES:
        return [f"{column}={category}" for category in CATEGORIES[column].split(",")]
    bounds = BOUNDS[column]
    return [*(f"{column}<={bound}" for bound in bounds), f"{column}>{bounds[-1]}"]


def _entries(column: str, values: Any) -> Entries:
    if column in CATEGORIES:
        known = pa.array(CATEGORIES[column].split(","))
        found = pc.fill_null(pc.index_in(values, value_set=known), -1).to_numpy()
    else:
        found = np.searchsorted(BOUNDS[column], values.to_numpy(), side="left")
    return found.astype(np.int32), np.ones(len(found), np.float32)
