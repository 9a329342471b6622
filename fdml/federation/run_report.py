"""The report of a run at one party: made of its own files alone, for its own eyes.

It shows what this party knows already. Ids, columns, classes, values and keys have no place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fdml.events import Evaluated
from fdml.federation.report_findings import brought_section, scheme_blocks
from fdml.federation.run_folder import RUNS, SETTINGS
from fdml.federation.run_record import RunRecord, read_record
from fdml.monitor.charts import BarChart, LineChart, Series
from fdml.monitor.convergence import convergence_of
from fdml.monitor.figures import CHOSEN, TITLES
from fdml.monitor.history import Gain, metric_of
from fdml.monitor.measures import Measures, lag_bars
from fdml.monitor.report import Block, Charts, Report, Section, Table, Text, Tone, figure, render
from fdml.monitor.report_parts import (
    answer,
    epoch_curve,
    figures_table,
    interval_note,
    known_points,
    lift_text,
    meaning_notes,
    reliability_section,
    with_late_fusion,
)
from fdml.settings import run_hash
from fdml.storage.atomic import write_file

REPORT = "report.html"
"""In the folder of the run."""
_UNKNOWN_FUSION = (
    "Not known here: what late fusion reaches, in which every party trains alone and only the predictions are summed. "
    "What joint training brings over that is what pays for it. Where all parties' files may lie in one place, "
    "`fdml compare run.toml` adds it."
)
_LEFT_OUT = frozenset(("members", "keys", "class_weight"))
"""Settings that hold keys of members, or names of columns and classes."""


def write_report(home: Path, party: str, name: str, out: Path | None = None) -> Path:
    """Write the report of a run; its owner alone can read it. Gives where it is."""
    path = home / RUNS / name / REPORT if out is None else out
    write_file(path, render(run_report(read_record(home, party, name))).encode())
    return path


def run_report(record: RunRecord) -> Report:
    """The report of a run as this party may see it."""
    run, card = record.settings, record.card
    text, tone = _answer(record)
    state = "finished" if card is not None else "not finished"
    made = datetime.now(UTC).isoformat(timespec="minutes")
    when = card.created if card is not None else made
    return Report(
        title=f"Run {run.name} at {record.party}",
        answer=text,
        tone=tone,
        about=f"{run.task} task, {len(run.parties)} parties ({', '.join(run.parties)}), labels at {run.label_party}; "
        f"{state}, {when[:16].replace('T', ' ')} UTC.",
        sections=(
            _brought(record),
            _curves(record),
            _calibration(record),
            brought_section(record.brought, record.party, run.label_party),
            _line(record.measures),
            _rows(record.measures),
            _privacy(record),
            _settings(record),
            _repeat(record),
        ),
        footer=f"Made {made} by fdml from this party's own files. It is for {record.party}: figures of held-out rows "
        f"are made of labels.",
    )


def _answer(record: RunRecord) -> tuple[str, Tone]:
    kept = record.kept
    if kept is not None and kept.compared is not None:
        found = kept.compared
        text, tone = answer(f"{found.party} alone", found.metric, Gain(found.gain, found.low, found.high))
        return with_late_fusion(text, tone, _over_late_fusion(record, kept))
    if not record.is_label_party:
        label_party = record.settings.label_party
        return f"What joint training brought is for {label_party}, which has the labels: see the report there.", ""
    if kept is None:
        return "No epoch was evaluated, so there is nothing to say about what joint training brought.", "fair"
    name = metric_of(record.settings.task, record.settings.loss)
    return (
        f"Held-out {TITLES[name]} {figure(kept.test_metric)}; this run was not compared with training alone.",
        "fair" if record.card is None else "",
    )


def _over_late_fusion(record: RunRecord, kept: Evaluated) -> float | None:
    """What joint training brought over what takes none, where that is known of the same rows."""
    fused = record.levels["test_metric"].get("late fusion")
    return None if fused is None or kept.test_metric is None else kept.test_metric - fused


def _figures(record: RunRecord) -> Mapping[str, float | None]:
    return {} if record.kept is None else record.kept.figures


def _calibration(record: RunRecord) -> Section:
    if not record.is_label_party:
        where = Text(f"They are in the report of {record.settings.label_party}.", "note")
        return Section("Calibration and lift", (where,))
    kept = record.kept
    return reliability_section(None if kept is None else kept.reliability, record.settings.task, _figures(record))


def _brought(record: RunRecord) -> Section:
    title, kept = "What joint training brought", record.kept
    if kept is None:
        why = "no epoch was evaluated" if record.is_label_party else f"{record.settings.label_party} has the labels"
        return Section(title, (Text(f"There are no figures here: {why}.", "note"),))
    joint = dict(kept.figures)
    if joint.get("log_loss") != kept.test_loss:  # else it would be there twice
        joint["test_loss"] = kept.test_loss
    blocks: list[Block] = []
    if kept.compared is None:
        blocks.append(figures_table({"joint": joint}, None))
    else:
        alone = f"{kept.compared.party} alone"
        table = figures_table({"joint": joint, alone: kept.compared.figures}, ("joint", alone))
        told = lift_text(joint.get("lift"), kept.compared.figures.get("lift"), alone)
        blocks += [Text(told)] if told else []
        blocks += [table, interval_note(kept.compared.rows, kept.compared.resamples)]
    blocks += meaning_notes(metric_of(record.settings.task, record.settings.loss))
    blocks += scheme_blocks(record.schemes, same_rows=record.same_rows is not None)
    if kept.compared is not None and record.same_rows is None:
        blocks.append(Text(_UNKNOWN_FUSION, "warning"))
    if kept.earlier is not None:
        blocks.append(Text(f"Over an earlier version: {kept.earlier.text}."))
    if kept.chosen:
        blocks.append(Text(f"{CHOSEN[0].upper()}{CHOSEN[1:]}.", "warning"))
    trend = convergence_of([each.train_loss for each in record.epochs])
    if trend is not None and trend.text:
        blocks.append(Text(f"{trend.text[0].upper()}{trend.text[1:]}.", "warning"))
    return Section(title, tuple(blocks))


def _curves(record: RunRecord) -> Section:
    title, epochs, kept = "Training, epoch by epoch", record.epochs, record.kept
    if kept is None:
        return Section(title, (Text("The curves are with the party that has the labels.", "note"),))
    metric = TITLES[metric_of(record.settings.task, record.settings.loss)]
    levels = record.levels
    losses = [_series((each.epoch, each.test_loss) for each in epochs)]
    metrics = [_series((each.epoch, each.test_metric) for each in epochs)]
    charts = (
        epoch_curve("Training loss", [_series((each.epoch, each.train_loss) for each in epochs)]),
        epoch_curve("Held-out loss", losses, levels["test_loss"]),
        epoch_curve(f"Held-out {metric}", metrics, levels["test_metric"]),
        _against_time(epochs),
    )
    note = [Text(record.levels_note, "note")] if record.levels_note else []
    return Section(title, (Charts(charts), *note))


def _series(pairs: Iterator[tuple[int, float | None]]) -> Series:
    return Series("joint", known_points((float(x), y) for x, y in pairs))


def _against_time(epochs: tuple[Evaluated, ...]) -> LineChart:
    points = known_points((each.seconds, each.train_loss) for each in epochs if each.seconds is not None)
    return LineChart("Training loss against time", "seconds of training", (Series("joint", points),))


def _line(measures: Measures) -> Section:
    title = "Lag, waiting and traffic"
    if not measures.starts:
        return Section(title, (Text("Nothing was measured at this party.", "note"),))
    rows = tuple(
        (
            str(number),
            f"{datetime.fromtimestamp(each.began, UTC):%Y-%m-%d %H:%M:%S}",
            f"{each.resumed_at:,}",
            f"{each.steps:,}",
            f"{each.seconds:.1f} s",
            f"{each.waited_seconds:.1f} s ({100 * each.waited_seconds / max(each.seconds, 1e-9):.0f} %)",
            f"{each.bytes_sent / 1e6:.2f} MB",
            f"{each.bytes_received / 1e6:.2f} MB",
        )
        for number, each in enumerate(measures.starts, 1)
    )
    headings = ("start", "began (UTC)", "from step", "steps", "lasted", "waited", "sent", "received")
    steps, late = sum(measures.lag.values()), sum(count for lag, count in measures.lag.items() if lag > 0)
    share = 100 * late / steps if steps else 0.0
    restarts = f"{measures.restarts} restart{'s' * (measures.restarts != 1)}"
    said = f"{restarts}. {steps:,} steps, {share:.1f} % of them with a total that had a stale part."
    blocks: list[Block] = [Text(said), Table(headings, rows, "Every start of this party's process.")]
    if measures.stopped:
        blocks.insert(0, Text(f"Training ended before its last step: {measures.stopped}.", "warning"))
    if any(measures.lag):
        chart = BarChart("Steps by the lag of their total", "lag in steps", lag_bars(measures.lag))
        blocks.append(Charts((chart,)))
    return Section(title, tuple(blocks))


def _rows(measures: Measures) -> Section:
    title, aligned = "Rows", measures.aligned
    if aligned is None:
        return Section(title, (Text("The rows were aligned by an earlier start.", "note"),))
    cells = ((f"{aligned.shared:,}", f"{aligned.train:,}", f"{aligned.held_out:,}"),)
    lost = [Text(f"Of this party's training file, {lost_text(aligned.lost)}.")] if aligned.lost else []
    return Section(title, (Table(("shared by all", "to train on", "held out"), cells), *lost))


def lost_text(lost: Mapping[str, int]) -> str:
    """How many rows of a party's file a run does not use, and why."""
    why = ", ".join(f"{count:,} {reason}" for reason, count in lost.items())
    return f"{sum(lost.values()):,} rows are not used: {why}"


