import pytest

from pyrklog.adoption.batches import (
    RECORDS_PER_BATCH_MAX,
    BatchError,
    Value,
    crc32c,
    encode_control,
    encode_values,
    read_values,
)

VALUES = [b"", b"one", b"x" * 300]


def read(data: bytes, start: int = 0, *, torn_end: bool = False) -> list[Value]:
    return list(read_values(data, start, torn_end=torn_end))


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_snapshot_that_kafka_wrote() -> None:
    """The second batch of a ``bootstrap.checkpoint`` of Kafka 3.9.1: metadata.version 21."""
    theirs = bytes.fromhex(
        "00000000000000010000004f0000000002a2f25d51000000000000000001a1fc6063ee000001a1fc6063ee"
        "ffffffffffffffffffffffffffff000000013a00000001"
        "2e010c00116d657461646174612e76657273696f6e00150000"
    )
    [value] = read(theirs)
    assert value == (1, b"\x01\x0c\x00\x11metadata.version\x00\x15\x00")
    assert encode_values([value.data], 1, 0x1A1FC6063EE) == theirs


def test_written_batches_read_back() -> None:
    many = VALUES * RECORDS_PER_BATCH_MAX
    data = encode_control(6, 3, b"header", 5) + encode_values(many, 7, 5)
    assert read(data) == [Value(7 + i, value) for i, value in enumerate(many)]
    assert [value.offset for value in read(data, 3005)] == [3005, 3006]


def test_a_torn_end_is_where_the_writer_stopped() -> None:
    first, second = encode_values(VALUES, 0, 5), encode_values(VALUES, 3, 5)
    for cut in range(1, len(second)):
        data = first + second[:cut]
        assert len(read(data, torn_end=True)) == 3
        with pytest.raises(BatchError, match=f"byte {len(first)}: the file ends"):
            read(data)


def test_every_flipped_bit_is_seen_or_changes_no_value() -> None:
    data = encode_values(VALUES, 0, 5)
    expected = [value.data for value in read(data)]
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            assert [value.data for value in read(bytes(damaged))] in (expected, [])
        except BatchError:
            refused += 1
    assert refused >= len(data) - 12  # base offset and leader epoch lie outside the checksum


def sealed(data: bytearray) -> bytes:
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_counts_are_checked_before_they_are_believed() -> None:
    data = bytearray(encode_values(VALUES, 0, 5))
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(BatchError, match="2147483647 records in"):
        read(sealed(data))
    data = bytearray(encode_values([b"abc"], 0, 5))
    data[61] = 0x7E  # the length of the record
    with pytest.raises(BatchError, match="a record of 63 bytes"):
        read(sealed(data))


def test_batches_that_kraft_never_writes_are_refused() -> None:
    data = bytearray(encode_values(VALUES, 0, 5))
    data[22] = 1
    with pytest.raises(BatchError, match="compressed"):
        read(sealed(data))
    data[16] = 1
    with pytest.raises(BatchError, match="format 1"):
        read(bytes(data))
