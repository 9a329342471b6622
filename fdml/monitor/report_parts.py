"""Parts that reports of runs and of comparisons have in common: the answer, curves, calibration and lift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fdml.events import Reliability
from fdml.monitor.charts import BarChart, LineChart, Series
from fdml.monitor.figures import LOWER_IS_BETTER, MEANINGS, TITLES
from fdml.monitor.history import Gain
from fdml.monitor.report import Block, Charts, Section, Table, Text, Tone, figure
from fdml.monitor.thinning import Point

_TENTH = 0.1
_WORTH_IT = "Worth it: "


def answer(over: str, metric: str, gain: Gain) -> tuple[str, Tone]:
    """Whether joint training was worth it, in one sentence, and how that sounds."""
    name = TITLES.get(metric, metric)
    if gain.value is None:
        return f"Not known: {name} of the held-out rows is not defined, so nothing can be said over {over}.", "fair"
    if gain.low is None or gain.high is None:
        return f"Joint training brought {gain.value:+.3f} {name} over {over}; too few held-out rows to be sure.", "fair"
    interval = f"{gain.value:+.3f} {name} over {over}, between {gain.low:+.3f} and {gain.high:+.3f}"
    if gain.low <= 0.0 <= gain.high:
        return f"No certain gain: joint training brought {interval}.", "fair"
    if gain.value > 0.0:
        return f"{_WORTH_IT}joint training brought {interval}.", "good"
    return f"Not worth it: joint training was worse, {interval}.", "bad"


def with_late_fusion(text: str, tone: Tone, gain: float | None) -> tuple[str, Tone]:
    """The answer with what joint training brought over late fusion, if that is known.

    Features of others that bring as much without joint training are no gain of joint training.
    """
    if gain is None:
        return text, tone
    if tone == "good" and gain <= 0.0:
        brought = text.removeprefix(_WORTH_IT)
        lead = f"No gain over late fusion, which takes no joint training: {gain:+.3f}."
        return f"{lead} {brought[0].upper()}{brought[1:]}", "fair"
    return f"{text} Over late fusion, which takes no joint training: {gain:+.3f}.", tone


def meaning_notes(metric: str) -> Iterable[Text]:
    """What the metric says, for a reader who does not know it."""
    if metric in MEANINGS:
        yield Text(f"{TITLES[metric]}: {MEANINGS[metric]}.", "note")


def lift_text(joint: float | None, alone: float | None, over: str) -> str:
    """What a better ranking means where only the best rows can be looked at; empty where it is not known."""
    if joint is None or alone is None:
        return ""
    return (
        f"In other words: among the tenth of held-out rows with the highest scores, joint training finds {joint:.2f} "
        f"times as many positive ones as among all, {over} {alone:.2f} times as many."
    )


def interval_note(rows: int | None = None, resamples: int | None = None) -> Text:
    """What "between" means."""
    some = "the held-out rows" if rows is None else f"the {rows:,} held-out rows"
    times = "" if resamples is None else f" {resamples}"
    return Text(
        f"Between: 95 % of{times} resamples of {some}. Another seed or another training set is not in it.", "note"
    )


def figures_table(columns: Mapping[str, Mapping[str, float | None]], difference: tuple[str, str] | None) -> Table:
    """Held-out figures, one row for each; the last column is by how much the first of two columns is better."""
    names = list(dict.fromkeys(name for each in columns.values() for name in each if name != "threshold"))
    headings = ("of held-out rows", *columns, *(["better by"] if difference else []))
    rows = []
    for name in names:
        cells = [figure(each.get(name)) for each in columns.values()]
        more = [_better(name, *(columns[each].get(name) for each in difference))] if difference else []
        rows.append((_title(name), *cells, *more))
    return Table(headings, tuple(rows), main=0 if rows else -1)


def _title(name: str) -> str:
    return "test loss" if name == "test_loss" else TITLES.get(name, name)


def _better(name: str, new: float | None, old: float | None) -> str:
    if new is None or old is None:
        return "-"
    return f"{old - new if name in LOWER_IS_BETTER else new - old:+.4f}"


def epoch_curve(title: str, series: Iterable[Series], levels: Mapping[str, float | None] | None = None) -> LineChart:
    """A chart against the epoch; levels that are not known are left out."""
    styles = {"late fusion": "fusion", "pooled": "pooled"}
    known = {name: value for name, value in (levels or {}).items() if value is not None}
    flat = tuple(Series(name, ((0.0, value),), styles.get(name, "alone")) for name, value in known.items())
    return LineChart(title, "epoch", tuple(each for each in series if each.points), flat)


def known_points(pairs: Iterable[tuple[float, float | None]]) -> tuple[Point, ...]:
    """Points whose value is known."""
    return tuple((x, y) for x, y in pairs if y is not None)


def reliability_section(found: Reliability | None, task: str, figures: Mapping[str, float | None]) -> Section:
    """Calibration and lift of held-out rows; where there are none, why."""
    title = "Calibration and lift"
    if found is None:
        why = "of a binary task with probabilities" if task == "binary" else f"of a binary task; this one is {task}"
        return Section(title, (Text(f"There are none: they are {why}.", "note"),))
    points = known_points(
        (predicted, observed)
        for predicted, observed in zip(found.predicted, found.observed, strict=True)
        if predicted is not None
    )
    calibration = LineChart(
        "Observed share against predicted probability",
        "predicted probability",
        (Series("held-out rows", points, "joint"), Series("perfect", ((0.0, 0.0), (1.0, 1.0)), "alone")),
    )
    lift = BarChart("Lift of the rows with the highest scores", "share of rows, %", tuple(_lifts(found.lift)))
    said = [f"{TITLES[name]} {figure(figures[name])}" for name in ("calibration_error", "brier") if name in figures]
    top = found.lift[0]
    first = Text(
        f"Of the tenth of rows with the highest scores, {top:.2f} times as many are positive as among all."
        + (f" {', '.join(said)[0].upper()}{', '.join(said)[1:]}." if said else "")
    )
    return Section(title, (first, Charts((calibration, lift)), _bins(found)))


def _lifts(lift: Sequence[float]) -> Iterable[tuple[str, float]]:
    for number, each in enumerate(lift):
        yield f"{round(100 * _TENTH * (number + 1))}", round(each, 4)


def _bins(found: Reliability) -> Block:
    rows = [
        (f"{_TENTH * number:.1f} to {_TENTH * (number + 1):.1f}", f"{count:,.10g}", figure(predicted), figure(observed))
        for number, (count, predicted, observed) in enumerate(
            zip(found.rows, found.predicted, found.observed, strict=True)
        )
    ]
    headings = ("predicted", "rows", "mean predicted", "observed")
    return Table(headings, tuple(rows), "Held-out rows by predicted probability (rows count by their weights).")
