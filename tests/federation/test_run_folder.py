"""The folder of a run at one side: what begins, resumes and is refused."""

import stat

import pytest

from fdml.errors import SettingsError, StateCorrupt
from fdml.federation.run_folder import RunFolder, begun_run, run_names
from fdml.settings import RunSettings


def run(name="first", **values):
    return RunSettings(**{"name": name, "parties": ("ann", "bob"), "label_party": "ann", **values})


def begun(home, settings):
    folder = RunFolder(home, settings)
    folder.begin()
    return folder


def test_a_new_name_begins_and_its_settings_are_kept_for_their_owner(tmp_path):
    folder = begun(tmp_path, run(training={"epochs": 3}))
    assert folder.path == tmp_path / "runs" / "first"
    assert folder.state == folder.path / "state"
    assert begun_run(tmp_path, "first") == run(training={"epochs": 3})
    assert stat.S_IMODE((folder.path / "run.json").stat().st_mode) == 0o600


def test_looking_at_a_run_makes_nothing(tmp_path):
    RunFolder(tmp_path, run())
    assert list(tmp_path.iterdir()) == []


def test_the_same_name_goes_on_and_leaves_the_file_as_it_was(tmp_path):
    path = begun(tmp_path, run()).path / "run.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    begun(tmp_path, run())
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_of_two_that_begin_a_name_at_once_the_second_is_refused(tmp_path):
    """Both have looked before either has written."""
    first, second = (RunFolder(tmp_path, run(training={"epochs": epochs})) for epochs in (3, 4))
    first.begin()
    with pytest.raises(SettingsError, match=r"training\.epochs is 4 here, 3 when run 'first' began"):
        second.begin()
    assert begun_run(tmp_path, "first") == first.settings


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"training": {"epochs": 10}}, r"training\.epochs is 10 here, \"auto\" when run 'first' began; give it a new"),
        ({"server": "x:1"}, r"server is \"x:1\" here, \"127\.0\.0\.1:7443\" when run 'first' began"),
        ({"federation": "other"}, r"federation is \"other\" here, \"federation\" when run 'first' began"),
    ],
)
def test_other_settings_under_the_same_name_are_refused_by_the_setting(tmp_path, changed, said):
    begun(tmp_path, run())
    with pytest.raises(SettingsError, match=f"^{said}"):
        RunFolder(tmp_path, run(**changed))


def test_runs_stand_side_by_side(tmp_path):
    for name in ("second", "first"):
        begun(tmp_path, run(name))
    assert run_names(tmp_path) == ["first", "second"]
    assert run_names(tmp_path / "nobody") == []


def test_a_run_that_is_not_there_is_named_with_those_that_are(tmp_path):
    begun(tmp_path, run())
    with pytest.raises(SettingsError, match=r"there is no run 'third' in '.*runs'; the runs there: first"):
        begun_run(tmp_path, "third")
    with pytest.raises(SettingsError, match="the runs there: none"):
        begun_run(tmp_path / "nobody", "../first")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "first"}', b"\xff"])
def test_damaged_settings_are_named(tmp_path, content):
    (begun(tmp_path, run()).path / "run.json").write_bytes(content)
    with pytest.raises(StateCorrupt, match=r"run\.json' in the state folder is damaged"):
        RunFolder(tmp_path, run())


def test_a_forgotten_run_keeps_its_name(tmp_path):
    folder = begun(tmp_path, run())
    folder.mark_forgotten()
    when = (folder.path / "forgotten").read_text()
    folder.mark_forgotten()
    assert (folder.path / "forgotten").read_text() == when
    assert RunFolder(tmp_path, run()).is_forgotten
    with pytest.raises(SettingsError, match="the state of run 'first' was removed with `fdml forget`"):
        begun(tmp_path, run())


def test_state_of_an_older_fdml_is_not_mixed_with_runs(tmp_path):
    (tmp_path / "state").mkdir()
    with pytest.raises(SettingsError, match=r"state' holds a run of an older fdml; finish it with that version"):
        RunFolder(tmp_path, run())
