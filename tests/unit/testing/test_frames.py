import struct

import pytest

from pyrklog.testing.frames import (
    RequestHead,
    UnreadableError,
    answer_body,
    answer_frame,
    read_answer_head,
    read_head,
)
from tests.unit.testing.corpus import CORPUS, Captured, captured

REQUESTS = captured()


def frame_of(one: Captured) -> bytes:
    return struct.pack(">i", len(one.frame)) + one.frame


def test_the_corpus_has_most_apis_that_rust_serves() -> None:
    found = {one.api for one in REQUESTS}
    assert found >= {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions"}, CORPUS


@pytest.mark.parametrize("one", REQUESTS, ids=str)
def test_a_head_is_read_of_any_cut_or_not_at_all(one: Captured) -> None:
    frame = frame_of(one)
    whole = read_head(bytearray(frame), 0)
    assert whole is not None
    assert (whole.api_key, whole.api_version) == struct.unpack_from(">hh", one.frame)
    assert whole.correlation_id == struct.unpack_from(">i", one.frame, 4)[0]
    assert whole.frame_bytes == len(frame)
    for cut in range(len(frame)):
        assert read_head(bytearray(frame[:cut]), 0) in (None, whole)
    assert read_head(bytearray(b"before" + frame + b"after"), 6) == whole


@pytest.mark.parametrize(("acks", "is_answered"), [(0, False), (1, True), (-1, True)])
@pytest.mark.parametrize("version", [2, 3, 8, 9, 12])
def test_a_produce_without_acks_has_no_answer(version: int, acks: int, is_answered: bool) -> None:
    head = struct.pack(">hhih", 0, version, 7, 2) + b"me"
    if version >= 9:
        head += b"\x00" + b"\x04txn"
    elif version >= 3:
        head += struct.pack(">h", 3) + b"txn"
    payload = head + struct.pack(">hi", acks, 1000) + b"rest"
    found = read_head(bytearray(struct.pack(">i", len(payload)) + payload), 0)
    assert found is not None
    assert found.is_answered is is_answered
    assert found.client_id == "me"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"GET / HTTP/1.1",
        struct.pack(">hhih", 9999, 0, 1, 0),
        struct.pack(">hhih", 0, 9, 1, 100) + b"short",
        struct.pack(">hhih", 1, 12, 1, 0) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_what_is_no_request_is_said_to_be_none(payload: bytes) -> None:
    with pytest.raises(UnreadableError):
        read_head(bytearray(struct.pack(">i", len(payload)) + payload), 0)


def test_an_answer_has_the_head_of_its_version() -> None:
    for api_key, version, tags in ((0, 8, b""), (0, 9, b"\x00"), (18, 4, b"")):
        head = RequestHead(api_key, version, 5, "me", 0, 0, True)
        frame = answer_frame(head, b"body")
        assert frame == struct.pack(">ii", 8 + len(tags), 5) + tags + b"body"
        assert read_answer_head(bytearray(frame), 0) == (len(frame), 5)
        assert read_answer_head(bytearray(frame[:7]), 0) is None
        assert answer_body(head, frame) == b"body"
