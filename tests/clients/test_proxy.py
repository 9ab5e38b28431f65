"""The capturing proxy changes nothing and keeps every frame."""

import struct

from pyrklog.testing.broker import free_port
from tests.support.proxy import CapturingProxy
from tests.support.wire import API_VERSIONS, METADATA, Connection, header, string


def test_frames_are_kept_and_forwarded(bootstrap: str) -> None:
    port = free_port()
    with CapturingProxy(bootstrap, port) as proxy, Connection(bootstrap) as direct:
        proxy.label = "raw"
        with Connection(f"127.0.0.1:{port}") as connection:
            unknown = struct.pack(">i", 1) + string("no such topic")
            for request in ((API_VERSIONS, 0, b""), (METADATA, 1, unknown)):
                assert connection.request(*request) == direct.request(*request)
            two = [header(API_VERSIONS, 0, number) for number in (8, 9)]
            connection.socket.sendall(b"".join(struct.pack(">i", len(f)) + f for f in two))
            assert [connection.read_frame()[:4] for _ in two] == [b"\0\0\0\x08", b"\0\0\0\x09"]
    kept = [(frame.label, frame.api_key, frame.version) for frame in proxy.frames]
    assert kept == [("raw", 18, 0), ("raw", 3, 1), ("raw", 18, 0), ("raw", 18, 0)]
    assert [frame.payload for frame in proxy.frames[2:]] == two
