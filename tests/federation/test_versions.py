"""Versions that a party holds, and which one is promoted."""

import contextlib
import json
import threading

import numpy as np
import pytest

from fdml.data.column_features import Number
from fdml.data.encoding import Encoder
from fdml.errors import SettingsError, StateCorrupt
from fdml.federation.run_folder import RunFolder
from fdml.federation.versions import (
    Promotions,
    held_versions,
    promotion_text,
    run_of_version,
    version_named,
    why_not_here,
    with_versions,
)
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.models.registry import model_settings
from fdml.party.settings import PartySettings
from fdml.privacy.ledger import DIRECT, RECORD_LEVEL
from fdml.privacy.statement import Spent
from fdml.settings import GradientGuardSettings, GuardSettings, RunSettings
from fdml.settings.data import DataSettings
from tests.cli.commands import fail, succeed

A, B = "a" * 32, "b" * 32


def run_settings(name="first", **changes):
    return RunSettings(name=name, parties=("ann", "bob"), label_party="ann", **changes)


def finish(home, name, *, scope=None, **changes):
    """Leave the bundle of a finished run in a party's folder; gives its version. Its epsilon has this scope."""
    spent = None if scope is None else [Spent("training rows", 1, 1.0, 1e-5, scope)]
    run = run_settings(name, **changes)
    folder = RunFolder(home, run)
    folder.begin()
    card = BundleCard.of(
        run=run, party="ann", model=model_settings(), data=DataSettings(id="id"), alignment_hash=b"", privacy=spent
    )
    encoder = Encoder((Number("age", None, 40.0, 12.5),))
    Bundle(card=card, parameters={"theta": np.zeros(1)}, encoder=encoder).save(folder.path / "model")
    return card.version


@pytest.fixture
def home(tmp_path):
    (tmp_path / "party.toml").write_text('party = "ann"\nfederation = "federation.toml"\n[data]\npath = "a.csv"\n')
    return tmp_path


def own(**guard):
    return PartySettings(party="ann", federation="federation.toml", guard=GuardSettings(**guard))


def test_nothing_is_promoted_before_the_first(home):
    assert Promotions(home).current is None
    assert Promotions(home).all() == ()


def test_the_last_promotion_counts_and_none_is_overwritten(home):
    promotions = Promotions(home)
    promotions.promote(A, "first", "person", "by hand")
    promotions.promote(B, "second", "rule")
    back = promotions.promote(A, "first", "person", "rolled back")
    assert Promotions(home).current == back
    assert [each.version for each in Promotions(home).all()] == [A, B, A]
    assert [each.reason for each in Promotions(home).all()] == ["by hand", "", "rolled back"]


def test_what_is_promoted_already_is_not_written_again(home):
    first = Promotions(home).promote(A, "first", "rule")
    assert Promotions(home).promote(A, "first", "person", "again") == first
    assert len(Promotions(home).all()) == 1


def test_a_damaged_list_of_promotions_is_told(home):
    for text in ("{", '{"layout": "other", "promotions": []}', '{"layout": "fdml promotions 1", "promotions": [{}]}'):
        (home / "promoted.json").write_text(text)
        with pytest.raises(StateCorrupt, match=r"promoted\.json"):
            Promotions(home).all()


def test_versions_are_found_by_their_name_that_of_their_run_or_as_the_promoted_one(home):
    first, second = finish(home, "first"), finish(home, "second")
    assert first != second
    assert set(held_versions(home)) == {"first", "second"}
    assert run_of_version(home, "ann", second) == "second"
    assert version_named(home, "from", "first") == first
    assert version_named(home, "from", B) == B
    with pytest.raises(SettingsError, match="nothing is promoted"):
        version_named(home, "from", "promoted")
    Promotions(home).promote(second, "second", "person")
    assert version_named(home, "from", "promoted") == second
    with pytest.raises(
        SettingsError, match=r"from is 'third', which is no version and no run .* finished: first, second"
    ):
        version_named(home, "from", "third")
    with pytest.raises(SettingsError, match=f"party 'ann' does not hold version {A}"):
        run_of_version(home, "ann", A)


