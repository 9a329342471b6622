"""Train one model over features that several parties keep to themselves.

The data's way:  data -> align -> party -> privacy -> exchange -> server -> back to party
Start reading at `fdml.party.loop`, the loop each party runs.
"""

from fdml.errors import FdmlError
from fdml.run.estimators import FeatureDistributedClassifier, FeatureDistributedRegressor

__all__ = ["FdmlError", "FeatureDistributedClassifier", "FeatureDistributedRegressor"]
