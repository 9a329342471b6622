"""What an alignment belongs to: the same for all runs that match rows in the same way, another for all else."""

import pytest

from fdml.protocol.alignment_identity import alignment_hash, federation_hash
from fdml.settings import RunSettings, TrainingSettings

RUN = RunSettings(name="first", federation="shop", parties=("ann", "bob"), label_party="ann")
KEYED = RUN.model_copy(update={"keys": {"bob": ("account",)}})


def changed(run, **values):
    return run.model_copy(update=values)


@pytest.mark.parametrize(
    "values",
    [{"name": "second"}, {"training": TrainingSettings(epochs=3)}, {"label_party": "bob"}],
    ids=["name", "training", "label party"],
)
def test_runs_that_match_rows_alike_share_their_alignment(values):
    assert alignment_hash(changed(RUN, **values)) == alignment_hash(RUN)
    assert federation_hash(changed(RUN, **values)) == federation_hash(RUN)


@pytest.mark.parametrize(
    "values",
    [
        {"federation": "mill"},
        {"parties": ("bob", "ann")},
        {"parties": ("ann", "bob", "cid")},
        {"members": {"ann": "sha256:" + "0" * 64}},
    ],
    ids=["federation", "order", "one more party", "keys of members"],
)
def test_another_federation_has_another_alignment(values):
    assert federation_hash(changed(RUN, **values)) != federation_hash(RUN)
    assert alignment_hash(changed(RUN, **values)) != alignment_hash(RUN)


def test_another_way_to_match_is_another_alignment_of_the_same_federation():
    other = changed(RUN, align="ecdh")
    assert alignment_hash(other) != alignment_hash(RUN)
    assert federation_hash(other) == federation_hash(RUN)


@pytest.mark.parametrize(
    "values",
    [{"label_party": "bob"}, {"keys": {"bob": ("account", "branch")}}, {"unmatched": "keep"}, {"keys": {}}],
    ids=["label party", "more columns", "unmatched", "no keys"],
)
def test_where_rows_point_to_others_it_matters_from_whom_and_by_what(values):
    assert alignment_hash(changed(KEYED, **values)) != alignment_hash(KEYED)


def test_hashes_have_32_bytes_and_differ_from_each_other():
    assert len(alignment_hash(RUN)) == len(federation_hash(RUN)) == 32
    assert alignment_hash(RUN) != federation_hash(RUN)