def test_names_in_a_run_toml_become_versions_and_nothing_else_changes(home):
    first = finish(home, "first")
    Promotions(home).promote(first, "first", "person")
    values = {"name": "next", "from": "first", "evaluation": {"against": "promoted", "holdout": 0.3}}
    assert with_versions(home, values) == {
        "name": "next",
        "from": first,
        "evaluation": {"against": first, "holdout": 0.3},
    }
    assert values["from"] == "first"
    assert with_versions(home, {"name": "next", "from": A}) == {"name": "next", "from": A}


def test_a_run_that_has_begun_keeps_the_version_it_began_with_though_another_is_promoted(home):
    first, second = finish(home, "first"), finish(home, "second")
    Promotions(home).promote(first, "first", "person")
    RunFolder(home, run_settings("next", from_version=first)).begin()
    Promotions(home).promote(second, "second", "person")
    assert with_versions(home, {"name": "next", "from": "promoted"})["from"] == first
    assert with_versions(home, {"name": "later", "from": "promoted"})["from"] == second


def test_why_a_party_cannot_take_part(home):
    first = finish(home, "first")
    assert why_not_here(home, own(), run_settings("next")) == ""
    assert why_not_here(home, own(), run_settings("next", from_version=first)) == ""
    assert A in why_not_here(home, own(), run_settings("next", from_version=A))
    assert A in why_not_here(home, own(), run_settings("next", from_version=first, evaluation={"against": A}))
    noisy = own(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    assert "[guard.training]" in why_not_here(home, noisy, run_settings("next", from_version=first))
    assert why_not_here(home, own(), run_settings("next", evaluation={"against": first})) == ""


def test_noise_in_training_is_compared_only_with_versions_that_had_it(home):
    """Else predictions of the held-out rows would tell of rows that the earlier version has learned without noise."""
    noisy = own(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    for number, scope in enumerate((None, DIRECT)):
        bare = finish(home, f"bare{number}", scope=scope)
        why = why_not_here(home, noisy, run_settings("next", evaluation={"against": bare}))
        assert "was trained without it" in why
        assert "leave evaluation.against out" in why
    covered = finish(home, "covered", scope=RECORD_LEVEL)
    assert why_not_here(home, noisy, run_settings("next", evaluation={"against": covered})) == ""


def test_the_rule_is_told_in_words():
    run = run_settings(from_version=A, promotion={"metric": "auc", "at_least": 0.01})
    assert promotion_text(run) == "auc at least 0.01 better than version aaaaaaaa on the same rows"
    assert promotion_text(run_settings()) == ""


def test_promoting_by_hand_and_listing(home):
    first, second = finish(home, "first"), finish(home, "second")
    party = home / "party.toml"
    assert "nothing was promoted yet" in succeed("runs", "versions", "--party", party)
    assert first in succeed("runs", "promote", "first", "--party", party, "--json", home / "made.json")
    assert json.loads((home / "made.json").read_text())["run"] == "first"
    succeed("runs", "promote", second, "--party", party, "--reason", "better")
    text = succeed("runs", "versions", "--party", party, "--json", home / "all.json")
    assert f"{second}  second" in text
    assert "was promoted by person: better" in text
    found = json.loads((home / "all.json").read_text())
    assert [each["version"] for each in found["promotions"]] == [first, second]
    assert {each["run"] for each in found["versions"]} == {"first", "second"}
    assert "no run that has finished here" in fail(SettingsError, "runs", "promote", "third", "--party", party)


def test_a_rule_promotes_a_run_once_though_its_process_is_started_again(home):
    """Else a process that was killed after it had promoted would take back what came since."""
    promotions = Promotions(home)
    first = promotions.promote(A, "first", "rule")
    promotions.promote(B, "second", "rule")
    assert promotions.promote(A, "first", "rule") == first
    assert promotions.current.version == B
    assert len(promotions.all()) == 2


def test_promotions_that_are_made_at_once_are_all_kept(home, monkeypatch):
    """Each has read the list before the other has written it, unless they take turns."""
    both, read = threading.Barrier(2), Promotions.all

    def slow(self):
        found = read(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return found

    monkeypatch.setattr(Promotions, "all", slow)
    made = ((A, "first", "rule"), (B, "second", "rule"))
    threads = [threading.Thread(target=Promotions(home).promote, args=each) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.run for each in read(Promotions(home))) == ["first", "second"]
