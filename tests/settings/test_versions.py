"""What a run that goes on from an earlier version may say of its parties."""

import pytest

from fdml.errors import SettingsError
from fdml.settings.versions import check_frozen, check_new_parties, check_same_parties

PARTIES = ("store", "browser", "bank")
VERSION = "0123456789abcdef" * 2


@pytest.mark.parametrize(("epochs", "of", "new"), [(0, 5, False), (0, "auto", True), (5, 5, True), (3, "auto", True)])
def test_frozen_epochs_are_among_those_of_the_run(epochs, of, new):
    check_frozen(epochs, of=of, new=new)


def test_frozen_epochs_need_new_parties():
    with pytest.raises(SettingsError, match="frozen_epochs = 2 lets only new_parties learn"):
        check_frozen(2, of=5, new=False)


def test_there_cannot_be_more_frozen_epochs_than_epochs():
    with pytest.raises(SettingsError, match=r"frozen_epochs = 6, and training.epochs = 5; it cannot be more"):
        check_frozen(6, of=5, new=True)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (["post"], "new_parties names 'post', which is not among the parties store, browser, bank"),
        (["bank", "store"], "new_parties names the label party 'store', without which there is no version"),
    ],
)
def test_new_parties_are_parties_but_not_the_label_party(new, message):
    check_new_parties(["bank"], PARTIES, "store")
    check_new_parties([], PARTIES, "store")
    with pytest.raises(SettingsError, match=message):
        check_new_parties(new, PARTIES, "store")


@pytest.mark.parametrize(
    ("trained", "new"), [(PARTIES, ()), (("browser", "store"), ("bank",)), (("store",), ("browser", "bank"))]
)
def test_a_version_of_the_same_parties_but_for_the_new_ones_is_taken(trained, new):
    check_same_parties(VERSION, trained, PARTIES, new)


@pytest.mark.parametrize(
    ("trained", "new", "message"),
    [
        (PARTIES, ("bank",), f"new_parties names 'bank', which is a party of version {VERSION}; take it out"),
        ((*PARTIES, "post"), (), f"version {VERSION} has a part of 'post', which is no party of this run"),
        (("store", "browser"), (), f"version {VERSION} was trained without 'bank'; name it in new_parties"),
    ],
)
def test_a_version_of_other_parties_is_refused_with_the_one_that_differs(trained, new, message):
    with pytest.raises(SettingsError, match=message):
        check_same_parties(VERSION, trained, PARTIES, new)
