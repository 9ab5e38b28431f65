"""The offsets of records according to a producer's reports."""

from tests.checker.clients import Places
from tests.checker.history import NONE


def test_repeated_batch_without_a_known_offset_has_none() -> None:
    """Two batches of three records and one of one; librdkafka counts from -1 in each."""
    places = Places(1)
    told = [7, 8, None, 0, 1, None, None, 0, 1, 20, 21]
    found = [places.reported(0, offset) for offset in told]
    assert found == [7, 8, *[NONE] * 7, 20, 21]


def test_first_records_of_a_partition_keep_their_reported_offsets() -> None:
    """In another partition, or without a repetition."""
    places = Places(2)
    assert [places.reported(0, offset) for offset in (0, 1, 2)] == [0, 1, 2]
    assert places.reported(1, -1) == NONE
    assert [places.reported(0, offset) for offset in (3, 4)] == [3, 4]
    assert [places.reported(1, offset) for offset in (5, 6, 0)] == [5, 6, 0]
