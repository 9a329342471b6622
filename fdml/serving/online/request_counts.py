"""How an endpoint is used: requests, their times, and without whom they were answered. No id, score or token."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from fdml.monitor.prometheus import family, histogram

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; a bucket of the histogram ends at each."""
_RECENT_SECONDS, _MOST_RECENT = 60.0, 10_000
UNKNOWN = ""
"""The model of a request that names none that there is: callers' words are in no figure."""


class RequestCounts:
    """Counts requests for scores. What it keeps does not grow with their number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._rows: Counter[str] = Counter()
        self._without: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._last_requests: deque[tuple[float, float]] = deque(maxlen=_MOST_RECENT)
        """When each of the last requests was answered, and how long that took."""

    def note(self, model: str, status: int, seconds: float, *, rows: int = 0, without: Iterable[str] = ()) -> None:
        """A request was answered; `without` are the parties that rows of it lack."""
        with self._lock:
            self._requests[model, status] += 1
            self._rows[model] += rows
            self._without.update((model, party) for party in without)
            self._times.setdefault(model, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
            self._seconds[model] = self._seconds.get(model, 0.0) + seconds
            self._last_requests.append((self._clock(), seconds))

    def summary(self) -> dict[str, Any]:
        """For a person: requests a second and their times over the last minute, and all that was answered."""
        with self._lock:
            now = self._clock()
            while self._last_requests and now - self._last_requests[0][0] > _RECENT_SECONDS:
                self._last_requests.popleft()
            times = sorted(seconds for _, seconds in self._last_requests)
            full = len(self._last_requests) == _MOST_RECENT
            since = self._last_requests[0][0] if full else max(self._began, now - _RECENT_SECONDS)
            statuses: Counter[int] = Counter()
            for (_, status), count in self._requests.items():
                statuses[status] += count
            without: Counter[str] = Counter()
            for (_, party), count in self._without.items():
                without[party] += count
        return {
            "requests": sum(statuses.values()),
            "refused": sum(count for status, count in statuses.items() if status >= 400),
            "rows": sum(self._rows.values()),
            "requests_per_second": len(times) / max(1.0, now - since),
            "p50_seconds": _quantile(times, 0.5),
            "p99_seconds": _quantile(times, 0.99),
            "without": dict(sorted(without.items())),
        }

    def metrics(self) -> str:
        """For Prometheus."""
        with self._lock:
            lines = list(self._families())
        return "\n".join([*lines, ""])

    def _families(self) -> Iterator[str]:
        requests = [({"model": model, "status": str(code)}, n) for (model, code), n in sorted(self._requests.items())]
        yield from family("fdml_endpoint_requests_total", "counter", "Requests for scores by HTTP status.", requests)
        rows = [({"model": model}, count) for model, count in sorted(self._rows.items())]
        yield from family("fdml_endpoint_rows_total", "counter", "Rows that were answered, with a score or not.", rows)
        yield from family(
            "fdml_endpoint_answered_without_total",
            "counter",
            "Requests that were answered though a party is missing in rows of them.",
            [({"model": model, "party": party}, count) for (model, party), count in sorted(self._without.items())],
        )
        yield from histogram(
            "fdml_endpoint_request_seconds",
            "Time from a request's head to its answer.",
            BOUNDS,
            {model: (list(accumulate(counts)), self._seconds[model]) for model, counts in sorted(self._times.items())},
        )


def _quantile(times: list[float], share: float) -> float | None:
    return times[min(len(times) - 1, int(share * len(times)))] if times else None
