"""Record batches as the files of answers have them: decoded, in their order."""

from collections.abc import Iterator
from typing import Any

from tests.parity.definitions import read_unsigned
from tests.support.clock import START_MS
from tests.support.wire import BatchHeader, Reader, batch_headers, crc32c

_CODEC, DELETE_HORIZON = 7, 64  # bits of a batch's attributes
_HEADER_BYTES = 61
_CRC_END = 21
# Records of the table are not this much later than START_MS; what a broker writes is.
_TABLE_MS = 60_000


def shown(records: bytes) -> tuple[dict[str, Any], ...]:
    """Each whole batch; each of its records as offset, time, key and value.

    Times are -1, relative to the table's (``start+5``), a broker's (``<time>``) or, in place of a
    first time, a delete horizon. ValueError for a batch that is compressed or has headers.
    """
    return tuple(_batch(head, data) for head, data in _whole(records))


def _whole(records: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    at = 0
    for head in batch_headers(records):
        end = at + 12 + head.length
        yield head, records[at:end]
        at = end


def _batch(head: BatchHeader, data: bytes) -> dict[str, Any]:
    if head.attributes & _CODEC:
        raise ValueError(f"batch at {head.base_offset} is compressed")
    base_time = _time(head.base_timestamp_ms)
    found: dict[str, Any] = {
        "baseOffset": head.base_offset,
        "lastOffsetDelta": head.last_offset_delta,
        "leaderEpoch": head.leader_epoch,
        "attributes": head.attributes,
        "baseTimestamp": "<horizon>" if head.attributes & DELETE_HORIZON else base_time,
        "maxTimestamp": _time(head.max_timestamp_ms),
    }
    if head.producer_id >= 0:
        found["producerId"] = head.producer_id
        found["producerEpoch"] = head.producer_epoch
        found["baseSequence"] = head.base_sequence
    reader = Reader(data[_HEADER_BYTES:])
    found["records"] = tuple(_record(reader, head) for _ in range(head.record_count))
    found["isIntact"] = reader.at == len(reader.data) and crc32c(data[_CRC_END:]) == head.crc
    return found


def _record(reader: Reader, head: BatchHeader) -> tuple[Any, ...]:
    _varint(reader)  # its length
    reader.take(1)  # attributes, without meaning
    time_ms = head.base_timestamp_ms + _varint(reader)
    offset = head.base_offset + _varint(reader)
    key, value = _part(reader), _part(reader)
    if _varint(reader):
        raise ValueError(f"record {offset} has headers")
    return offset, _time(time_ms), _text(key), _text(value)


def _varint(reader: Reader) -> int:
    """A zigzag-encoded signed variable-length integer."""
    number = read_unsigned(reader)
    return (number >> 1) ^ -(number & 1)


def _part(reader: Reader) -> bytes | None:
    length = _varint(reader)
    return None if length < 0 else reader.take(length)


def _text(part: bytes | None) -> str | None:
    """Hexadecimal digits if it cannot be read."""
    if part is None:
        return None
    text = part.decode("latin-1")
    return text if text.isascii() and text.isprintable() else part.hex()


def _time(time_ms: int) -> int | str:
    if time_ms < 0:
        return time_ms
    since_start_ms = time_ms - START_MS
    return f"start+{since_start_ms}" if 0 <= since_start_ms < _TABLE_MS else "<time>"
