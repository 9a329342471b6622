"""A run in MLflow, through its own client. An extra: imported only where party.toml asks for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

HASH, PARTY = "fdml.run_hash", "fdml.party"
"""Tags by which a later start finds the run again."""
_MOST_AT_ONCE = 100
"""Parameters in one call."""


class MlflowRun:
    """One run of MLflow for one run of fdml at one party, whatever number of starts it takes."""

    def __init__(
        self, store: str, experiment: str, *, name: str, tags: Mapping[str, str], settings: Mapping[str, str]
    ) -> None:
        """`tags` are what the run is found by; `settings` become its parameters."""
        with _explained():
            self._client = MlflowClient(store)
            self._run = self._found(experiment, tags) or self._begun(experiment, name, tags, settings)
        self._known: dict[str, set[int]] = {}

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if known is None else known.experiment_id)

    def _found(self, experiment: str, tags: Mapping[str, str]) -> str | None:
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs = self._client.search_runs([self._experiment(experiment)], filter_string=wanted, max_results=1)
        if not runs:
            return None
        found = str(runs[0].info.run_id)
        self._client.update_run(found, status="RUNNING")
        return found

    def _begun(self, experiment: str, name: str, tags: Mapping[str, str], settings: Mapping[str, str]) -> str:
        made = self._client.create_run(self._experiment(experiment), run_name=name, tags=dict(tags))
        run = str(made.info.run_id)
        params = [Param(key, value) for key, value in settings.items()]
        for first in range(0, len(params), _MOST_AT_ONCE):
            self._client.log_batch(run, params=params[first : first + _MOST_AT_ONCE])
        return run

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Log metrics, the epoch as their step, but for those that an earlier start has logged."""
        with _explained():
            now = int(time.time() * 1000)
            new = [Metric(key, value, now, epoch) for key, value in figures.items() if epoch not in self._logged(key)]
            self._client.log_batch(self._run, metrics=new)
        for each in new:
            self._known[each.key].add(epoch)

    def _logged(self, key: str) -> set[int]:
        if key not in self._known:
            self._known[key] = {each.step for each in self._client.get_metric_history(self._run, key)}
        return self._known[key]

    def close(self, *, finished: bool) -> None:
        """End the run; one that was stopped goes on with the next start."""
        with _explained():
            if finished:
                self._client.log_batch(self._run, tags=[RunTag("fdml.finished", "true")])
            self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")


@contextmanager
def _explained() -> Iterator[None]:
    """MLflow's own errors, for those that know it not, in one line."""
    try:
        yield
    except MlflowException as error:
        raise OSError(str(error).splitlines()[0][:200]) from None
