"""Train one model over features that several parties keep to themselves.

The data's way through the folders:

    data         files become columns, encoded rows and blocks
    align        which rows all parties share
    party        the session and the training loop of one party
      models       local models, losses and the objective
      cluster      one party over several threads or processes
      privacy      what a prediction must pass before it leaves
    protocol     messages, schedule, shuffle, fixed point: what all sides must agree on
    transport    how messages travel: gRPC, or within one process
    server       the session of the server, the prediction matrix, the clocks; totals go back to the parties
    serving      prediction with a trained model: questions, answers, batches

Around it: `federation` runs sides as processes, `experiments` compares joint training with other schemes, `monitor`
listens to events, `audit` attacks a finished run, `storage` writes files that must last, `settings` checks settings
files, `cli` holds the commands.

The paper's symbols (Hu, Niu, Yang, Zhou, KDD 2019):

    worker j           party
    i, I(t), t         row, batch, step
    alpha^j            local prediction
    A                  prediction matrix, `fdml.server.matrix`
    sum_k A[i, k]      total
    L(sigma(.)), H     objective and its gradient, `fdml.models.objective`
    tau                staleness, `fdml.server.clocks`

Start reading at `fdml.party.loop`, then `fdml.party.session`.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from fdml.extras import need

if TYPE_CHECKING:
    from fdml.errors import FdmlError
    from fdml.events import Event
    from fdml.experiments.compare import compare
    from fdml.experiments.comparison_input import contenders, from_frames
    from fdml.experiments.estimators import FeatureDistributedClassifier, FeatureDistributedRegressor
    from fdml.federation.interactive import join, predict, serve, simulate

    __version__: str

__all__ = [
    "Event",
    "FdmlError",
    "FeatureDistributedClassifier",
    "FeatureDistributedRegressor",
    "__version__",
    "compare",
    "contenders",
    "from_frames",
    "join",
    "predict",
    "serve",
    "simulate",
]

_DEFINED_IN = {
    "Event": ("fdml.events", "Event"),
    "FdmlError": ("fdml.errors", "FdmlError"),
    "FeatureDistributedClassifier": ("fdml.experiments.estimators", "FeatureDistributedClassifier"),
    "FeatureDistributedRegressor": ("fdml.experiments.estimators", "FeatureDistributedRegressor"),
    "compare": ("fdml.experiments.compare", "compare"),
    "contenders": ("fdml.experiments.comparison_input", "contenders"),
    "from_frames": ("fdml.experiments.comparison_input", "from_frames"),
    "join": ("fdml.federation.interactive", "join"),
    "predict": ("fdml.federation.interactive", "predict"),
    "serve": ("fdml.federation.interactive", "serve"),
    "simulate": ("fdml.federation.interactive", "simulate"),
}


def __getattr__(name: str) -> Any:
    """A public name when it is first used: every process imports `fdml`, and needs few of them."""
    if name == "__version__":
        return _version()
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'fdml' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _DEFINED_IN[name]
    if module == "fdml.experiments.estimators":
        need("sklearn", name)
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return list(__all__)


def _version() -> str:
    try:
        return metadata.version("fdml")
    except metadata.PackageNotFoundError:  # a source tree that was not installed
        return "0+unknown"
