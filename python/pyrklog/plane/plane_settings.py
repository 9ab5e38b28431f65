"""The plane's settings, from the broker's options."""

from __future__ import annotations

from pyrklog.base.logs import get_logger
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.broker_options import RACK_AWARE_SELECTOR
from pyrklog.config.connection_quotas import connection_quotas
from pyrklog.config.settings import from_options
from pyrklog.plane.cache_place import cache_place
from pyrklog.plane.core_plane import memory_bytes
from pyrklog.plane.seam import CleanerSettings, ClusterSettings, PlaneSettings

log = get_logger("broker")


def plane_settings(config: BrokerConfig, node_id: int, cluster_id: str) -> PlaneSettings:
    cache_max_bytes = config.integer("pyrklog.cache.max.bytes")
    unwritten_max_bytes = config.integer("pyrklog.unwritten.max.bytes")
    place = cache_place(config.string("pyrklog.cache.dir"), cache_max_bytes)
    if place.reason is not None:
        log.info("no_block_cache", reason=place.reason)
    return from_options(
        PlaneSettings,
        config,
        node_id=node_id,
        cluster_id=cluster_id,
        log_dirs=[str(path) for path in config.log_dirs],
        socket_request_max_bytes=config.request_max_bytes(memory_bytes()),
        receive_buffers_max_bytes=config.receive_buffers_max_bytes(memory_bytes()),
        max_connections_per_ip=connection_quotas(config).max_per_host,
        socket_send_buffer_bytes=config.send_buffer_bytes(memory_bytes()),
        fetch_read_path=config.string("fetch.read.path") or "auto",
        unwritten_max_bytes=None if unwritten_max_bytes < 0 else unwritten_max_bytes,
        cache_dir=None if place.directory is None else str(place.directory),
        cache_max_bytes=None if cache_max_bytes < 0 else cache_max_bytes,
        cleaner=from_options(CleanerSettings, config),
        move_threads=_move_threads(config),
        cluster=_cluster_settings(config) if config.zookeeper is not None else None,
    )


def _move_threads(config: BrokerConfig) -> int:
    """As many as log directories by default; a broker with one moves nothing."""
    threads = config.value("num.replica.alter.log.dirs.threads")
    if len(config.log_dirs) == 1:
        return 0
    return threads if isinstance(threads, int) else len(config.log_dirs)


def _cluster_settings(config: BrokerConfig) -> ClusterSettings:
    return from_options(
        ClusterSettings,
        config,
        listener=config.listeners.inter_broker,
        reads_by_rack=config.string("replica.selector.class") == RACK_AWARE_SELECTOR,
    )
