import socket
import sys
import time

import pytest

from fdml.federation import page_process as module
from fdml.federation.page_process import PageProcess, reached_here

SECONDS = 30.0


@pytest.mark.parametrize(
    ("listens", "found"),
    [("0.0.0.0:7443", "127.0.0.1:7443"), ("[::]:7443", "127.0.0.1:7443"), ("10.0.0.5:7443", "10.0.0.5:7443")],
)
def test_a_server_that_listens_everywhere_is_reached_at_loopback(listens, found):
    assert reached_here(listens) == found


class Page:
    """A page process whose command is a few lines of Python in place of fdml."""

    def __init__(self, monkeypatch, tmp_path, code):
        script = tmp_path / "program"
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o700)
        monkeypatch.setattr(module.sys, "executable", str(script))
        self.said = []
        self.process = PageProcess(tmp_path / "party.toml", "127.0.0.1:0", ["--run", "first"], self.said.append)

    def until(self, count):
        deadline = time.monotonic() + SECONDS
        while len(self.said) < count:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)
        return self.said


UNTIL_INPUT_ENDS = "import sys; print('page: http://127.0.0.1:1/', flush=True); sys.stdin.read()"


def test_its_address_is_said_and_it_ends_with_the_block(monkeypatch, tmp_path):
    page = Page(monkeypatch, tmp_path, UNTIL_INPUT_ENDS)
    with page.process:
        page.process.start()
        assert page.until(1) == ["page: http://127.0.0.1:1/"]
        child = page.process._process
        assert child.poll() is None
    assert child.returncode == 0


def test_it_gets_the_command_of_a_person(monkeypatch, tmp_path):
    page = Page(monkeypatch, tmp_path, "import sys; print('page:', *sys.argv[1:], flush=True); sys.stdin.read()")
    with page.process:
        page.process.start("--server", "127.0.0.1:7443")
        (line,) = page.until(1)
    assert line == (
        f"page: -m fdml watch {tmp_path / 'party.toml'} --listen 127.0.0.1:0 --with-parent --run first "
        f"--server 127.0.0.1:7443"
    )


def test_one_that_fails_is_said_once_and_raises_nothing(monkeypatch, tmp_path):
    code = (
        "print('fdml: cannot listen: choose another with --listen HOST:PORT'); print('and more'); raise SystemExit(1)"
    )
    page = Page(monkeypatch, tmp_path, code)
    with page.process:
        page.process.start()
        page.until(1)
        page.process._process.wait(SECONDS)
    assert page.said == [
        "no page: cannot listen: choose another with --web-listen HOST:PORT; the run goes on without it"
    ]


def test_one_that_cannot_be_started_is_said(monkeypatch, tmp_path):
    page = Page(monkeypatch, tmp_path, "")
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "nothing"))
    with page.process:
        page.process.start()
    (line,) = page.said
    assert line.startswith("no page: ")


def test_one_that_does_not_end_is_ended(monkeypatch, tmp_path):
    code = "import time; print('page: x', flush=True); time.sleep(600)"
    page = Page(monkeypatch, tmp_path, code)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.1)
    with page.process:
        page.process.start()
        page.until(1)
        child = page.process._process
    assert child.returncode < 0


def test_without_a_start_there_is_nothing_to_end(monkeypatch, tmp_path):
    page = Page(monkeypatch, tmp_path, "")
    with page.process:
        pass
    assert page.said == []


@pytest.mark.slow
def test_a_port_that_is_taken_is_named_by_the_real_command(tmp_path):
    said = []
    (tmp_path / "party.toml").write_text('party = "ann"\nfederation = "federation.toml"\n[data]\npath = "x.csv"\n')
    (tmp_path / "federation.toml").write_text('name = "shop"\nparties = ["ann", "bob"]\nserver = "127.0.0.1:7443"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with PageProcess(tmp_path / "party.toml", f"127.0.0.1:{port}", ["--plain"], said.append) as page:
            page.start()
            deadline = time.monotonic() + SECONDS
            while not said and time.monotonic() < deadline:
                time.sleep(0.05)
    (line,) = said
    assert line.startswith(f"no page: cannot listen at 127.0.0.1:{port} (Address already in use)")
