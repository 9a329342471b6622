"""Ledgers that are asked what they would allow."""

import copy

from fdml.errors import PrivacyBudgetSpent


def can_release(ledger, group, releases=1):
    """Whether so many more releases stay within the budget; nothing is counted."""
    try:
        copy.deepcopy(ledger).count_release(group, releases)
    except PrivacyBudgetSpent:
        return False
    return True
