"""A party whose disk fails, whose files are damaged, or whose files others could read."""

import errno
import os
import stat
from functools import partial

import pytest

from fdml.errors import FdmlError, ServerUnreachable, StateCorrupt
from fdml.events import Remark
from fdml.federation.join import align, join
from fdml.federation.party_folder import HISTORY
from fdml.monitor.listeners import ignore_events
from tests.federation.folders import RUN, rename, serving, together, write_run

NOISE = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 4.0\n'


def write_noisy_run(home, training=""):
    write_run(home, training=training)
    for party in ("ann", "bob"):
        path = home / party / "party.toml"
        path.write_text(path.read_text() + NOISE)


def whole_run(home, ann=None, **options):
    """A run to its end; `ann` takes the place of that party's part."""

    def part(party, server):
        return join(home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events, **options)

    with serving(home / "run.toml") as server:
        together(lambda: (ann or (lambda given: part("ann", given)))(server), lambda: part("bob", server))
    assert server.error is None


class FullFor:
    """A disk that has no room for one file of ann's; `os.open` of it fails."""

    def __init__(self, name, number=errno.ENOSPC):
        self.name, self.number, self.failed, self._open = name, number, False, os.open

    def __call__(self, path, flags, *rest, **more):
        text = os.fspath(path)
        if flags & os.O_CREAT and "/ann/" in text and self.name in os.path.basename(text):
            self.failed = True
            raise OSError(self.number, os.strerror(self.number))
        return self._open(path, flags, *rest, **more)


NAMES = (
    "lock", "run.json", "align-secrets", "alignment", "incarnation", "noise-key", "accounts.json", "encoder.json", "values",
    "releases", "checkpoint", HISTORY, "privacy.md", "parameters.npz", "result",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_chaos_7_and_finding_24_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(
    tmp_path, monkeypatch, name
):
    write_noisy_run(tmp_path)
    full = FullFor(name)

    def ann(server):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            with pytest.raises(StateCorrupt, match=rf"cannot use .*{name}.*No space left.*make room on the disk"):
                join(tmp_path / "ann" / "party.toml", plain=True, server=server.address, on_event=ignore_events)
        join(tmp_path / "ann" / "party.toml", plain=True, server=server.address, on_event=ignore_events)

    whole_run(tmp_path, ann)
    assert full.failed


@pytest.mark.parametrize("command", [join, align])
def test_chaos_7_a_read_only_state_folder_is_one_line(tmp_path, monkeypatch, command):
    write_noisy_run(tmp_path)
    monkeypatch.setattr(os, "open", FullFor("lock", errno.EROFS))
    with pytest.raises(StateCorrupt, match=r"cannot use .*Read-only file system.*is not read-only"):
        command(tmp_path / "ann" / "party.toml", plain=True, server="127.0.0.1:1", on_event=ignore_events)


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 0xFF])
    + content[len(content) // 2 + 1 :],
    "noise": lambda content: bytes(range(256)) * (1 + len(content) // 256),
    "tail": lambda content: content + b"\x00" * 64,
}  # fmt: skip
NAMED = ("alignment", "incarnation", "noise-key", "result", "run.json")
"""Files whose damage must be named."""
READABLE = {("incarnation", "cut"), ("alignment", "tail"), ("alignment", "flipped"), ("result", "flipped")}
"""What is left can be read as before."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run whose ann has saved everything but its result."""
    home = tmp_path_factory.mktemp("damaged")
    write_noisy_run(home, training="peer_timeout_seconds = 0.3\n")
    whole_run(home)
    return home


@pytest.mark.parametrize(
    "damage", [pytest.param(each, marks=[pytest.mark.slow] * (each not in ("empty", "cut"))) for each in DAMAGES]
)
def test_chaos_8_no_damage_of_any_file_is_a_traceback(stopped, damage):
    state = stopped / "ann" / RUN / "state"
    files = [each for each in state.iterdir() if each.is_file() and each.name != "lock"]
    files.append(stopped / "ann" / RUN / "run.json")
    for file in sorted([*files, stopped / "ann" / RUN / HISTORY]):
        before = {each: each.read_bytes() for each in files}
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
        if file.name != "result":
            (state / "result").unlink()  # so that the party looks at all the rest
        said = error_of(lambda: join(stopped / "ann" / "party.toml", plain=True, server="127.0.0.1:1", wait=0.3))
        if said is None:
            assert file.name not in NAMED or (file.name, damage) in READABLE, file.name
        else:
            assert "\n" not in said
            assert file.name.split(".")[0].replace("-", " ") in said.replace("-", " "), (file.name, said)
            assert "a new name" in said or "backup" in said
        for each, content in before.items():
            each.write_bytes(content)


def error_of(start):
    """What a start says that ends with an error of its own; None if it only finds no server."""
    try:
        start()
    except ServerUnreachable:
        return None
    except FdmlError as error:
        return str(error)
    raise AssertionError("there is no server")


def test_chaos_8_a_new_name_is_a_way_out_of_every_damage(tmp_path):
    write_noisy_run(tmp_path)
    whole_run(tmp_path)
    for party in ("ann", "bob"):
        for file in (tmp_path / party / RUN / "state").iterdir():
            if file.is_file():
                file.write_bytes(b"?")
    rename(tmp_path / "run.toml", "second")
    with serving(tmp_path / "run.toml") as server:
        together(
            *(
                lambda party=party: join(
                    tmp_path / party / "party.toml",
                    plain=True,
                    server=server.address,
                    on_event=ignore_events,
                )
                for party in ("ann", "bob")
            )
        )
    assert server.error is None


def test_chaos_2_and_9_a_history_that_is_damaged_or_gone_is_made_whole_or_said(stopped):
    path, result = stopped / "ann" / RUN / HISTORY, stopped / "ann" / RUN / "state" / "result"
    history, finished, said = path.read_text(), result.read_bytes(), []
    path.write_text(history[: len(history) // 2])
    result.unlink()
    start = partial(join, stopped / "ann" / "party.toml", plain=True, server="127.0.0.1:1", on_event=said.append)
    assert error_of(start) is None
    texts = [event.text for event in said if isinstance(event, Remark)]
    assert any("was no history that fdml wrote" in text for text in texts)
    assert any("lacked epoch" in text and "the checkpoint knew them" in text for text in texts)
    path.write_text(history)
    result.write_bytes(finished)


def test_finding_23_all_that_a_party_writes_is_for_its_owner_from_the_first_byte(tmp_path, monkeypatch):
    """Watched where files are created, with a umask that takes nothing off; nothing is made private afterwards."""
    write_noisy_run(tmp_path)
    created, changed, opened = {}, [], os.open

    def watched(path, flags, mode=0o777, **more):
        if flags & os.O_CREAT:
            created[os.fspath(path)] = mode
        return opened(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(os, "chmod", lambda path, *_, **__: changed.append(os.fspath(path)))
    before = os.umask(0)
    try:
        whole_run(tmp_path)
    finally:
        os.umask(before)
    own = {path: mode for path, mode in created.items() if "/ann/" in path or "/bob/" in path}
    assert len(own) > 20
    assert {path for path, mode in own.items() if mode & 0o077} == set()
    assert [path for path in changed if not os.path.isdir(path)] == []
    for party in ("ann", "bob"):
        for path in (tmp_path / party).rglob("*"):
            if path.name not in ("data.csv", "party.toml"):
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
