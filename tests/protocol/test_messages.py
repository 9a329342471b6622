import dataclasses
from typing import get_args

import numpy as np
import pytest

from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import FromParty, FromServer, Labels, Release, Reply, Total, label_type, prediction_width


def total(step, *pushed_at):
    return Total(step, np.zeros((1, 1), np.int64), pushed_at)


def test_the_lag_is_that_of_the_oldest_part():
    assert total(9, 9, 9).lag == 0
    assert total(9, 9, 4, 8).lag == 5


def test_a_part_that_never_came_counts_from_before_step_0():
    assert total(2, 2, -1).lag == 3


@pytest.mark.parametrize(
    ("task", "classes", "width"),
    [
        ("binary", 2, 1),
        ("multiclass", 2, 1),
        ("multiclass", 256, 1),
        ("multiclass", 257, 2),
        ("multiclass", 2**16, 2),
        ("regression", 0, 8),
    ],
)
def test_a_label_takes_as_few_bytes_as_its_task_allows_and_a_weight_eight(task, classes, width):
    assert label_type(task, classes).itemsize == width
    if task != "regression":
        assert np.iinfo(label_type(task, classes)).max >= classes - 1
    sealing = Labels.sealed_size(task, classes, 0)
    assert Labels.sealed_size(task, classes, 1000) == 1000 * width + sealing
    assert Labels.sealed_size(task, classes, 1000, weighted=True) == 1000 * (width + 8) + sealing


FIELDS = {
    "Release": {"values": "Codes", "mask_id": "int", "variance": "float", "bits": "int", "scale": "int"},
    "Hello": {
        "run_hash": "bytes",
        "alignment_hash": "bytes",
        "rows": "int",
        "held_out": "int",
        "incarnation": "int",
        "done": "int",
        "line": "int",
        "protocol": "int",
    },
    "Labels": {"classes": "int", "sealed": "bytes", "piece": "Piece | None"},
    "Push": {"step": "int", "release": "Release", "seen": "bytes"},
    "Gradient": {"step": "int", "release": "Release"},
    "Stop": {"step": "int", "no_gain": "bool"},
    "Checkpointed": {"step": "int"},
    "HeldOutPredictions": {"epoch": "int", "release": "Release", "piece": "Piece | None"},
    "SealedMetrics": {"epoch": "int", "sealed": "bytes"},
    "BestEpoch": {"sealed": "bytes"},
    "Finished": {"model_mac": "bytes"},
    "Welcome": {"pushed": "int", "evaluated": "tuple[int, ...]", "labels": "int", "labels_digest": "bytes"},
    "Ack": {"count": "int"},
    "Total": {
        "step": "int",
        "values": "Codes",
        "pushed_at": "tuple[int, ...]",
        "mask_ids": "tuple[int, ...]",
        "variance": "float",
        "bits": "int",
        "parts": "bytes",
    },
    "HeldOutTotal": {
        "epoch": "int",
        "values": "Codes",
        "mask_ids": "tuple[int, ...]",
        "variance": "float",
        "piece": "Piece | None",
    },
    "Stopped": {"party": "str", "step": "int", "no_gain": "bool"},
    "Waiting": {"parties": "tuple[WaitedFor, ...]"},
    "Reply": {"to": "str", "message": "FromServer"},
}


def test_no_message_has_a_place_for_more_than_predictions_labels_and_metrics():
    """Features and parameters have no type to travel in; nobody names himself in a message."""
    kinds = {*get_args(FromParty), *get_args(FromServer), Release, Reply}
    assert {kind.__name__: {field.name: field.type for field in dataclasses.fields(kind)} for kind in kinds} == FIELDS


def test_the_bytes_on_the_wire_have_a_place_for_no_more_either():
    for envelope in (pb.FromParty, pb.FromServer):
        for content in envelope.DESCRIPTOR.fields:
            ours = set(FIELDS[content.message_type.name])
            theirs = {{"codes": "values"}.get(field.name, field.name) for field in content.message_type.fields}
            if "release" in ours:
                ours = ours - {"release"} | set(FIELDS["Release"])
            if content.message_type.name == "Waiting":
                ours |= {"silent_seconds", "refusals"}  # of each party, beside its name
            elif content.message_type.name == "Gradient":
                ours -= {"variance", "bits", "scale"}  # of exact gradients, always 0
            elif content.message_type.name == "HeldOutPredictions":
                ours = ours - {"bits", "scale"} | {"width"}  # always whole
            elif "values" in ours:
                ours |= {"width"} | ({"count"} if "bits" in ours else set())  # type or number of the values
            assert theirs == ours, content.message_type.name


def test_messages_cannot_be_changed_on_their_way():
    with pytest.raises(dataclasses.FrozenInstanceError):
        total(1, 1).step = 2


@pytest.mark.parametrize(
    ("task", "classes", "width"), [("binary", 2, 1), ("regression", 0, 1), ("multiclass", 2, 2), ("multiclass", 10, 10)]
)
def test_only_a_prediction_of_many_classes_has_a_number_for_each(task, classes, width):
    assert prediction_width(task, classes) == width


def test_a_release_says_how_far_its_values_may_be_trusted():
    exact, noisy = Release(np.zeros(3, np.int64)), Release(np.zeros(3, np.int64), 7, 0.25)
    assert (exact.mask_id, exact.variance) == (0, 0.0)
    assert (noisy.mask_id, noisy.variance) == (7, 0.25)
