"""A data plane whose control plane answers every request at once: the cost of the seam alone.

``python -m benches.seam_server FOLDER`` prints its port and ends with its standard input.
"""

import sys
from collections.abc import Mapping, Sequence

import trio

from pyrklog.groups.core_types import Heartbeat, OffsetCommit
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.seam import (
    CleanerSettings,
    PlaneSettings,
    Request,
    Session,
    VerifyTransaction,
)
from pyrklog.plane.values import BrokerImage, ImageDelta

# ListPartitionReassignments v0: no throttling, no error, no message, no topics, no tags.
_ANSWER = bytes(4) + bytes(2) + b"\x00\x01\x00"
_GRACE_MS = 1_000


class Answerer:
    """Answers in the turn of the event."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def on_request(self, request: Request) -> None:
        self._plane.reply(request.id, _ANSWER)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        raise AssertionError(heartbeat)

    def on_offset_commit(self, commit: OffsetCommit) -> None:
        raise AssertionError(commit)

    def on_topics_missing(self, request_id: int, topics: Sequence[str], session: Session) -> None:
        self._plane.close_request(request_id)

    def on_client_gone(self, request_id: int) -> None:
        """Its request is answered already."""

    def on_verify_transaction(self, asked: VerifyTransaction) -> None:
        raise AssertionError("no transactions here")

    def on_follower_caught_up(
        self, topic: str, partition: int, leader_epoch: int, broker: int, broker_epoch: int
    ) -> None:
        raise AssertionError(topic)

    def on_follower_log_start(self, topic: str, partition: int) -> None:
        raise AssertionError(topic)

    def on_partition_failed(self, topic: str, topic_id: bytes, partition: int, reason: str) -> None:
        raise OSError(f"{topic}-{partition}: {reason}")

    def on_log_dir_failed(
        self, path: str, reason: str, partitions: Sequence[tuple[str, int]]
    ) -> None:
        """Ends the benchmark loudly."""
        raise OSError(f"{path}: {reason}")

    def on_notice(self, event: str, fields: Mapping[str, str], level: str) -> None:
        """Shown, should a benchmark fail."""
        print(level, event, dict(fields), file=sys.stderr)


def _settings(folder: str) -> PlaneSettings:
    return PlaneSettings(
        node_id=1,
        cluster_id="seam-benchmark",
        log_dirs=[folder],
        network_threads=1,
        reader_threads=1,
        recovery_threads_per_dir=1,
        writer_threads_per_dir=1,
        socket_request_max_bytes=104_857_600,
        receive_buffers_max_bytes=268_435_456,
        control_queue_max_requests=500,
        connections_max_idle_ms=600_000,
        max_connections=10_000,
        max_connections_per_ip=10_000,
        socket_send_buffer_bytes=-1,
        socket_receive_buffer_bytes=-1,
        fetch_max_bytes=57_671_680,
        fetch_session_slots=1_000,
        fetch_read_path="auto",
        unwritten_max_bytes=67_108_864,
        cache_dir=None,
        cache_max_bytes=None,
        cache_keeps=False,
        cache_drops=False,
        cache_flush_bytes=262_144,
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


async def serve(folder: str) -> None:
    """Until standard input ends."""
    plane = Plane(_settings(folder))
    port = plane.listen("PLAINTEXT", "127.0.0.1", 0)
    broker = BrokerImage(id=1, rack=None, endpoints=[("PLAINTEXT", "127.0.0.1", port)])
    plane.apply_image(
        ImageDelta(version=1, controller_id=1, brokers=[broker], topics=[], removed_topics=[])
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(plane.run, Answerer(plane))
        print(port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        await plane.shutdown(_GRACE_MS)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve, sys.argv[1])
