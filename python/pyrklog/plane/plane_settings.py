"""The plane's settings, from the broker's options."""

from __future__ import annotations

from pyrklog.base.logs import get_logger
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.broker_options import RACK_AWARE_SELECTOR
from pyrklog.plane.cache_place import cache_place
from pyrklog.plane.core_plane import memory_bytes
from pyrklog.plane.dataplane import ClusterSettings, PlaneSettings

log = get_logger("broker")


def plane_settings(config: BrokerConfig, node_id: int, cluster_id: str) -> PlaneSettings:
    number = config.integer
    cache_max_bytes = number("pyrklog.cache.max.bytes")
    unwritten_max_bytes = number("pyrklog.unwritten.max.bytes")
    place = cache_place(config.string("pyrklog.cache.dir"), cache_max_bytes)
    if place.reason is not None:
        log.info("no_block_cache", reason=place.reason)
    return PlaneSettings(
        node_id=node_id,
        cluster_id=cluster_id,
        log_dirs=[str(path) for path in config.log_dirs],
        network_threads=number("num.network.threads"),
        reader_threads=number("num.io.threads"),
        recovery_threads_per_dir=number("num.recovery.threads.per.data.dir"),
        writer_threads_per_dir=number("pyrklog.writer.threads.per.data.dir"),
        socket_request_max_bytes=config.request_max_bytes(memory_bytes()),
        receive_buffers_max_bytes=config.receive_buffers_max_bytes(memory_bytes()),
        control_queue_max_requests=number("queued.max.requests"),
        connections_max_idle_ms=number("connections.max.idle.ms"),
        max_connections=number("max.connections"),
        max_connections_per_ip=number("max.connections.per.ip"),
        socket_send_buffer_bytes=config.send_buffer_bytes(memory_bytes()),
        socket_receive_buffer_bytes=number("socket.receive.buffer.bytes"),
        fetch_max_bytes=number("fetch.max.bytes"),
        fetch_session_slots=number("max.incremental.fetch.session.cache.slots"),
        fetch_read_path=config.string("fetch.read.path") or "auto",
        unwritten_max_bytes=None if unwritten_max_bytes < 0 else unwritten_max_bytes,
        cache_dir=None if place.directory is None else str(place.directory),
        cache_max_bytes=None if cache_max_bytes < 0 else cache_max_bytes,
        cache_keeps=config.boolean("pyrklog.cache.keep"),
        cache_drops=config.boolean("pyrklog.cache.drop"),
        cache_flush_bytes=number("pyrklog.cache.flush.bytes"),
        cache_flush_ms=number("pyrklog.cache.flush.ms"),
        cache_direct_min_bytes=number("pyrklog.cache.direct.min.bytes"),
        recovery_checkpoint_interval_ms=number("log.flush.offset.checkpoint.interval.ms"),
        log_start_checkpoint_interval_ms=number("log.flush.start.offset.checkpoint.interval.ms"),
        high_watermark_checkpoint_interval_ms=number(
            "replica.high.watermark.checkpoint.interval.ms"
        ),
        retention_check_interval_ms=number("log.retention.check.interval.ms"),
        producer_id_expiration_ms=number("producer.id.expiration.ms"),
        auto_create_topics=config.boolean("auto.create.topics.enable"),
        cluster=_cluster_settings(config) if config.zookeeper is not None else None,
    )


def _cluster_settings(config: BrokerConfig) -> ClusterSettings:
    number = config.integer
    return ClusterSettings(
        listener=config.listeners.inter_broker,
        fetchers=number("num.replica.fetchers"),
        fetch_wait_max_ms=number("replica.fetch.wait.max.ms"),
        fetch_min_bytes=number("replica.fetch.min.bytes"),
        fetch_max_bytes=number("replica.fetch.max.bytes"),
        fetch_response_max_bytes=number("replica.fetch.response.max.bytes"),
        fetch_backoff_ms=number("replica.fetch.backoff.ms"),
        socket_timeout_ms=number("replica.socket.timeout.ms"),
        reads_by_rack=config.string("replica.selector.class") == RACK_AWARE_SELECTOR,
    )
