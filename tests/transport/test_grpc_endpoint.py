import grpc
import pytest

from fdml.errors import MessageRefused, Refusal, ServerUnreachable, SettingsError
from fdml.transport.grpc_endpoint import (
    PARTY_HEADER,
    REFUSAL_OF,
    STATUS_OF,
    Endpoint,
    Trouble,
    call_metadata,
    check_loopback,
    error_text,
    flow_options,
    is_loopback,
    keepalive_options,
    open_channel,
    permanent_error,
    trouble_of,
)

ENDPOINT = Endpoint("127.0.0.1:7001", "shop", "bob", None)


class CallFailed(grpc.RpcError):
    """An error as gRPC raises it."""

    def __init__(self, code, details=""):
        super().__init__(details)
        self._code, self._details = code, details

    def code(self):
        return self._code

    def details(self):
        return self._details


@pytest.mark.parametrize("target", ["127.0.0.1:7001", "127.8.9.10:1", "[::1]:7001", "localhost:7001"])
def test_addresses_of_this_machine_are_loopback(target):
    assert is_loopback(target)
    check_loopback(target)


@pytest.mark.parametrize(
    "target", ["0.0.0.0:7001", "[::]:7001", "10.0.0.1:7001", "example.org:7001", "localhost.example.org:1", "", "7001"]
)
def test_all_others_are_not_and_may_not_be_plain(target):
    assert not is_loopback(target)
    with pytest.raises(SettingsError, match=r"plain lines are for loopback only, and .* is not; leave --plain out"):
        check_loopback(target)


def test_every_refusal_travels_as_a_status_of_its_own():
    assert set(STATUS_OF) == set(Refusal)
    assert len(set(STATUS_OF.values())) == len(Refusal)
    assert all(REFUSAL_OF[status] is refusal for refusal, status in STATUS_OF.items())


def test_no_refusal_looks_like_a_broken_line():
    """These are what gRPC itself ends a call with, and after which the party tries again."""
    broken = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert not broken & set(STATUS_OF.values())
    assert grpc.StatusCode.UNKNOWN not in STATUS_OF.values()


@pytest.mark.parametrize("refusal", [each for each in Refusal if each is not Refusal.NOT_STORED])
def test_a_refusal_of_the_server_is_raised_as_it_was(refusal):
    error = permanent_error(ENDPOINT, CallFailed(STATUS_OF[refusal], "party 'bob' has other rows"))
    assert isinstance(error, MessageRefused)
    assert error.refusal is refusal
    assert str(error) == "party 'bob' has other rows"


@pytest.mark.parametrize(
    "details",
    [
        "Ssl handshake failed: SSL_ERROR_SSL: ... CERTIFICATE_VERIFY_FAILED: TSI_PROTOCOL_FAILURE",
        "Peer name server.shop.fdml verification check failed",
    ],
)
def test_whoever_shows_no_certificate_of_ours_will_not_do_so_later(details):
    error = permanent_error(ENDPOINT, CallFailed(grpc.StatusCode.UNAVAILABLE, details))
    assert isinstance(error, ServerUnreachable)
    assert "what answers at 127.0.0.1:7001 is no server of federation 'shop'" in str(error)
    assert str(error).endswith("check the address and the keys")


def test_a_server_whose_disk_is_full_is_asked_again_and_then_quoted():
    """Chaos 7: it was "no server" before."""
    failed = CallFailed(grpc.StatusCode.DATA_LOSS, "the server cannot use its disk (No space left on device)")
    assert permanent_error(ENDPOINT, failed) is None
    trouble = trouble_of(ENDPOINT, failed)
    assert str(trouble) == "the server cannot use its disk (No space left on device)"
    error = trouble.gave_up(30.0)
    assert isinstance(error, MessageRefused)
    assert str(error) == "the server cannot use its disk (No space left on device)"
    gone = trouble_of(ENDPOINT, CallFailed(grpc.StatusCode.UNAVAILABLE, "Connection refused")).gave_up(30.0)
    assert isinstance(gone, ServerUnreachable)
    assert "for 30 s (connection refused)" in str(gone)


def test_what_a_server_says_is_cut_and_has_no_control_characters():
    """Finding 9: text of a lying server."""
    text = error_text(CallFailed(grpc.StatusCode.ABORTED, "\x1b[2J[/x]" + "y" * 5000))
    assert text.startswith("\\x1b[2J[/x]yyy")
    assert len(text) < 420
    assert text.isprintable()


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL]
)
def test_after_other_errors_it_is_worth_trying_again(code):
    assert permanent_error(ENDPOINT, CallFailed(code, "Connection reset by peer")) is None


def test_an_error_without_details_is_named_by_its_code():
    assert error_text(CallFailed(grpc.StatusCode.UNAVAILABLE)) == "StatusCode.UNAVAILABLE"
    assert error_text(CallFailed(grpc.StatusCode.UNAVAILABLE, "reset")) == "reset"


def test_nobody_there_says_where_how_long_and_what_to_do():
    trouble = Trouble(ENDPOINT.target, "connection refused")
    assert str(trouble) == "no server at 127.0.0.1:7001 yet: connection refused"
    error = trouble.gave_up(30.0)
    assert isinstance(error, ServerUnreachable)
    assert str(error).startswith("no server at 127.0.0.1:7001 for 30 s (connection refused); start `fdml serve`")


@pytest.mark.parametrize("party", ["bob", "Bäckerei Ölze", "a/b c"])
def test_any_name_fits_into_a_header(party):
    ((key, value),) = call_metadata(Endpoint("127.0.0.1:7001", "shop", party, None))
    assert key == PARTY_HEADER
    assert value.isascii()
    assert bytes.fromhex(value).decode() == party


def test_a_ping_may_take_as_long_as_anyone_would_wait_but_no_less_than_a_second():
    assert dict(keepalive_options(45.0))["grpc.http2.ping_timeout_ms"] == 45_000
    assert dict(keepalive_options(0.01))["grpc.http2.ping_timeout_ms"] == 1_000
    assert dict(keepalive_options(45.0))["grpc.keepalive_permit_without_calls"] == 1


def test_a_dead_line_is_found_within_ten_seconds_whatever_the_peer_timeout():
    options = dict(keepalive_options(3600.0))
    assert options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"] < 10_000


def test_the_options_are_such_as_grpc_takes():
    for name, value in keepalive_options(5.0) + flow_options():
        assert name.startswith("grpc.")
        assert isinstance(value, int)


def test_a_channel_can_be_opened_before_anyone_listens():
    with open_channel(ENDPOINT, 1.0) as channel:
        call = channel.unary_unary("/fdml.Exchange/Alive")
        with pytest.raises(grpc.RpcError) as failed:
            call(b"", timeout=5.0)
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert permanent_error(ENDPOINT, failed.value) is None
