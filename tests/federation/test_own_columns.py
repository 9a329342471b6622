"""At home: importances, contributions and reasons of a party's own columns; nothing is asked of anyone."""

import json

import pyarrow.csv as pacsv
import pytest

from fdml.errors import DataError, SettingsError
from fdml.federation.own_columns import own_columns, write_reasons
from tests.cli.commands import fail, succeed
from tests.serving.trained import trained

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    kinds = {"bob": "trees", "cid": "mlp"}
    return trained(tmp_path_factory.mktemp("trained"), kinds=kinds)


def found_of(home, party, **options):
    return own_columns(home / party / "party.toml", run=None, version=None, **options)


def test_a_linear_party_sees_importances_contributions_and_coefficients(home):
    found = found_of(home, "ann")
    assert (found.party, found.kind, found.rows) == ("ann", "linear", 250)
    assert list(found.importance.values()) == sorted(found.importance.values(), reverse=True)
    assert set(found.contribution) == set(found.coefficients) == {"a", "b"}
    assert all(len(reasons) == 2 for reasons in found.reasons)


def test_trees_have_contributions_and_a_net_has_importances_alone(home):
    trees, net = found_of(home, "bob"), found_of(home, "cid")
    assert set(trees.contribution) == {"a", "b"}
    assert trees.coefficients is None
    assert net.contribution is None
    assert min(net.importance.values()) > 0.0


def test_fewer_rows_may_be_looked_at(home, tmp_path):
    found = found_of(home, "ann", most=60)
    assert found.rows == 60
    write_reasons(found, tmp_path / "reasons.csv")
    table = pacsv.read_csv(tmp_path / "reasons.csv")
    assert table.num_rows == 60
    assert table.column_names == ["id", "column_1", "adds_1", "column_2", "adds_2"]
    lines = (home / "ann" / "data.csv").read_text().splitlines()[1:]
    assert set(table.column("id").to_pylist()) <= {line.split(",")[0] for line in lines}


def test_a_net_gives_no_reasons(home, tmp_path):
    with pytest.raises(DataError, match="'mlp' does not tell why; linear models and trees do"):
        write_reasons(found_of(home, "cid"), tmp_path / "reasons.csv")


def test_the_command_prints_writes_and_draws(home, tmp_path):
    party = home / "bob" / "party.toml"
    words = ("--json", tmp_path / "a.json", "--plot", tmp_path / "a.png", "--reasons", tmp_path / "a.csv")
    said = succeed("explain", party, "--home", *words)
    assert "bob's own trees model, 250 of its rows; nothing was asked" in said
    assert set(json.loads((tmp_path / "a.json").read_text())["importance"]) == {"a", "b"}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "--home" in fail(SettingsError, "explain", party, "--reasons", tmp_path / "a.csv")
