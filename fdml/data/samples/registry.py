"""The sample data sets by name."""

from __future__ import annotations

from fdml.data.samples.adult_parties import NAME as ADULT
from fdml.data.samples.adult_parties import adult_parties
from fdml.data.samples.census_income import NAME as CENSUS_INCOME
from fdml.data.samples.census_income import census_income
from fdml.data.samples.movielens import NAME as MOVIELENS
from fdml.data.samples.movielens import movielens
from fdml.data.samples.nyc_flights import NAME as NYC_FLIGHTS
from fdml.data.samples.nyc_flights import nyc_flights
from fdml.data.samples.sample_dataset import Load

SAMPLES: dict[str, Load] = {
    ADULT: adult_parties,
    NYC_FLIGHTS: nyc_flights,
    CENSUS_INCOME: census_income,
    MOVIELENS: movielens,
}
"""Adult comes with fdml, the next two with an extra; MovieLens is read from a package that the user has, if any."""
