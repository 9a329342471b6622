"""Guards for tests of what is not about them."""

from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger
from fdml.privacy.perturb import Perturbation


def no_protection():
    """A guard that protects nothing: predictions leave as they are, if they are numbers in range."""
    return Guard(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, 1e-5, None))
