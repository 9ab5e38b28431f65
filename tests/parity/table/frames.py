"""Frames and headers that no client sends."""

import struct

from tests.parity.definitions import encode
from tests.parity.rows import Frame, Scenario
from tests.support.wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    header,
)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def start(key: int, version: int = 0, correlation: int = 1) -> bytes:
    """A header's first eight bytes."""
    return struct.pack(">hhi", key, version, correlation)


SIZES = Scenario(
    "sizes",
    [
        Frame("size -1", struct.pack(">i", -1)),
        Frame("size -2147483648", struct.pack(">i", -(2**31))),
        Frame("size 2147483647", struct.pack(">i", 2**31 - 1)),
        Frame("size above socket.request.max.bytes", struct.pack(">i", 104_857_601)),
        Frame("size 0", frame(b"")),
        Frame("one byte", frame(b"\0")),
        Frame("seven bytes", frame(start(METADATA)[:7])),
        Frame("eight bytes", frame(start(METADATA))),
        Frame("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Frame("TLS", bytes.fromhex("16030100c8010000c40303") + bytes(194)),
    ],
)
HEADERS = Scenario(
    "headers",
    [
        Frame("client id longer than the frame", frame(start(METADATA) + b"\x75\x30short")),
        Frame("client id of length -2", frame(start(API_VERSIONS) + b"\xff\xfe"), 6),
        Frame("unknown key, client id of one byte", frame(start(999) + b"\0\1\xff")),
        Frame("no tagged fields in a flexible header", frame(start(METADATA, 9) + b"\xff\xff")),
        Frame(
            "huge number of tagged fields",
            frame(start(METADATA, 9) + b"\xff\xff\xff\xff\xff\xff\x0f"),
        ),
        Frame(
            "endless number of tagged fields",
            frame(start(METADATA, 9) + b"\xff\xff" + b"\xff" * 12),
        ),
        Frame(
            "a tagged field longer than the frame",
            frame(start(METADATA, 9) + b"\xff\xff\x01\x05\x7f"),
        ),
        Frame("header alone, Metadata 9", frame(header(METADATA, 9, 1, flexible=True))),
        Frame("header alone, Fetch 11", frame(header(FETCH, 11, 1))),
        Frame("header alone, Produce 9", frame(header(PRODUCE, 9, 1, flexible=True))),
        Frame("negative correlation id", frame(start(34, 9, -5) + b"\xff\xff")),
    ],
)
_HIGHEST = {PRODUCE: 11, FETCH: 17, LIST_OFFSETS: 9, METADATA: 12, CREATE_TOPICS: 7}
_KEYS = (
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    20,
    21,
    22,
    23,
    32,
    33,
    35,
    37,
    42,
    43,
    44,
    45,
    46,
    47,
    60,
)
VERSIONS = Scenario(
    "keys and versions",
    [
        *[
            Frame(f"key {key}", frame(header(key, 0, 1)))
            for key in (-1, -32_768, 93, 999, 20_000, 32_767)
        ],
        *[
            Frame(f"key {key}, version {highest + 1}", frame(header(key, highest + 1, 1)))
            for key, highest in _HIGHEST.items()
        ],
        *[Frame(f"key {key}, version 99", frame(header(key, 99, 1))) for key in _KEYS],
        *[
            Frame(f"key {key}, version -1", frame(header(key, -1, 1)))
            for key in (0, 1, 3, 8, 11, 19, 32)
        ],
    ],
)


def beyond(version: int, body: bytes = b"") -> Frame:
    """ApiVersions in a version that no broker has: the answer's first bytes are compared."""
    payload = header(API_VERSIONS, version, 7, flexible=True) + body
    return Frame(f"ApiVersions {version}", frame(payload), compared_bytes=6)


UNKNOWN_VERSIONS = Scenario(
    "unknown versions of ApiVersions",
    [
        *[beyond(version) for version in (5, 99, 32_767)],
        beyond(-1),
        Frame(
            "version 3 with a header of version 1",
            frame(header(API_VERSIONS, 3, 7) + b"\x02a\x02b\0"),
        ),
        Frame(
            "version 3, well formed",
            frame(
                header(API_VERSIONS, 3, 7, flexible=True)
                + encode(
                    "ApiVersionsRequest",
                    3,
                    {"clientSoftwareName": "a", "clientSoftwareVersion": "1"},
                )
            ),
            compared_bytes=6,
        ),
    ],
)
SCENARIOS = (SIZES, HEADERS, VERSIONS, UNKNOWN_VERSIONS)
