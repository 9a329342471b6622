"""What `[privacy]` takes, and which bits of a prediction go with it."""

import pytest
from pydantic import ValidationError

from fdml.errors import SettingsError
from fdml.settings.privacy import PrivacySettings, check_few_bits

BLIND = PrivacySettings(server="blind")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("staleness", "privacy"), [(1, BLIND), (0, PrivacySettings(server="blind", labels="private"))])
def test_few_bits_under_masks_need_totals_that_all_have(bits, staleness, privacy):
    with pytest.raises(SettingsError, match=rf"value_bits = {bits} with server = \"blind\".*set value_bits = 16"):
        check_few_bits(bits, staleness, privacy)


@pytest.mark.parametrize(
    ("bits", "staleness", "privacy"),
    [
        (2, 0, BLIND),
        (2, 3, PrivacySettings()),
        (16, 3, BLIND),
        ("auto", 3, BLIND),
        (8, 0, PrivacySettings(labels="private")),
    ],
)
def test_other_bits_go_with_anything(bits, staleness, privacy):
    check_few_bits(bits, staleness, privacy)


@pytest.mark.parametrize("values", [{"server": "deaf"}, {"labels": "hidden"}, {"label_epsilon": 0.0}])
def test_what_is_not_known_is_refused(values):
    with pytest.raises((SettingsError, ValidationError)):
        PrivacySettings(**values)
