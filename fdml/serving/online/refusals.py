"""The HTTP status of a request of which no row has a score, and who is missing."""

from __future__ import annotations

from collections.abc import Mapping

from fdml.errors import RequestRefused
from fdml.serving.reasons import Reason, first_reason, reason_of

STATUS = {
    Reason.FORBIDDEN: 403,
    Reason.VERSION: 409,
    Reason.BUDGET: 429,
    Reason.TOO_OFTEN: 429,
    Reason.LATE: 504,
    Reason.AWAY: 503,
    Reason.NOT_ASKED: 503,
}
"""By why a party has not answered."""


def refused_by(absent: Mapping[str, str]) -> RequestRefused:
    """The refusal where parties have not answered: each that matters with its reason."""
    kind = first_reason(absent)
    told = {name: words for name, words in absent.items() if reason_of(words) is not Reason.NOT_ASKED} or absent
    return RequestRefused(STATUS[kind], "; ".join(f"{name}: {words}" for name, words in told.items()))
