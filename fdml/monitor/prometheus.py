"""The figures of a watched run in the text format of Prometheus: units in names, `_total` for what only grows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of its text in HTTP."""
_AWAY = ("gone", "not here yet", "aligned, not joined yet")
"""States in which a party has no line to the server."""
_COUNTERS = {
    "waited_seconds": ("fdml_party_waited_seconds_total", "Time that the party has waited for others."),
    "bytes_in": ("fdml_party_received_bytes_total", "Bytes that the server has received from the party."),
    "bytes_out": ("fdml_party_sent_bytes_total", "Bytes that the server has sent to the party."),
    "restarts": ("fdml_party_restarts_total", "Starts of the party's process after the first."),
}
_GAUGES = {
    "step": ("fdml_party_steps", "Steps that the party has done."),
    "waiting_seconds": ("fdml_party_waiting_seconds", "Length of the party's present wait; 0 without one."),
    "rows_per_second": ("fdml_party_rows_per_second", "Rows that the party trains on in a second."),
}
_CURVES = {
    "train_loss": ("fdml_train_loss", "Mean training loss of the last evaluated epoch."),
    "test_loss": ("fdml_held_out_loss", "Held-out loss of the last evaluated epoch."),
    "test_metric": ("fdml_held_out_metric", "AUC, accuracy or R2 of held-out rows in the last evaluated epoch."),
}


def metrics_text(state: Mapping[str, Any]) -> str:
    """All metrics of a state as the page has it; what is not known here is left out."""
    run, parties = {"run": str(state["run"])}, state["parties"]
    left = [(run, state["seconds_left"])]
    lines = [
        *family("fdml_run_steps", "gauge", "Steps of the whole run.", [(run, state["steps"])]),
        *family("fdml_run_steps_done", "gauge", "Steps that all parties have done.", [(run, state["step"])]),
        *family("fdml_run_left_seconds", "gauge", "Time that is left by the present speed.", left),
        *family(
            "fdml_refused_messages_total",
            "counter",
            "Messages that the server has refused.",
            [({**run, "reason": reason}, count) for reason, count in state["refused"].items()],
        ),
    ]
    for kind, families in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for field, (name, text) in families.items():
            lines += family(name, kind, text, [({**run, "party": each["name"]}, each[field]) for each in parties])
    up = [({**run, "party": each["name"]}, float(_is_here(each))) for each in parties]
    lines += family("fdml_party_up", "gauge", "Whether the party is connected or has finished.", up)
    for field, (name, text) in _CURVES.items():
        if (curve := state["curves"].get(field)) is not None:
            lines += family(name, "gauge", text, [(run, curve["values"][-1])])
    lags = [({**run, "lag": lag}, count) for lag, count in state["lag"].items()]
    lines += family("fdml_steps_by_lag_total", "counter", "Steps of this party by the lag of their total.", lags)
    return "\n".join([*lines, ""])


def _is_here(party: Mapping[str, Any]) -> bool:
    return not party["gone_seconds"] and party["state"] not in _AWAY


def family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> Iterable[str]:
    """The lines of one metric, with its labels and values; none where no value is known."""
    known = [(labels, float(value)) for labels, value in samples if value is not None and math.isfinite(value)]
    if not known:
        return
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in known:
        yield _sample(name, labels, value)


def histogram(
    name: str, text: str, bounds: Sequence[float], counts: Mapping[str, tuple[Sequence[int], float]]
) -> Iterable[str]:
    """The lines of a histogram: by model, how many are up to each bound and in all, and their sum."""
    if not counts:
        return
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    for model, (below, total) in counts.items():
        for bound, count in zip((*(f"{each:g}" for each in bounds), "+Inf"), below, strict=True):
            yield _sample(f"{name}_bucket", {"model": model, "le": bound}, count)
        yield _sample(f"{name}_sum", {"model": model}, total)
        yield _sample(f"{name}_count", {"model": model}, below[-1])


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
    return f"{name}{{{inner}}} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
