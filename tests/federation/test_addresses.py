import pytest

from fdml.errors import SettingsError
from fdml.federation.addresses import server_address, takes_any_port, with_port


def test_the_address_of_federation_toml_is_taken_if_nobody_says_otherwise():
    assert server_address("example.org:7443") == "example.org:7443"


def test_party_toml_goes_before_federation_toml_and_the_option_before_both():
    run = "example.org:7443"
    assert server_address(run, "10.0.0.1:7443") == "10.0.0.1:7443"
    assert server_address(run, "10.0.0.1:7443", "127.0.0.1:9000") == "127.0.0.1:9000"
    assert server_address(run, None, "127.0.0.1:9000") == "127.0.0.1:9000"


@pytest.mark.parametrize("given", [(), ("127.0.0.1:0",), (None, "127.0.0.1:0")])
def test_an_open_port_cannot_be_reached_and_the_error_says_what_to_give(given):
    with pytest.raises(SettingsError, match=r"'127.0.0.1:0' leaves the port open; .* with --server HOST:PORT"):
        server_address("127.0.0.1:0", *given)


def test_a_chosen_port_makes_up_for_an_open_one():
    assert server_address("127.0.0.1:0", None, "127.0.0.1:9000") == "127.0.0.1:9000"


@pytest.mark.parametrize(
    ("address", "any_port"),
    [("127.0.0.1:0", True), ("[::1]:0", True), ("127.0.0.1:70", False), ("localhost:7443", False), ("0", True)],
)
def test_port_0_is_any_port(address, any_port):
    assert takes_any_port(address) is any_port


def test_the_host_stays_and_the_port_changes():
    assert with_port("127.0.0.1:0", 4711) == "127.0.0.1:4711"
    assert with_port("[::1]:0", 4711) == "[::1]:4711"
    assert with_port("example.org:7443", 7443) == "example.org:7443"
