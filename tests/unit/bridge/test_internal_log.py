"""Appends to internal topics, and reads, through the real data plane."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pyrklog import _core
from pyrklog.config.resolved import LogConfig
from pyrklog.errors import ErrorCode
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.internal_log import (
    AppendResult,
    InternalBatch,
    InternalRead,
    InternalRecord,
    NewRecord,
    Producer,
)
from pyrklog.plane.seam import (
    CleanerSettings,
    PlaneSettings,
    Request,
    Session,
    VerifyTransaction,
)
from pyrklog.plane.values import BrokerImage, ImageDelta, LeaderSpec, PartitionImage, TopicImage

TOPIC = "__consumer_offsets"
NOT_LEADER = AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
ZSTD = 4
FOREVER = 2**63 - 1
LOG = LogConfig(
    segment_bytes=100 << 20,
    segment_ms=604_800_000,
    segment_jitter_ms=0,
    segment_index_bytes=10 << 20,
    index_interval_bytes=4096,
    max_message_bytes=1_048_588,
    message_timestamp_type="CreateTime",
    message_timestamp_before_max_ms=FOREVER,
    message_timestamp_after_max_ms=FOREVER,
    compression_type="producer",
    compression_gzip_level=-1,
    compression_lz4_level=9,
    compression_zstd_level=3,
    message_downconversion_enable=True,
    flush_messages=FOREVER,
    flush_ms=FOREVER,
    retention_ms=-1,
    retention_bytes=-1,
    file_delete_delay_ms=60_000,
    cleanup_delete=False,
    cleanup_compact=True,
    delete_retention_ms=86_400_000,
    min_cleanable_dirty_ratio=0.5,
    min_compaction_lag_ms=0,
    max_compaction_lag_ms=FOREVER,
)


class Silent:
    def on_request(self, request: Request) -> None:
        raise AssertionError(request)

    def on_heartbeat(self, heartbeat: _core.Heartbeat) -> None:
        raise AssertionError(heartbeat)

    def on_offset_commit(self, commit: _core.OffsetCommit) -> None:
        raise AssertionError(commit)

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        raise AssertionError(topics)

    def on_client_gone(self, request_id: int) -> None:
        raise AssertionError(request_id)

    def on_verify_transaction(self, asked: VerifyTransaction) -> None:
        raise AssertionError(asked)

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        raise AssertionError(topic)

    def on_follower_log_start(self, topic: str, partition: int) -> None:
        raise AssertionError(topic)

    def on_partition_failed(self, topic: str, topic_id: bytes, partition: int, reason: str) -> None:
        raise AssertionError(reason)

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        raise AssertionError(reason)

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        assert level == "info", (event, fields)


def settings(folder: Path) -> PlaneSettings:
    return PlaneSettings(
        node_id=1,
        cluster_id="test",
        log_dirs=[str(folder)],
        network_threads=1,
        reader_threads=1,
        recovery_threads_per_dir=1,
        writer_threads_per_dir=1,
        socket_request_max_bytes=1 << 20,
        receive_buffers_max_bytes=1 << 24,
        control_queue_max_requests=10,
        connections_max_idle_ms=600_000,
        max_connections=10,
        max_connections_per_ip=10,
        socket_send_buffer_bytes=-1,
        socket_receive_buffer_bytes=-1,
        fetch_max_bytes=1 << 20,
        fetch_session_slots=10,
        fetch_read_path="auto",
        unwritten_max_bytes=64 << 20,
        cache_dir=None,
        cache_max_bytes=None,
        cache_keeps=False,
        cache_drops=False,
        cache_flush_bytes=256 << 10,
        cache_flush_ms=500,
        cache_direct_min_bytes=64 << 10,
        cleaner=CleanerSettings(True, 1, 1 << 20, 0.9, 1e18, 15_000),
        move_threads=0,
        recovery_checkpoint_interval_ms=60_000,
        log_start_checkpoint_interval_ms=60_000,
        high_watermark_checkpoint_interval_ms=5_000,
        retention_check_interval_ms=300_000,
        producer_id_expiration_ms=86_400_000,
        auto_create_topics=False,
        cluster=None,
    )


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[Plane]:
    """A plane that does not listen yet and leads the topic's one partition in epoch 5."""
    plane = Plane(settings(folder))
    partition = PartitionImage(0, 1, 5, [1], [1], [])
    topic = TopicImage(TOPIC, b"\1" * 16, True, LOG, 1, [partition])
    brokers = [BrokerImage(1, None, [("PLAINTEXT", "127.0.0.1", 9092)])]
    plane.apply_image(ImageDelta(1, 1, brokers, [topic], []))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(plane.run, Silent())
        assert await plane.become_leaders([LeaderSpec(TOPIC, 0, 5, [1], [1], True)]) == [0]
        yield plane
        await plane.shutdown(1000)
        nursery.cancel_scope.cancel()


