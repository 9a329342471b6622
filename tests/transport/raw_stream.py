"""Streams to a server that send whatever a test wants, and servers that answer whatever a test wants."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from fdml.protocol.identity import host_name
from fdml.protocol.wire import decode_from_server, encode_from_party
from fdml.transport.grpc_endpoint import JOIN, PARTY_HEADER
from fdml.transport.pieces import Assembly, pieces
from tests.transport.served import SECONDS


class RawStream:
    """One stream to the server, without a channel of ours around it. Use it as a context."""

    def __init__(self, port, party="", *, credentials=None, header=None, run="shop", metadata=()):
        self._outgoing = queue.SimpleQueue()
        self._channel = raw_channel(port, credentials, run)
        named = party.encode().hex() if header is None else header
        self._call = self._channel.stream_stream(JOIN)(
            iter(self._outgoing.get, None), metadata=((PARTY_HEADER, named), *metadata), timeout=SECONDS
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._outgoing.put(None)
        self._call.cancel()
        self._channel.close()

    def send(self, *messages):
        """Messages, or bytes as they are."""
        for message in messages:
            self._outgoing.put(message if isinstance(message, bytes) else encode_from_party(message))
        return self

    def send_in_pieces(self, message):
        """A message of any length, as a party's channel sends it."""
        return self.send(*pieces(encode_from_party(message)))

    @property
    def is_open(self):
        """Whether the server has not ended it."""
        return self._call.is_active()

    def close_own_side(self):
        """Send nothing more; what the server sends is still read."""
        self._outgoing.put(None)

    def receive(self, kind):
        """The next message of a kind."""
        assembly = Assembly()
        for piece in self._call:
            raw = assembly.add(piece)
            message = None if raw is None else decode_from_server(raw)
            if isinstance(message, kind):
                return message
        raise AssertionError(f"the stream has ended before a {kind.__name__} came")

    def end(self):
        """The status and details with which the server ends the stream."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""


def raw_channel(port, credentials=None, run="shop"):
    target = f"127.0.0.1:{port}"
    if credentials is None:
        return grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
    keys = (credentials.key or None, credentials.certificate or None)
    options = [("grpc.ssl_target_name_override", host_name(run)), ("grpc.max_send_message_length", -1)]
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(credentials.authority, *keys), options)


@contextmanager
def scripted_server(answers, credentials=None):
    """A gRPC server whose every stream gives these answers; `answers` may wait or raise. Gives its port."""
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: answers(requests, context))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", {"Join": handler}),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        keys = grpc.ssl_server_credentials([(credentials.key, credentials.certificate)])
        port = server.add_secure_port("127.0.0.1:0", keys)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()
