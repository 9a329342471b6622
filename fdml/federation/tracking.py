"""The trackers that a party's [track] asks for: TensorBoard and MLflow. They get this party's own figures alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fdml.events import Listener
from fdml.extras import need
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_report import flat
from fdml.monitor.history import read_history
from fdml.monitor.tracking import Tracked, Tracker
from fdml.party.settings import PartySettings, TrackSettings
from fdml.settings import RunSettings, run_hash

_FOR_MLFLOW = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # else it reports to its makers how it is used
    "MLFLOW_ALLOW_FILE_STORE": "true",  # else it refuses folders
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
"""What MLflow is told before it is imported, where nobody has told it otherwise."""


def check_trackers(track: TrackSettings) -> None:
    """Raise before anything has begun if a tracker is asked for that is not installed."""
    if track.tensorboard is not None:
        need("tensorboard", "[track] tensorboard")
    if track.mlflow is not None:
        need("mlflow", "[track] mlflow")


def tracked(
    stack: ExitStack, party: PartySettings, run: RunSettings, folder: Path, remark: Callable[[str], None]
) -> Iterator[Listener]:
    """A listener for each tracker; the stack closes them. `folder` is that of the run at this party."""
    track = party.track
    if (home := track.tensorboard) is not None:
        yield stack.enter_context(Tracked("TensorBoard", lambda: _event_files(home / run.name), remark))
    if (store := track.mlflow) is not None:
        listener = stack.enter_context(Tracked("MLflow", lambda: _mlflow_run(store, party, run), remark))
        known = read_history(folder / HISTORY)
        for epoch in sorted(known):  # what an earlier start could not hand over
            listener(known[epoch])
        yield listener


def _event_files(folder: Path) -> Tracker:
    from fdml.monitor.tensorboard_files import EventFiles  # noqa: PLC0415 (an extra)

    return EventFiles(folder)


def _mlflow_run(store: str, party: PartySettings, run: RunSettings) -> Tracker:
    for name, value in _FOR_MLFLOW.items():
        os.environ.setdefault(name, value)
    from fdml.monitor.mlflow_runs import HASH, PARTY, MlflowRun  # noqa: PLC0415 (an extra)

    if (parts := urlsplit(store)).scheme == "file":  # figures of labels: for the owner alone
        Path(url2pathname(parts.path)).mkdir(mode=0o700, parents=True, exist_ok=True)
    agreed = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    own = party.model.model_dump(mode="json")
    return MlflowRun(
        store,
        party.track.experiment,
        name=run.name,
        tags={HASH: run_hash(run).hex(), PARTY: party.party},
        settings=dict((*flat(agreed), *flat(own, "own_model."))),
    )
