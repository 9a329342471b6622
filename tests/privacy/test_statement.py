"""What a party's statement says of a blind server, by the masks that the run has."""

import pytest

from fdml.privacy.guard import NO_NOISE
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.privacy.statement import Statement, state_of
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.schedule import schedule_of
from fdml.settings import GuardSettings, RunSettings


def statement(*which, **options):
    return stated(*which, **options).as_text()


def stated(
    server="blind",
    staleness=0,
    parties=("ann", "bob", "cyd"),
    party="bob",
    labels="shared",
    absence=0.0,
    frozen=0,
    mechanism=NO_NOISE,
    joint="sum",
    server_address="127.0.0.1:7443",
    **joined,
):
    run = RunSettings(
        **joined,
        server=server_address,
        parties=parties,
        label_party="ann",
        training={"staleness": staleness, "epochs": 2, "absence": absence, "frozen_epochs": frozen, "joint": joint},
        privacy={"server": server, "labels": labels},
    )
    ledger, schedule = (
        Ledger(mechanism, None, 1e-5, None),
        schedule_of(100, agreed_training(run.training, 100, len(parties))),
    )
    return state_of(run, party, GuardSettings(), ledger, schedule, 2, plain=False)


@pytest.mark.parametrize(
    ("options", "masks", "together"),
    [
        ({}, "keys of each two parties, which cancel", "the server and all other parties together"),
        ({"parties": ("ann", "bob")}, "keys of each two parties", "the server and the other party together"),
        ({"staleness": 1}, "masks (AES-CTR under the group key)", "any party together, which can take off all masks"),
    ],
)
def test_it_says_which_masks_there_were_and_who_together_could_take_them_off(options, masks, together):
    text = statement(**options)
    assert masks in text
    assert together in text


def test_a_plain_server_saw_predictions_as_they_are():
    text = statement("plain")
    assert "each party's own, plain" in text
    assert "AES-CTR" not in text


def test_absence_says_that_single_predictions_are_seen():
    assert "the sum without it: exactly this party's, to ann" in statement(absence=0.2)
    assert "the sum without it: exactly this party's |" in statement(absence=0.2, party="ann")
    four = statement(absence=0.2, parties=("ann", "bob", "cyd", "dan"))
    assert "trained without a party, the sum without it |" in four
    assert "without a party" not in statement()


# Finding 30: it named neither metrics nor the model's hash, nor what a plain server predicts.


@pytest.mark.parametrize("party", ["ann", "bob"])
@pytest.mark.parametrize("server", ["plain", "blind"])
def test_every_party_is_told_of_the_mac_of_its_model(party, server):
    assert "a MAC under a secret that stays with this party" in statement(server, party=party)


def test_the_label_party_is_told_who_saw_its_metrics():
    text = statement(party="ann")
    assert "| every other party | losses and metric of every evaluated epoch | exact, sealed from the server" in text
    assert "2 evaluations" in text
    assert "losses and metric" not in statement(party="bob"), "they are of the label party's labels"


def test_metrics_of_private_labels_were_shown_to_nobody():
    text = statement(party="ann", labels="private")
    assert "the number of the epoch; the figures stay with this party" in text
    assert "exact, sealed" not in text


def test_the_label_party_of_a_ranking_is_told_that_gradients_hint_at_groups():
    hint = "hints at which rows are in one group"
    assert hint in statement(party="ann", labels="private", loss="pairwise")
    assert hint not in statement(party="ann", labels="private")
    assert hint not in statement(party="bob", labels="private", loss="pairwise")


def test_the_label_party_is_told_that_a_plain_server_predicts_its_labels():
    """It has the total: test AUC .90 on a9a. A blind one has nothing to predict them with."""
    for labels in ("shared", "private"):
        assert "as well as the model predicts them" in statement("plain", party="ann", labels=labels)
    assert "as well as the model predicts them" not in statement("blind", party="ann")
    assert "as well as the model predicts them" not in statement("plain", party="bob")


def test_group_sizes_are_named_to_the_label_party():
    text = statement(party="ann", keys={"bob": ["tail"]})
    assert "| bob | which of its rows the run has, and which of them, and how many, have the same key" in text
    assert "| cyd | which of its rows the run has | a pointer to its own row" in text
    assert "sealed from the server and all others" in text
    assert "| server | how many different keys lead to each other party, and how many of them that party holds" in text
    assert "pointer" not in statement(party="ann"), "all parties hold the same ids"


def test_a_party_whose_rows_repeat_is_told_who_sees_that():
    assert "have the same prediction | equal values" in statement(party="bob", keys={"bob": ["tail"]})
    assert "equal values" not in statement(party="cyd", keys={"bob": ["tail"]})


def test_a_party_that_may_lack_rows_is_told_who_sees_that():
    text = statement(party="bob", unmatched="keep")
    assert "| whoever sees its predictions | which rows of the run it does not hold | exact zeros |" in text
    assert "which rows of the run it does not hold | a pointer" in statement(party="ann", unmatched="keep")
    assert "exact zeros" not in statement(party="bob", keys={"bob": ["tail"]})


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_every_party_is_told_that_a_promotion_says_yes_or_no(party):
    told = "whether the model is better than an earlier version by so much as [promotion] says"
    text = statement(party=party, promotion={"at_least": 0.01}, from_version="a" * 32)
    assert told in text
    assert "yes or no, sealed from the server" in text
    assert told not in statement(party=party, from_version="a" * 32)


