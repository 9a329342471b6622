"""The report of a comparison: what joint training would bring, on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from fdml.monitor.charts import LineChart, Series
from fdml.monitor.figures import TITLES, gain_text
from fdml.monitor.history import EpochRecord, LearningCurve, Scheme
from fdml.monitor.report import Block, Charts, Report, Section, Table, Text, Tone, figure
from fdml.monitor.report_parts import answer, interval_note, meaning_notes, reliability_section, with_late_fusion

_STYLES: dict[Scheme, str] = {"alone": "alone", "late fusion": "fusion", "pooled": "pooled", "joint": "joint"}


@dataclass(frozen=True)
class ComparisonFacts:
    """What was compared, for a reader: no column, class or value."""

    source: str
    """The name of the file."""
    task: str
    metric: str
    parties: int
    train_rows: int
    test_rows: int
    seeds: int
    command: str
    """That makes the same again."""
    settings: Mapping[str, str]
    epsilon: tuple[str, ...] = ()
    """What each party would spend in such a run, in words."""


def comparison_report(curves: Sequence[LearningCurve], facts: ComparisonFacts) -> Report:
    """The report of all models under all schemes."""
    text, tone = _answer(curves, facts.metric)
    made = datetime.now(UTC).isoformat(timespec="minutes")
    return Report(
        title=f"Comparison on {facts.source}",
        answer=text,
        tone=tone,
        about=f"{facts.task} task, {facts.parties} parties, {facts.train_rows:,} training and {facts.test_rows:,} test "
        f"rows, {facts.seeds} seed{'s' * (facts.seeds > 1)}; {made[:16].replace('T', ' ')} UTC.",
        sections=(
            Section("What joint training would bring", tuple(_table_blocks(curves, facts.metric))),
            *(_model_curves(model, curves, facts.metric) for model in _models(curves)),
            *_reliability(curves, facts.task),
            _privacy(facts),
            _repeat(facts),
        ),
        footer=f"Made by fdml {metadata.version('fdml')}. All data was in one place for this comparison; a real run "
        f"needs none of it to leave its owner.",
    )


def _models(curves: Sequence[LearningCurve]) -> list[str]:
    return list(dict.fromkeys(each.model for each in curves))


def _answer(curves: Sequence[LearningCurve], metric: str) -> tuple[str, Tone]:
    """Of the model whose joint training is best: over alone where the label party has features."""
    joint = [each for each in curves if each.scheme == "joint"]
    if not joint:
        return "There was no joint training to compare.", "fair"
    best = max(joint, key=lambda each: each.last.test_metric)
    for over in ("alone", "late fusion"):
        if over in best.gains:
            named = "the label party alone" if over == "alone" else over
            text, tone = answer(named, metric, best.gains[over])
            fused = best.gains.get("late fusion") if over == "alone" else None
            return with_late_fusion(f"{text[:-1]} ({best.model}).", tone, None if fused is None else fused.value)
    return f"Held-out {TITLES[metric]} of joint training: {figure(best.last.test_metric)} ({best.model}).", ""


def _table_blocks(curves: Sequence[LearningCurve], metric: str) -> Iterator[Block]:
    headings = ("model", "scheme", f"test {TITLES[metric]}", "test loss", "training objective", "seconds")
    rows = [(each.model, each.scheme, *map(figure, _last(each.last)), f"{each.last.seconds:.2f}") for each in curves]
    best = max(range(len(curves)), key=lambda at: (curves[at].scheme == "joint", curves[at].last.test_metric))
    yield Table(headings, tuple(rows), "The last epoch; no epoch was picked by its test figures.", best)
    for each in curves:
        for scheme, gain in each.gains.items():
            yield Text(f"{each.model}: {gain_text(scheme, metric, *gain)}.")
        if each.convergence is not None and each.convergence.text:
            yield Text(f"{each.model} {each.scheme}: {each.convergence.text}.", "warning")
    yield Text(
        "Alone: the label party's features only. Late fusion: every party trains alone and the predictions are summed "
        "and recalibrated. Pooled: all features in one place. Joint: with fdml.",
        "note",
    )
    yield interval_note()
    yield from meaning_notes(metric)


def _last(record: EpochRecord) -> tuple[float, float, float]:
    return record.test_metric, record.test_loss, record.train_objective


def _model_curves(model: str, curves: Sequence[LearningCurve], metric: str) -> Section:
    own = [each for each in curves if each.model == model]

    def chart(title: str, across: str, x: str, y: str) -> LineChart:
        lines = tuple(
            Series(
                each.scheme,
                tuple((float(getattr(record, x)), float(getattr(record, y))) for record in each.records),
                _STYLES[each.scheme],
            )
            for each in own
        )
        return LineChart(title, across, lines)

    charts = (
        chart("Training objective", "epoch", "epoch", "train_objective"),
        chart("Test loss", "epoch", "epoch", "test_loss"),
        chart(f"Test {TITLES[metric]}", "epoch", "epoch", "test_metric"),
        chart("Training objective against time", "seconds", "seconds", "train_objective"),
    )
    return Section(f"Curves of {model}", (Charts(charts),))


def _reliability(curves: Sequence[LearningCurve], task: str) -> Iterator[Section]:
    for each in curves:
        if each.scheme == "joint":
            section = reliability_section(each.reliability, task, {})
            yield Section(f"{section.title} of joint {each.model}", section.blocks)


def _privacy(facts: ComparisonFacts) -> Section:
    said = [Text(f"{line}.") for line in facts.epsilon] or [
        Text("Nothing was protected in this comparison: no noise, so there is no epsilon to state.")
    ]
    return Section("Privacy", tuple(said))


def _repeat(facts: ComparisonFacts) -> Section:
    rows = tuple(facts.settings.items())
    again = "With the same columns and options, which name what this page leaves out:"
    blocks: list[Block] = [Text(again), Text(facts.command, "command")]
    if rows:
        blocks.append(Table(("setting", "value"), rows))
    return Section("Settings, and how to repeat it", tuple(blocks))