def _privacy(record: RunRecord) -> Section:
    title, statement = f"Privacy: what this run showed of {record.party}", record.statement
    if statement is None:
        return Section(title, (Text("The statement is written when the run ends.", "note"),))
    blocks: list[Block] = [Text(f"{line[0].upper()}{line[1:]}") for line in statement.spent_lines]
    rows = tuple((each.role, each.saw, each.form, each.times, each.protection) for each in statement.exposures)
    blocks.append(Table(("who", "saw", "in which form", "how often", "under which protection"), rows))
    if statement.plain_line:
        blocks.append(Text("The lines were not encrypted (--plain): whoever saw the network saw the same.", "warning"))
    return Section(title, (*blocks, Text(statement.not_covered, "note")))


def _settings(record: RunRecord) -> Section:
    card = record.card
    hashes = [("run hash", run_hash(record.settings).hex())]
    if card is not None:
        hashes += [("version", card.version), ("created", card.created), ("fdml", card.fdml_version)]
    agreed = record.settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    blocks: list[Block] = [Table(("hash or version", "value"), tuple(hashes))]
    blocks.append(Table(("setting", "value"), tuple(flat(agreed)), "What all parties agreed on."))
    if (planned := record.measures.scheduled) is not None:
        names = ("epochs", "batch_size", "blocks", "rows", "value_bits")
        came = tuple((name.replace("_", " "), f"{getattr(planned, name):,}") for name in names)
        blocks.append(Table(("training", "value"), came, 'What every "auto" of the run came to.'))
    if card is not None:
        own = tuple(flat(card.settings.model))
        blocks.append(Table(("setting", "value"), own, "This party's own model; the others do not know it."))
    return Section("Settings and hashes", tuple(blocks))


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings one by one, under their names with dots; what could hold a key, a column or a class is left out."""
    for name, value in values.items():
        if name in _LEFT_OUT or value is None:
            continue
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _repeat(record: RunRecord) -> Section:
    name = record.settings.name
    exact = (
        "Over the same rows it ends with the same models, bit by bit."
        if record.settings.training.staleness == 0
        else "At staleness above 0 timing changes the models a little."
    )
    return Section(
        "How to repeat it",
        (
            Text(
                f"The settings of this run are in {RUNS}/{name}/{SETTINGS}. A run has its name for good, so repeat it "
                f"under a new one, with the run.toml that it began with. {exact}"
            ),
            Text(f"fdml run run.toml --name {name}-again", "command"),
            Text("After a crash the same command as before goes on with this run:"),
            Text(f"fdml join party.toml --run {RUNS}/{name}/{SETTINGS}", "command"),
            Text("This page again:"),
            Text(f"fdml report party.toml --run {name}", "command"),
        ),
    )
