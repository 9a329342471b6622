"""Train one model over features that several parties keep to themselves.

The data's way:  data -> align -> party -> privacy -> exchange -> server -> back to party
Start reading at `fdml.party.loop`, the loop each party runs.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fdml.errors import FdmlError

if TYPE_CHECKING:
    from fdml.experiments.estimators import FeatureDistributedClassifier, FeatureDistributedRegressor

__all__ = ["FdmlError", "FeatureDistributedClassifier", "FeatureDistributedRegressor", "__version__"]

try:
    __version__ = version("fdml")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """The estimators when they are asked for: scikit-learn takes a second to import, and no command needs it."""
    if name not in __all__:
        raise AttributeError(f"module 'fdml' has no attribute {name!r}; it has {', '.join(__all__)}")
    from fdml.experiments import estimators  # noqa: PLC0415

    return getattr(estimators, name)
