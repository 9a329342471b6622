"""Ids that come as columns of a request: normalised as in training, and led on to coarser rows of other parties."""

import pyarrow as pa
import pytest

from fdml.errors import DataError, SettingsError
from fdml.federation.asked_columns import AskedColumns
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings


def party(tmp_path, name="ann", **data):
    (tmp_path / "data.csv").write_text("user,shop,y\nu1,s7,1\nu2,s8,0\nu3,s7,1\n")
    given = {"path": tmp_path / "data.csv", "id": "user", **data}
    return PartySettings(party=name, federation=tmp_path / "federation.toml", data=given)


def run(**settings):
    return RunSettings(name="first", parties=("ann", "bob"), label_party="ann", **settings)


def texts(*values):
    return pa.array(values, pa.large_string())


def test_ids_are_normalised_as_in_training(tmp_path):
    columns = AskedColumns(party(tmp_path, ids={"case": "lower"}), run())
    assert (columns.needed, columns.optional) == (("user",), ())
    assert columns.rows({"user": texts(" U1", "u2")}).ids.to_pylist() == ["u1", "u2"]
    assert columns.rows({"user": pa.array([7, 8])}).ids.to_pylist() == ["7", "8"]


def test_ids_of_several_columns_are_joined(tmp_path):
    columns = AskedColumns(party(tmp_path, id=["user", "shop"]), run())
    assert columns.needed == ("user", "shop")
    assert columns.rows({"user": texts("u1"), "shop": texts("s|7")}).ids.to_pylist() == ["u1|s\\|7"]


def test_a_row_without_an_id_is_named_by_its_number(tmp_path):
    with pytest.raises(DataError, match="row 2 has no id in user"):
        AskedColumns(party(tmp_path), run()).rows({"user": texts("u1", "", "u3")})


def test_keys_that_lead_on_come_with_the_request_or_from_the_partys_own_files(tmp_path):
    columns = AskedColumns(party(tmp_path), run(keys={"bob": ["shop"]}))
    assert columns.optional == ("shop",)
    found = columns.rows({"user": texts("u3", "u2", "new")})
    assert found.leads["bob"].to_pylist() == ["s7", "s8", None]
    given = columns.rows({"user": texts("u3", "new"), "shop": texts("s1", "s2")})
    assert given.leads["bob"].to_pylist() == ["s1", "s2"]


def test_only_the_label_party_can_ask_where_keys_lead_from_its_rows(tmp_path):
    with pytest.raises(SettingsError, match="so only that party can ask"):
        AskedColumns(party(tmp_path, "bob"), run(keys={"bob": ["shop"]}))


def test_rows_without_ids_cannot_be_asked_for(tmp_path):
    with pytest.raises(SettingsError, match=r"no data\.id"):
        AskedColumns(party(tmp_path, id=()), run())
