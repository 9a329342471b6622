"""What a status call of a party shows of the others, over a real socket."""

import pytest

from fdml.protocol.messages import Labels, Total
from fdml.transport.grpc_status import ask_status
from tests.server.sessions import hello, labels, push
from tests.transport.raw_stream import RawStream
from tests.transport.test_limits import AUTHORITY, serve


def sizes(server, role, name):
    credentials = AUTHORITY.issue(role, name)
    found = ask_status(server.endpoint(name, credentials=credentials))
    return {party.name: party.largest_prediction for party in found.parties}


@pytest.mark.parametrize("asker", ["ann", "bob"])
def test_a_party_learns_nothing_of_one_other_party_s_predictions(asker):
    """A plain server told every party how large each other one's were: with three, more than the sum of the others."""
    with serve(credentials=AUTHORITY.issue("server", "server")) as server:
        ann, bob = (AUTHORITY.issue("party", name) for name in ("ann", "bob"))
        with (
            RawStream(server.port, "ann", credentials=ann) as first,
            RawStream(server.port, "bob", credentials=bob) as second,
        ):
            first.send(hello(), labels(), push(0))
            second.send(hello()).receive(Labels)
            second.send(push(0)).receive(Total)
            seen = sizes(server, "party", asker)
            assert seen[asker] is not None
            assert {name for name, size in seen.items() if size is not None} == {asker}
            assert None not in sizes(server, "server", "server").values(), "the server has them anyway"
