"""A party that joins a trained model: at first it alone learns, beside parts that stay as they are."""

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.events import ComparedVersion
from fdml.federation.check import check
from fdml.federation.interactive import predict
from fdml.federation.join import join
from fdml.federation.versions import held_versions, why_not_here
from fdml.models.bundle import Bundle
from fdml.party.settings import read_party
from fdml.settings.federation import read_run
from tests.federation.folders import serving, together

OLD, NEW, ROWS = ("ann", "bob"), "cyd", 800


def write_federation(home, *parties):
    listed = ", ".join(f'"{party}"' for party in parties)
    (home / "federation.toml").write_text(f'name = "small"\nserver = "127.0.0.1:0"\nparties = [{listed}]\n')


def write_parties(home):
    """Files of three parties whose features count alike; the federation has two of them.

    Which rows are held out differs from test to test: with 800 a gain shows whichever they are.
    """
    random = np.random.default_rng(5)
    X = random.normal(size=(3, ROWS))
    labels = np.where(X.sum(axis=0) + 0.3 * random.normal(size=ROWS) > 0, "yes", "no")
    write_federation(home, *OLD)
    for party, x in zip((*OLD, NEW), X, strict=True):
        (home / party).mkdir()
        label = 'label = "label"\n' if party == "ann" else ""
        lines = [f"{at},{x[at]}" + (f",{labels[at]}" if label else "") for at in random.permutation(ROWS)]
        (home / party / "data.csv").write_text("\n".join(["id,x" + (",label" if label else ""), *lines]) + "\n")
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\nthreads = 1\n[align]\nmax_rows = 1000\n[data]\n'
            f'path = "data.csv"\nid = "id"\n{label}'
        )


def write_run(home, name, text="", epochs=4, training=""):
    path = home / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nlabel_party = "ann"\n{text}\n[training]\nepochs = {epochs}\nbatch_size = 10\n'
        f"batches_per_block = 4\nvalue_bits = 64\ncheckpoint_seconds = 0.0\n{training}\n"
    )
    return path


def run(home, path, *parties, typed=None, **options):
    """A whole run; gives the label party's events. `typed` is the run.toml at the parties, where it is another."""
    events = []

    def trained_at(party):
        listener = events.append if party == "ann" else lambda _: None
        own = home / party / "party.toml"
        return join(own, typed or path, plain=True, server=server.address, on_event=listener, **options)

    with serving(path) as server:
        together(*(lambda party=party: trained_at(party) for party in parties))
    assert server.error is None
    return events


def bundle(home, name, party):
    return Bundle.load(home / party / "runs" / name / "model")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two parties have trained a model, and a third is in the federation since."""
    home = tmp_path_factory.mktemp("new-parties")
    write_parties(home)
    run(home, write_run(home, "first"), *OLD)
    write_federation(home, *OLD, NEW)
    return home, held_versions(home / "ann")["first"].version


@pytest.mark.slow
def test_a_new_party_trains_its_part_alone_and_brings_a_gain(trained):
    home, version = trained
    text = f'from = "{version}"\nnew_parties = ["{NEW}"]'
    path = write_run(home, "second", text, epochs=6, training="frozen_epochs = 6\nlearning_rate = 0.3")
    events = run(home, path, *OLD, NEW)
    for party in OLD:
        before, after = (bundle(home, name, party) for name in ("first", "second"))
        assert before.encoder == after.encoder
        assert np.array_equal(before.parameters["theta"], after.parameters["theta"])
    assert np.abs(bundle(home, "second", NEW).parameters["theta"]).max() > 0.3
    (found,) = [event for event in events if isinstance(event, ComparedVersion)]
    assert (found.version, found.run) == (version, "first")
    assert found.gain > 0.02, "the earlier version's score of the held-out rows is the sum of two parts"
    assert "exactly this party's" in (home / NEW / "runs" / "second" / "privacy.md").read_text()
    table = predict(home / "federation.toml", ["3", "4"], run="second")
    assert table["answered"].to_pylist() == ["ann,bob,cyd"] * 2
    alike = predict(home / "federation.toml", ["3", "4"], run="first")
    assert alike["answered"].to_pylist() == ["ann,bob"] * 2, "the version of two can be asked as before"


@pytest.mark.slow
def test_all_learn_once_the_frozen_epochs_are_over_and_join_takes_name_and_version(trained):
    home, version = trained
    common = f'new_parties = ["{NEW}"]'
    path = write_run(home, "third", f'from = "{version}"\n{common}', epochs=2, training="frozen_epochs = 1")
    typed = write_run(home, "template", common, epochs=2, training="frozen_epochs = 1")
    with pytest.raises(SettingsError, match="new_parties are new to an earlier version"):
        join(home / NEW / "party.toml", typed, plain=True)
    run(home, path, *OLD, NEW, typed=typed, name="third", begin_with=version)
    for party in OLD:
        before, after = (bundle(home, name, party).parameters["theta"] for name in ("first", "third"))
        assert not np.array_equal(before, after)
    assert not (home / "ann" / "runs" / "template").exists()


@pytest.mark.slow
def test_a_run_that_is_trained_anew_is_compared_with_the_version_of_fewer(trained):
    home, version = trained
    path = write_run(home, "anew", f'new_parties = ["{NEW}"]\nevaluation.against = "{version}"', epochs=6)
    (found,) = [event for event in run(home, path, *OLD, NEW) if isinstance(event, ComparedVersion)]
    assert found.gain > 0.02


@pytest.mark.parametrize(
    ("party", "text", "words"),
    [
        ("bob", "", "was trained without 'cyd'; name it in new_parties"),
        (NEW, "", "does not hold version"),
        (NEW, "", "a party that was not in it is named in new_parties"),
        ("bob", 'new_parties = ["bob", "cyd"]', "new_parties names 'bob', which is a party of version"),
        ("ann", 'new_parties = ["bob", "cyd"]', "new_parties names 'bob', which is a party of version"),
    ],
)
def test_who_is_new_to_a_version_must_be_told_right(trained, party, text, words):
    home, version = trained
    path = write_run(home, "wrong", f'from = "{version}"\n{text}')
    settings = read_run(path, home / "federation.toml")
    own = home / party / "party.toml"
    assert words in why_not_here(home / party, read_party(own), settings)
    assert any(words in fault for fault in check(own, path, plain=True).faults)
    with pytest.raises(SettingsError, match=words):
        join(own, path, plain=True, server="127.0.0.1:1")


def test_a_version_is_not_gone_on_from_without_one_of_its_parties(trained, tmp_path):
    home, version = trained
    settings = read_run(write_run(home, "fewer", f'from = "{version}"'), home / "federation.toml")
    fewer = settings.model_copy(update={"parties": ("ann", "cyd"), "new_parties": ("cyd",)})
    text = why_not_here(home / "ann", read_party(home / "ann" / "party.toml"), fewer)
    assert "has a part of 'bob', which is no party of this run" in text


def test_noise_in_the_training_of_a_new_party_is_allowed_as_it_begins_with_nothing(trained):
    home, version = trained
    own = home / NEW / "party.toml"
    noisy = home / NEW / "noisy.toml"
    noisy.write_text(own.read_text() + "[guard.training]\nclip = 1.0\nsigma = 1.0\n")
    settings = read_run(
        write_run(home, "noisy", f'from = "{version}"\nnew_parties = ["{NEW}"]'), home / "federation.toml"
    )
    assert why_not_here(home / NEW, read_party(noisy), settings) == ""
