from fdml.errors import SettingsError
from fdml.party.settings import read_party
from fdml.settings.federation import read_run
from tests.cli.commands import call, fail, succeed


def test_it_says_what_to_type_and_writes_what_can_be_read(tmp_path):
    text = succeed("new", tmp_path / "shop", "--parties", "store, browser", "--server", "127.0.0.1:9000")
    for command in (
        "serve {0}/federation.toml --run {0}/run.toml",
        "join {}/store/party.toml",
        "join {}/browser/party.toml",
        "simulate {}/run.toml",
    ):
        assert f"  fdml {command.format(tmp_path / 'shop')}\n" in text
    assert "All keys were made here, in one place: this is for trying out on one machine." in text
    assert "`fdml keys request`" in text
    run = read_run(tmp_path / "shop" / "run.toml")
    assert set(run.members) == {"server", "store", "browser"}
    assert (run.parties, run.server) == (("store", "browser"), "127.0.0.1:9000")
    assert read_party(tmp_path / "shop" / "store" / "party.toml").data.label == "income"
    assert read_party(tmp_path / "shop" / "browser" / "party.toml").data.label is None


def test_a_run_that_is_there_is_left_alone(tmp_path):
    succeed("new", tmp_path, "--parties", "store,browser")
    before = (tmp_path / "run.toml").read_text()
    assert "holds a federation.toml already" in fail(SettingsError, "new", tmp_path, "--parties", "ann,bob")
    assert (tmp_path / "run.toml").read_text() == before


def test_parties_are_needed(tmp_path):
    assert call("new", tmp_path).exit_code == 2
    fail(SettingsError, "new", tmp_path / "run", "--parties", " , ")
    assert list(tmp_path.iterdir()) == []
