from pathlib import Path

import pytest

from fdml.cli import web
from fdml.cli.options import PAGE
from fdml.cli.web import page_address, web_address, web_page
from fdml.errors import SettingsError
from fdml.events import Remark


def test_the_page_is_asked_for_or_not():
    assert web_address(False, None) is None
    assert web_address(True, None) == PAGE
    assert web_address(False, "127.0.0.1:0") == "127.0.0.1:0"


@pytest.mark.parametrize("listen", ["10.0.0.5:7480", "0.0.0.0:7480"])
def test_a_page_that_others_can_reach_is_left_to_the_command_with_a_token(listen):
    with pytest.raises(SettingsError, match="asks every viewer for a token"):
        web_address(True, listen)


@pytest.mark.parametrize("listen", ["7480", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused_with_its_option(listen):
    with pytest.raises(SettingsError, match=f"--web-listen is '{listen}'"):
        page_address(listen, "--web-listen")


def test_an_address_may_be_of_ip_6():
    assert page_address("[::1]:80", "--listen") == ("::1", 80)


def test_without_it_there_is_no_process():
    with web_page(None, Path("party.toml"), "ann", print) as page:
        assert page is None


def test_what_it_says_are_remarks_of_this_side(monkeypatch):
    made, heard = [], []
    monkeypatch.setattr(web, "PageProcess", lambda *arguments: made.append(arguments))
    web_page(PAGE, Path("party.toml"), "ann", heard.append, run="first", options=["--plain"])
    ((path, at, options, remark),) = made
    assert (path, at, options) == (Path("party.toml"), PAGE, ["--run", "first", "--plain"])
    remark("page: x")
    assert heard == [Remark("ann", "page: x")]
