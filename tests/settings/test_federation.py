import pytest

from fdml.errors import SettingsError
from fdml.settings import run_hash
from fdml.settings.federation import FederationSettings, read_federation, read_run
from fdml.settings.hash import training_hash

FEDERATION = """
name = "lending"
server = "127.0.0.1:7555"
parties = ["bank", "shop"]
"""
RUN = """
name = "first"
label_party = "bank"
[training]
epochs = 3
"""
KEY = "sha256:" + "0" * 63


@pytest.fixture
def home(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def test_a_run_is_both_files_together(home):
    run = read_run(home / "run.toml", home / "federation.toml")
    assert (run.name, run.federation, run.server, run.parties) == (
        "first",
        "lending",
        "127.0.0.1:7555",
        ("bank", "shop"),
    )
    assert (run.label_party, run.training.epochs) == ("bank", 3)


def test_either_file_stands_beside_the_other(home):
    both = read_run(home / "run.toml", home / "federation.toml")
    assert read_run(home / "run.toml") == both
    assert read_run(federation=home / "federation.toml") == both


def test_a_run_may_stand_elsewhere_than_its_federation(home, tmp_path_factory):
    other = tmp_path_factory.mktemp("runs") / "second.toml"
    other.write_text(RUN.replace("first", "second"))
    assert read_run(other, home / "federation.toml").name == "second"
    with pytest.raises(SettingsError, match=r"there is no file .*federation\.toml"):
        read_run(other)


def test_a_party_toml_is_no_run_and_no_federation(home):
    party = home / "party.toml"
    party.write_text('party = "bank"\n')
    with pytest.raises(SettingsError, match=r"party\.toml: this is a party\.toml; give the run\.toml"):
        read_run(party)
    with pytest.raises(SettingsError, match=r"party\.toml: this is a party\.toml; give the federation\.toml"):
        read_federation(party)
    with pytest.raises(SettingsError, match=r"run\.toml: this is a run\.toml; give the federation\.toml beside it"):
        read_federation(home / "run.toml")


@pytest.mark.parametrize("line", ['server = "x:1"', 'parties = ["bank", "shop"]', "[members]", "[rights]"])
def test_who_works_together_does_not_stand_in_run_toml(home, line):
    name = line.strip("[]").split()[0]
    text = f"{RUN}{line}\n" if line.startswith("[") else f"{line}\n{RUN}"
    (home / "run.toml").write_text(text)
    with pytest.raises(SettingsError, match=rf"run\.toml: '{name}' stands in federation\.toml now; move it there"):
        read_run(home / "run.toml")
    (home / "federation.toml").unlink()
    with pytest.raises(SettingsError, match=rf"'{name}' stands in federation\.toml now"):
        read_run(home / "run.toml")


def test_all_parties_may_start_runs_unless_rights_say_which(home):
    assert read_federation(home / "federation.toml").starters == ("bank", "shop")
    (home / "federation.toml").write_text(FEDERATION + '[rights]\nstart = ["shop"]\n')
    assert read_federation(home / "federation.toml").starters == ("shop",)
    (home / "federation.toml").write_text(FEDERATION + '[rights]\nstart = ["telco"]\n')
    with pytest.raises(SettingsError, match=r"\[rights\] lets 'telco' start runs, which is not among the parties"):
        read_federation(home / "federation.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"parties": []}, "parties"),
        ({"parties": ["a", "a"]}, "party 'a' is listed twice"),
        ({"parties": ["a", "server"]}, "party name 'server' is taken"),
        ({"parties": ["a"], "name": "no/folder"}, "federation name 'no/folder' cannot name a folder"),
        ({"parties": ["a"], "members": {"a": KEY + "1"}}, r"\[members\] lacks 'server'"),
        ({"parties": ["a"], "label_party": "a"}, "unknown setting 'label_party'"),
    ],
)
def test_a_federation_that_cannot_work_is_refused(values, message):
    with pytest.raises(SettingsError, match=message):
        FederationSettings(**values)


def test_members_are_the_same_in_any_order():
    members = {"server": KEY + "1", "a": KEY + "2", "b": KEY + "3"}
    turned = dict(reversed(members.items()))
    both = [FederationSettings(parties=["a", "b"], members=each).run(label_party="a") for each in (members, turned)]
    assert run_hash(both[0]) == run_hash(both[1])


def test_the_federation_is_agreed_on_but_does_not_change_the_noise():
    runs = [FederationSettings(name=name, parties=["a", "b"]).run(label_party="a") for name in ("one", "other")]
    assert run_hash(runs[0]) != run_hash(runs[1])
    assert training_hash(runs[0]) == training_hash(runs[1])