def test_a_new_party_is_told_that_sums_do_not_hide_it_while_the_others_are_frozen():
    told = "while the parties of the version are frozen, what changes in the sum is exactly"
    new = {"from_version": "a" * 32, "frozen": 2}
    assert f"{told} this party's" in statement(party="cyd", new_parties=["cyd"], **new)
    assert f"{told} that of the new parties together" in statement(party="cyd", new_parties=["bob", "cyd"], **new)
    assert told not in statement(party="bob", new_parties=["cyd"], **new)
    assert told not in statement(party="cyd", new_parties=["cyd"], from_version="a" * 32)


def test_rows_that_are_kept_without_a_party_hide_nobody_in_a_sum():
    keep = {"unmatched": "keep"}
    assert "of rows that no other party but ann holds, exactly this party's, to ann |" in statement(**keep)
    assert "of rows that one other party alone holds, exactly this party's, to that one |" in statement(
        party="ann", **keep
    )
    assert "party but ann holds" not in statement()
    assert "party but ann holds" not in statement(parties=("ann", "bob"), **keep), "of two it is so in any case"


def test_a_version_without_the_new_parties_is_a_sum_of_fewer():
    new = {"from_version": "a" * 32, "new_parties": ["cyd"]}
    told = "of the version compared with, the sum without cyd"
    assert f"{told}: exactly this party's, to ann |" in statement(**new)
    assert told not in statement(party="ann", **new), "only the label party is sent sums of held-out rows"
    assert told not in statement(party="cyd", **new)
    four = statement(parties=("ann", "bob", "cyd", "dan"), **new)
    assert f"{told} |" in four


def test_every_party_is_told_who_may_ask_for_its_predictions_after_the_run():
    text = statement()
    assert "| ann | its predictions of any row of its files, shared or not, and which ids it holds | the sum of" in text
    assert "counted in the ledger as 'run (predictions)', not above" in text
    alone = statement(serving={"absent": "calibrated"})
    assert "which ids it holds | exactly this party's, where it is asked alone |" in alone
    assert "which ids it holds | exactly this party's |" in statement(parties=("ann", "bob"))
    kept = statement(unmatched="keep")
    assert "of rows that it alone of them holds, exactly this party's |" in kept
    assert "which ids it holds" not in statement(party="ann"), "nobody else may ask"


def test_whoever_asks_is_told_what_its_questions_show():
    assert "| every other party | which rows it asks for, and when |" in statement(party="ann")
    assert "and that it is unsure of them |" in statement(party="ann", serving={"ask": "unsure"})
    assert "which rows it asks for" not in statement(party="bob")


def test_the_label_party_is_told_that_askers_learn_how_a_score_is_read():
    told = "| bob | how a score is read: the names of its classes, or mean and spread of its targets |"
    assert told in statement(party="ann", serving={"may_ask": ["ann", "bob"]})
    assert told not in statement(party="ann")
    assert told not in statement(party="cyd", serving={"may_ask": ["ann", "bob"]})


def test_how_much_noise_there_was_is_told_to_all():
    told = "| server and every other party | how much noise it adds | its variance |"
    assert told in statement(mechanism=Mechanism("gaussian", 1.0, 2.0))
    assert told not in statement()


def test_vectors_are_named():
    assert "its predictions of every row, each with a vector of 8 numbers |" in statement(joint="fm")
    assert "vector" not in statement()


def test_a_written_statement_is_read_again(tmp_path):
    found = stated()
    found.write(tmp_path)
    assert Statement.read(tmp_path) == found
    assert found.spent_lines[0].startswith("training rows: released ")
    assert found.not_covered in found.as_text()


@pytest.mark.parametrize("content", [None, "", "[]", '{"spent": []}', '{"spent": [], "exposures": [{"who": "x"}]}'])
def test_what_is_no_statement_reads_as_none(tmp_path, content):
    if content is not None:
        (tmp_path / "privacy.json").write_text(content)
    assert Statement.read(tmp_path) is None


def test_a_host_is_named_with_what_it_sees_more_than_other_parties():
    hosted = statement(host="cyd", align="ecdh")
    assert "server, inside the process of cyd" in hosted
    assert "cyd, as host | its predictions of held-out rows | the sum of all 3" in hosted
    of_two = statement(host="bob", align="ecdh", parties=("ann", "bob"), party="ann")
    assert "bob, as host | its predictions of held-out rows | the sum of two: less its own part" in of_two


def test_without_a_server_every_other_party_has_what_this_one_sends():
    addresses = dict.fromkeys(("ann", "bob", "cyd"), "127.0.0.1:7443")
    found = statement(align="ecdh", **{"server_address": "none", "addresses": addresses})
    assert "every other party, as there is no server | its predictions of every row | under masks" in found
    assert "all other parties together, which see the sum less their own parts" in found
    assert "as host" not in found


@pytest.mark.parametrize("host", ["ann", "bob", None])
def test_the_label_party_and_the_party_itself_see_nothing_more_as_host(host):
    assert ", as host" not in statement(host=host, align="ecdh")
