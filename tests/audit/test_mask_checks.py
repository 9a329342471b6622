"""A blind server sees noise under real masks; broken masks, and none, are noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.mask_checks import attacks
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.rows import as_rows
from fdml.models.objective import objective_for
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger
from fdml.privacy.masks import Masks
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.messages import Gradient, HeldOutPredictions, Push, Release
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings

PARTIES = ("ann", "bob")
SECRET = b"a secret of thirty-two bytes ..."
MASK_ID = 77


def real(party, step, codes):
    return Masks(SECRET, PARTIES, party, MASK_ID).add("push", step, codes)


def none(party, step, codes):
    return codes


def short_period(party, step, codes):
    return codes + np.resize(np.random.default_rng(3).integers(-(2**63), 2**63, 16), codes.shape)


def the_same_each_step(party, step, codes):
    return real(party, 0, codes)


def the_same_at_both(party, step, codes):
    return real("ann", step, codes)


def too_small(party, step, codes):
    """Hides fractions only."""
    return codes + np.random.default_rng([step, party == "ann"]).integers(-(2**31), 2**31, codes.shape)


def record(mask=real, *, rows=2000, epochs=3, server="blind", width=1):
    chance = np.random.default_rng(5)
    schedule = schedule_for(rows, 50, 8, 1, epochs, 7)
    pushes, plain = {party: {} for party in PARTIES}, {party: {} for party in PARTIES}
    for step in range(schedule.steps):
        for party in PARTIES:
            values = chance.normal(size=(schedule.visit(step).size, width))
            codes = encode(values)
            plain[party][step] = decode(codes)
            pushes[party][step] = Push(step, Release(mask(party, step, codes), MASK_ID))
    features = {party: as_rows(chance.normal(size=(rows, 2))) for party in PARTIES}
    return Recording(
        run=RunSettings(parties=PARTIES, label_party="ann", privacy={"server": server}),
        schedule=schedule,
        objective=objective_for("logistic" if width == 1 else "softmax", max(2, width)),
        echo=2.0,
        pushes=pushes,
        plain=plain,
        held_out={party: {} for party in PARTIES},
        gradients={},
        mechanisms={},
        truth=GroundTruth(features, np.zeros(rows), np.zeros(rows)),
    )


def blind(recording):
    """The outcomes of A8 by what was looked at."""
    return {each.title.removeprefix("blind transcript: "): each.outcome for each in attacks["A8"](recording)}


@pytest.mark.parametrize("width", [1, 3])
def test_real_masks_look_like_noise(width):
    assert blind(record(width=width)) == {"bytes": "PASS", "correlation": "PASS", "equal blocks": "PASS"}


@pytest.mark.parametrize(
    ("mask", "noticed"),
    [
        (none, {"bytes", "correlation", "equal blocks"}),
        (short_period, {"bytes", "equal blocks"}),
        (too_small, {"bytes", "correlation"}),
        (the_same_each_step, {"equal blocks"}),
        (the_same_at_both, {"equal blocks"}),
    ],
)
def test_broken_masks_are_noticed(mask, noticed):
    assert noticed <= {what for what, outcome in blind(record(mask)).items() if outcome == "FAIL"}


def test_a_message_that_says_it_has_no_mask_fails_whatever_it_looks_like():
    recording = record()
    bare = recording.pushes["bob"][0].release.values
    pushes = {**recording.pushes, "bob": {**recording.pushes["bob"], 0: Push(0, Release(bare))}}
    assert blind(replace(recording, pushes=pushes))["bytes"] == "FAIL"


def test_few_values_are_tested_by_four_standard_deviations_and_the_reason_says_so():
    few, many = (attacks["A8"](record(rows=rows, epochs=1))[1] for rows in (400, 160_000))
    assert "4 standard deviations of only 400 values" in few.reason
    assert "0.2000" in few.bar
    assert "0.0100" in many.bar
    assert {few.outcome, many.outcome} == {"PASS"}


def test_too_few_bytes_say_nothing_and_the_reason_says_so():
    result = attacks["A8"](record(rows=50, epochs=1))[0]
    assert "too few" in result.reason


def test_what_is_sent_again_as_it_was_is_no_equal_block():
    recording = record()
    sent = [(party, push) for party in PARTIES for push in recording.pushes[party].values()]
    assert set(blind(replace(recording, repeated=(*sent, *sent))).values()) == {"PASS"}


def test_held_out_predictions_in_plain_form_are_noticed():
    recording = record()
    sent = [(party, push) for party in PARTIES for push in recording.pushes[party].values()]
    held_out = HeldOutPredictions(1, Release(encode(np.random.default_rng(1).normal(size=2000)), MASK_ID))
    assert blind(replace(recording, repeated=(*sent, ("ann", held_out))))["bytes"] == "FAIL"


def test_a_plain_server_sees_by_agreement():
    (result,) = attacks["A8"](record(none, server="plain"))
    assert result.outcome == "NOT APPLICABLE"
    assert "plain" in result.reason


@pytest.mark.parametrize(("is_masked", "outcome"), [(True, "PASS"), (False, "FAIL")])
def test_gradients_are_hidden_even_from_a_plain_server(is_masked, outcome):
    recording = record(none, server="plain")
    chance, masks = np.random.default_rng(9), Masks(SECRET, PARTIES, "ann", MASK_ID)
    codes = {step: encode(chance.uniform(-1, 1, size=(400, 1))) for step in range(10)}
    messages = [
        Gradient(step, Release(masks.add("gradient", step, each) if is_masked else each, MASK_ID))
        for step, each in codes.items()
    ]
    gradients = {step: decode(each) for step, each in codes.items()}
    sent = tuple(("ann", message) for message in messages)
    found = blind(replace(recording, gradients=gradients, repeated=sent))
    assert found == dict.fromkeys(("bytes", "correlation", "equal blocks"), outcome)


def guard(mask_id, *, is_blind=True):
    masks = Masks(SECRET, PARTIES, "ann", mask_id)
    return Guard(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, 1e-5, None), masks=masks, blind=is_blind)


def sent(*messages):
    return replace(record(none, rows=100), repeated=tuple(("ann", message) for message in messages))


def reuse(*messages):
    (result,) = attacks["A9"](sent(*messages))
    return result


VALUES = np.array([[0.5], [1.5]])


def test_a_party_that_starts_again_under_its_old_mask_id_with_other_values_is_noticed():
    first, second = (guard(MASK_ID).push(3, 0, values)[0] for values in (VALUES, VALUES + 1))
    result = reuse(first, second)
    assert result.outcome == "FAIL"
    assert result.score == 1
    assert "push 3 of party 'ann'" in result.reason
    assert decode(second.release.values - first.release.values).tolist() == [[1.0], [1.0]], "the server knows this now"


def test_a_party_that_starts_again_under_a_new_mask_id_is_not():
    first, second = (
        guard(mask_id).push(3, 0, values)[0] for mask_id, values in ((MASK_ID, VALUES), (MASK_ID + 1, VALUES + 1))
    )
    result = reuse(first, second)
    assert result.outcome == "PASS"
    assert result.details["starts"] == 2


def test_the_same_message_again_is_no_second_use():
    push, _ = guard(MASK_ID).push(3, 0, VALUES)
    result = reuse(push, push, guard(MASK_ID).push(4, 0, VALUES)[0])
    assert result.outcome == "PASS"
    assert result.details["resent"] == 1
    assert result.details["masks"] == 2


def test_every_purpose_has_masks_of_its_own():
    push, held_out, gradient = (
        guard(MASK_ID).push(3, 0, VALUES)[0],
        guard(MASK_ID).held_out(3, VALUES),
        guard(MASK_ID).gradient(3, VALUES),
    )
    result = reuse(push, held_out, gradient)
    assert result.outcome == "PASS"
    assert result.details["masks"] == 3


def test_gradients_are_under_masks_even_where_the_server_is_plain():
    first, second = (guard(MASK_ID, is_blind=False).gradient(3, values) for values in (VALUES, VALUES + 1))
    assert isinstance(first, Gradient)
    assert reuse(first).outcome == "PASS"
    assert reuse(first, second).outcome == "FAIL"


def test_two_parties_with_one_mask_id_have_different_masks():
    push, _ = guard(MASK_ID).push(3, 0, VALUES)
    recording = replace(sent(), repeated=(("ann", push), ("bob", Push(3, Release(push.release.values + 1, MASK_ID)))))
    (result,) = attacks["A9"](recording)
    assert result.outcome == "PASS"


def test_where_nothing_is_masked_nothing_can_be_reused():
    result = reuse(guard(MASK_ID, is_blind=False).push(3, 0, VALUES)[0])
    assert result.outcome == "NOT APPLICABLE"
