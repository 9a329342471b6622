"""Three companies with files as a newcomer has them: one check at each, then one run, and no further round of calls."""

import json

import pytest

from tests.end_to_end.cluster import Started
from tests.federation.messy import PARTIES, write_companies

pytestmark = pytest.mark.slow

FAULTS_OF_THE_BANK = (
    "ids begin with a zero",
    "15 rows with a duplicate id",
    "column 'income': missing numbers are filled in",
    "column 'product_code': whole numbers of 3 digits that repeat",
    "column 'opened': dates become days and their parts",
    "column 'gender': 5 categories, 4 if case and white space are left out",
)
MENDED = '[data.ids]\nduplicates = "first"\nnumbers = "all"\n[data]'


def check(home, party, code):
    """What `fdml check` prints of a party, with this exit code."""
    return Started(home / f"{party}.log", "check", home / party / "party.toml").expect(code)


def test_one_check_at_each_company_finds_all_that_took_six_rounds_of_calls(tmp_path):
    home = write_companies(tmp_path / "churn")
    said = {party: check(home, party, 1) for party in PARTIES}
    for words in FAULTS_OF_THE_BANK:
        assert words in said["bank"]
    assert "30 rows with a duplicate id" in said["telco"]
    assert "4 rows with a duplicate id" in said["shop"]
    for party in PARTIES:
        settings = home / party / "party.toml"
        settings.write_text(settings.read_text().replace("[data]", MENDED))
        (home / f"{party}.log").unlink()
        check(home, party, 0)
    (home / "run.toml").write_text((home / "run.toml").read_text() + "[training]\nepochs = 2\n")
    Started(home / "run.log", "simulate", home / "run.toml", "--json", home / "run.json").expect(0, seconds=120.0)
    assert json.loads((home / "run.json").read_text())["metrics"]["figures"]["auc"] is not None