async def append(
    plane: Plane,
    *records: tuple[bytes, bytes | None],
    codec: int = 0,
    epoch: int = 5,
    producer: Producer | None = None,
) -> AppendResult:
    return await plane.append_internal(
        TOPIC,
        0,
        [NewRecord(*record) for record in records],
        timestamp_ms=1_700_000_000_000,
        codec=codec,
        expected_epoch=epoch,
        producer=producer,
    )


async def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        assert await append(plane, (b"a", b"1"), (b"b", None)) == (ErrorCode.NONE, 0)
        assert await append(plane, (b"c", b""), codec=ZSTD) == (ErrorCode.NONE, 2)
        assert await append(plane, (b"d", b"4"), producer=Producer(7, 0)) == (ErrorCode.NONE, 3)
        read = await plane.read_internal(TOPIC, 0, 0, max_bytes=1000)
        first = [InternalRecord(0, b"a", b"1"), InternalRecord(1, b"b", None)]
        assert read == InternalRead(
            ErrorCode.NONE,
            [
                InternalBatch(0, 1, -1, False, False, first),
                InternalBatch(2, 2, -1, False, False, [InternalRecord(2, b"c", b"")]),
                InternalBatch(3, 3, 7, True, False, [InternalRecord(3, b"d", b"4")]),
            ],
            4,
            4,
        )
        assert isinstance(read.batches[0].records[0], InternalRecord)
        assert read.error is ErrorCode.NONE
        read = await plane.read_internal(TOPIC, 0, 2, max_bytes=1)
        assert ([batch.base_offset for batch in read.batches], read.next_offset) == ([2], 3)
        statistics = plane.statistics()
        assert statistics["internal_appends"] == 3
        assert statistics["internal_reads"] == 2


async def test_appends_are_made_by_the_call_and_may_be_awaited_later_or_never(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path) as plane:
        made = [
            plane.append_internal(
                TOPIC,
                0,
                [NewRecord(b"%d" % number, b"x")],
                timestamp_ms=0,
                codec=0,
                expected_epoch=5,
            )
            for number in range(300)
        ]
        with trio.CancelScope() as impatient:
            impatient.cancel()
            await made[1]
        assert impatient.cancelled_caught
        for number in range(299, 1, -1):
            assert await made[number] == (ErrorCode.NONE, number)
        assert await made[2] == (ErrorCode.NONE, 2), "a second time"
        read = await plane.read_internal(TOPIC, 0, 0, max_bytes=1 << 20)
        keys = [record.key for batch in read.batches for record in batch.records]
        assert keys == [b"%d" % number for number in range(300)]


async def test_errors_are_codes(tmp_path: Path) -> None:
    async with leading(tmp_path) as plane:
        assert await append(plane, (b"k", b"v"), epoch=4) == NOT_LEADER
        large = await append(plane, (b"k", b"x" * 2_000_000))
        assert large == AppendResult(ErrorCode.MESSAGE_TOO_LARGE)
        read = await plane.read_internal(TOPIC, 3, 0, max_bytes=1)
        assert read == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [], -1, -1)
        await plane.stop_partitions([(TOPIC, 0, False)])
        assert await append(plane, (b"k", b"v")) == NOT_LEADER
    assert await append(plane, (b"k", b"v")) == NOT_LEADER


@pytest.mark.parametrize("record", [("key", b"v"), (b"k", "value"), (None, b"v"), b"kv"])
async def test_records_are_bytes(tmp_path: Path, record: object) -> None:
    async with leading(tmp_path) as plane:
        with pytest.raises(TypeError):
            await append(plane, record)  # type: ignore[arg-type]
        assert await append(plane, (b"k", b"v")) == (ErrorCode.NONE, 0)
