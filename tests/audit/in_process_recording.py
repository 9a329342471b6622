"""Recordings of runs in this process, for the attacks."""

import numpy as np

from fdml.align.party_ids import PartyIds
from fdml.audit.load_recording import all_pairwise_masks, copied_features, further_run, label_answers
from fdml.audit.message_log import MessageLog, any_masks
from fdml.audit.recording import GroundTruth
from fdml.experiments.in_memory import KEY, RowsInMemory, run_of
from fdml.experiments.in_process import train_in_process
from fdml.party.alignment import RowIds
from fdml.party.label_flips import LabelFlips, training_ids
from fdml.privacy.build_guard import mechanism_of, seeded_key
from fdml.protocol.alignment_messages import RowCounts


def record_in_process(plan, sample, held_out=None, *, privacy=None):
    """Train all parties of a plan in turns, in this thread, and record all that they send."""
    plan = plan.resolved(len(sample), sample.parts)
    run = run_of(plan, privacy)
    rows = RowIds(PartyIds(by_position=RowCounts(len(sample), None)), np.arange(len(sample)), np.arange(0))
    flips = LabelFlips(seeded_key(plan.training.seed, plan.label_party))
    ids = training_ids(rows, rows.train_rows)
    answers = label_answers(run.privacy, sample.labels, flips, plan.classes, None, ids)
    shared = {name: RowsInMemory(name, sample, held_out, plan.classes).shared(run.parties) for name in run.parties}
    log = MessageLog(run, any_masks(KEY.derive("masks"), run.parties), all_pairwise_masks(run, shared))
    result = train_in_process(plan, sample, held_out=held_out, privacy=run.privacy, in_turns=True, tap=log.take)
    truth = GroundTruth(
        features=copied_features(sample.parts),
        labels=sample.labels,
        shown_labels=answers(rows.train_rows),
        further_run=further_run(answers, len(sample)),
        held_out={} if held_out is None else copied_features(held_out.parts),
        held_out_labels=np.zeros(0) if held_out is None else held_out.labels,
        models=result.models,
        weights=sample.weights,
    )
    schedule = plan.schedule(len(sample))
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in run.parties}
    return log.recording(schedule, plan.objective, plan.echo, mechanisms, truth, plan.models, plan.training)
