from collections import deque

import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.log_verify import (
    DIFFERS,
    EQUAL,
    PIECE_BYTES,
    UNKNOWN,
    Replicas,
    Since,
    exit_of,
    parse_since,
    verify_partition,
)
from pyrklog.observability.health_rules import ClusterState, PartitionState
from pyrklog.protocol.verification import DigestedBatch, ReplicaDigestResponse

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("0", Since(0, False)),
        ("1500", Since(1500, False)),
        ("@1500", Since(1500, True)),
        ("@-90m", Since(NOW_MS - 90 * 60_000, True)),
        ("-90m", Since(NOW_MS - 90 * 60_000, True)),
        ("2024-01-31", Since(1_706_659_200_000, True)),
        ("@2024-01-31T12:00:00Z", Since(1_706_702_400_000, True)),
    ],
)
def test_since_is_an_offset_or_a_time(text: str, since: Since) -> None:
    assert parse_since(text, NOW_MS) == since


@pytest.mark.parametrize("text", ["", "-5", "@", "soon", "1.5"])
def test_since_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_since(text, NOW_MS)
    assert caught.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], Exit.OK),
        ([EQUAL, EQUAL], Exit.OK),
        ([EQUAL, DIFFERS, UNKNOWN], Exit.DIFFERS),
        ([EQUAL, UNKNOWN], Exit.PARTIAL),
        ([UNKNOWN, UNKNOWN], Exit.UNREACHABLE),
    ],
)
def test_the_exit_code_is_that_of_the_worst(statuses: list[str], code: Exit) -> None:
    assert exit_of(statuses) is code


class Compacted(Replicas):
    """Replicas 1 and 2 with a batch for each offset below 100. The second is compacted below the
    first of ``ends``, and below the next one as soon as that was told. What it has compacted, and
    the batch at ``other``, have other bytes."""

    def __init__(self, *ends: int, other: int = -1) -> None:
        super().__init__(ClusterState(None, (), -1, ()), 1)
        self._ends = deque(ends)
        self._other = other

    def ask(
        self, partition: PartitionState, start: int, end: int, max_bytes: int = PIECE_BYTES
    ) -> dict[int, ReplicaDigestResponse]:
        if start < end:
            return {number: self._digest(number, start, end) for number in (1, 2)}
        told = self._ends[0]
        if len(self._ends) > 1:
            self._ends.popleft()
        return {
            number: ReplicaDigestResponse(
                log_start_offset=0, high_watermark=100, compacted_end=told if number == 2 else -1
            )
            for number in (1, 2)
        }

    def _digest(self, number: int, start: int, end: int) -> ReplicaDigestResponse:
        differs = start < self._ends[0] or start <= self._other < end
        value = int(number == 2 and differs)
        first = DigestedBatch(base_offset=start, last_offset=start, leader_epoch=0, crc=value)
        return ReplicaDigestResponse(next_offset=end, digest=value, first=[first])


PARTITION = PartitionState("t", 0, leader=1, replicas=(1, 2), isr=(1, 2))


def test_what_is_compacted_during_a_comparison_may_differ() -> None:
    item = verify_partition(Compacted(20, 60), PARTITION, 0)
    assert (item["status"], item["compacted_end"], item["reason"]) == (EQUAL, 60, None)


def test_a_difference_behind_what_is_compacted_meanwhile_is_told() -> None:
    item = verify_partition(Compacted(20, 60, other=70), PARTITION, 0)
    assert (item["status"], item["first_difference"], item["differs"]) == (DIFFERS, 70, [2])


def test_a_partition_that_is_compacted_again_and_again_is_unknown() -> None:
    item = verify_partition(Compacted(*range(50)), PARTITION, 0)
    assert item["status"] == UNKNOWN
    assert "compacted during each" in item["reason"]
