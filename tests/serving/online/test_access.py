"""Who may call: loopback alone without more; elsewhere TLS, and a token or a client's certificate."""

import pytest

from fdml.errors import RequestRefused, SettingsError
from fdml.serving.online.access import Access, check_token, is_loopback

TOKEN = "0123456789abcdef0123"


def token_file(tmp_path, text=f"{TOKEN}\n", mode=0o600):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_on_this_machine_nothing_is_needed(host):
    assert is_loopback(host)
    assert Access(host).token() is None
    assert Access(host).tls() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "scores.example", ""])
def test_elsewhere_tls_and_a_way_to_know_callers_are_needed(host, tmp_path):
    path = tmp_path / "file.pem"
    with pytest.raises(SettingsError, match="without TLS they could read ids"):
        Access(host, token_file=path)
    with pytest.raises(SettingsError, match="anybody could ask; give --token-file or --clients"):
        Access(host, certificate=path, key=path)
    Access(host, token_file=path, certificate=path, key=path)
    Access(host, certificate=path, key=path, clients=path)


def test_certificate_and_key_belong_together(tmp_path):
    with pytest.raises(SettingsError, match="belong together"):
        Access(certificate=tmp_path / "a.pem")
    with pytest.raises(SettingsError, match="--clients needs TLS"):
        Access(clients=tmp_path / "a.pem")


def test_a_token_is_one_line_of_a_file_that_its_owner_alone_can_read(tmp_path):
    assert Access(token_file=token_file(tmp_path)).token() == TOKEN.encode()
    for mode in (0o644, 0o640, 0o602):
        with pytest.raises(SettingsError, match="can be read by others; `chmod 600"):
            Access(token_file=token_file(tmp_path, mode=mode)).token()


@pytest.mark.parametrize("text", ["", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}\n{TOKEN}", "ü" * 20, "x" * 1025])
def test_a_token_file_with_something_else_is_refused_without_showing_it(text, tmp_path):
    with pytest.raises(SettingsError, match="openssl rand -hex 32") as found:
        Access(token_file=token_file(tmp_path, text)).token()
    assert not text or text not in str(found.value)


def test_a_token_file_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        Access(token_file=tmp_path / "none").token()


def test_certificates_that_cannot_be_used_are_told(tmp_path):
    path = tmp_path / "a.pem"
    path.write_text("no certificate")
    with pytest.raises(SettingsError, match="certificates of the endpoint cannot be used"):
        Access(certificate=path, key=path).tls()


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", f"BEARER {TOKEN}"])
def test_the_right_token_passes(header):
    check_token(TOKEN.encode(), header)


def test_without_a_token_to_check_everybody_passes():
    check_token(None, None)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}"])
def test_no_token_is_401(header):
    with pytest.raises(RequestRefused, match="has no token") as found:
        check_token(TOKEN.encode(), header)
    assert found.value.status == 401


@pytest.mark.parametrize("given", ["wrong", TOKEN[:-1], f"{TOKEN}x", "ü" * 30, "\udcff"])
def test_a_wrong_token_is_403_and_not_repeated(given):
    with pytest.raises(RequestRefused, match="not that of this endpoint") as found:
        check_token(TOKEN.encode(), f"Bearer {given}")
    assert found.value.status == 403
    assert TOKEN not in str(found.value)


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "[::2]:80", "[::1", "localhost.", "]"])
def test_without_a_token_another_host_is_not_this_endpoint(host):
    assert not Access().names_host(host)


def test_with_a_token_or_tls_any_name_is_this_endpoint(tmp_path):
    assert Access(token_file=tmp_path).names_host("scores.example")
    assert Access(certificate=tmp_path, key=tmp_path).names_host("scores.example")
