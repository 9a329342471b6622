"""What kind of reason a party's words are for not answering: callers act on the kind, and people read the words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

SPENT = "its privacy budget is spent"
MAY_NOT_ASK = "may not ask"
NOT_ANSWERED = "its policy does not answer"
TOO_OFTEN = "its policy answers one asker for at most"
OTHER_VERSION = "it has version"
ANSWERED_VERSION = "it answered with version"
SEALED_OTHERWISE = "of another run or version"
LATE = "no answer within"
NOT_ASKED = "not asked, as it needs"
"""The words that both sides use; each is in no other reason."""


class Reason(Enum):
    """Kinds of reasons, those first that go before others where several parties have one."""

    FORBIDDEN = (MAY_NOT_ASK, NOT_ANSWERED)
    VERSION = (OTHER_VERSION, ANSWERED_VERSION, SEALED_OTHERWISE)
    BUDGET = (SPENT,)
    TOO_OFTEN = (TOO_OFTEN,)
    LATE = (LATE,)
    AWAY = ()
    """Not there, or with an error of its own."""
    NOT_ASKED = (NOT_ASKED,)
    """Nothing is known of it: it was left out as another one is missing."""


def reason_of(words: str) -> Reason:
    """The kind of what a party, or the server in its place, has said."""
    for reason in Reason:
        if any(part in words for part in reason.value):
            return reason
    return Reason.AWAY


def first_reason(absent: Mapping[str, str]) -> Reason:
    """The kind that counts where several parties have not answered."""
    kinds = {reason_of(words) for words in absent.values()}
    return next(reason for reason in Reason if reason in kinds)


def unreachable(absent: Mapping[str, str]) -> dict[str, str]:
    """Those who may be back the next moment: away or late, not those who refuse."""
    return {name: words for name, words in absent.items() if reason_of(words) in (Reason.LATE, Reason.AWAY)}


def not_asked(missing: Iterable[str]) -> str:
    """What is said of a party that was left out."""
    return f"{NOT_ASKED} {', '.join(missing)} too"
