import pytest

from fdml.errors import StateCorrupt
from fdml.storage.facts import check_facts, damaged

FACTS = {"run.toml": "a", "data": "b"}


def test_state_of_the_same_facts_is_gone_on_with():
    check_facts(FACTS, FACTS)
    check_facts({}, FACTS)
    check_facts({**FACTS, "more": "c"}, FACTS)


@pytest.mark.parametrize(
    ("changed", "named"), [({"data": "x"}, "data"), ({"run.toml": "y", "data": "x"}, "run.toml and data")]
)
def test_state_of_other_facts_is_refused_with_what_has_changed(changed, named):
    with pytest.raises(
        StateCorrupt, match=f"the model belongs to another {named}; put it back, or give the run a new name"
    ):
        check_facts({**FACTS, **changed}, FACTS, "model")


def test_a_damaged_file_is_named_with_the_way_out():
    text = str(damaged("alignment", "no file of numpy arrays"))
    assert "'alignment'" in text
    assert "no file of numpy arrays" in text
    assert "a new name at every side" in text
