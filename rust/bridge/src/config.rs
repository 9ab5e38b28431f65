//! The plane's configuration and a topic's options, from Python.

use pyo3::prelude::*;
use pyrklog_dataplane::api;
use pyrklog_log::config::UnknownOption;

use crate::errors::unknown_option;

/// `api::PlaneConfig`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct PlaneConfig(pub api::PlaneConfig);

#[pymethods]
impl PlaneConfig {
    #[new]
    #[pyo3(signature = (
        *, node_id, cluster_id, log_dirs, network_threads, reader_threads,
        recovery_threads_per_dir, writer_threads_per_dir, socket_request_max_bytes,
        receive_buffers_max_bytes,
        control_queue_max_requests, connections_max_idle_ms, max_connections,
        max_connections_per_ip, socket_send_buffer_bytes, socket_receive_buffer_bytes,
        fetch_max_bytes, fetch_session_slots, fetch_read_path, unwritten_max_bytes,
        cache_dir, cache_max_bytes, cache_keeps, cache_drops, cache_flush_bytes, cache_flush_ms, cache_direct_min_bytes,
        recovery_checkpoint_interval_ms, log_start_checkpoint_interval_ms,
        high_watermark_checkpoint_interval_ms, retention_check_interval_ms,
        producer_id_expiration_ms, auto_create_topics, cluster
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn new(
        node_id: i32,
        cluster_id: String,
        log_dirs: Vec<String>,
        network_threads: usize,
        reader_threads: usize,
        recovery_threads_per_dir: usize,
        writer_threads_per_dir: usize,
        socket_request_max_bytes: usize,
        receive_buffers_max_bytes: usize,
        control_queue_max_requests: usize,
        connections_max_idle_ms: i64,
        max_connections: usize,
        max_connections_per_ip: usize,
        socket_send_buffer_bytes: i32,
        socket_receive_buffer_bytes: i32,
        fetch_max_bytes: usize,
        fetch_session_slots: usize,
        fetch_read_path: &str,
        unwritten_max_bytes: Option<usize>,
        cache_dir: Option<String>,
        cache_max_bytes: Option<u64>,
        cache_keeps: bool,
        cache_drops: bool,
        cache_flush_bytes: usize,
        cache_flush_ms: i64,
        cache_direct_min_bytes: u32,
        recovery_checkpoint_interval_ms: i64,
        log_start_checkpoint_interval_ms: i64,
        high_watermark_checkpoint_interval_ms: i64,
        retention_check_interval_ms: i64,
        producer_id_expiration_ms: i64,
        auto_create_topics: bool,
        cluster: Option<&Bound<'_, ClusterConfig>>,
    ) -> PyResult<Self> {
        Ok(Self(api::PlaneConfig {
            node_id,
            cluster_id,
            log_dirs: log_dirs.into_iter().map(Into::into).collect(),
            network_threads,
            reader_threads,
            recovery_threads_per_dir,
            writer_threads_per_dir,
            socket_request_max_bytes,
            receive_buffers_max_bytes,
            control_queue_max_requests,
            connections_max_idle_ms,
            max_connections,
            max_connections_per_ip,
            socket_send_buffer_bytes,
            socket_receive_buffer_bytes,
            fetch_max_bytes,
            fetch_session_slots,
            fetch_read_path: read_path(fetch_read_path)?,
            unwritten_max_bytes,
            cache: api::CacheConfig {
                dir: cache_dir.map(Into::into),
                max_bytes: cache_max_bytes,
                direct_min_bytes: cache_direct_min_bytes,
                ..cache(cache_keeps, cache_drops, cache_flush_bytes, cache_flush_ms)
            },
            recovery_checkpoint_interval_ms,
            log_start_checkpoint_interval_ms,
            high_watermark_checkpoint_interval_ms,
            retention_check_interval_ms,
            producer_id_expiration_ms,
            auto_create_topics,
            cluster: cluster.map(|cluster| cluster.get().0.clone()),
        }))
    }
}

fn cache(keeps: bool, drops: bool, flush_bytes: usize, flush_ms: i64) -> api::CacheConfig {
    api::CacheConfig {
        keeps,
        drops,
        flush_bytes,
        flush_ms,
        ..api::CacheConfig::off()
    }
}

/// `api::ClusterConfig`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct ClusterConfig(pub api::ClusterConfig);

#[pymethods]
impl ClusterConfig {
    #[new]
    #[pyo3(signature = (
        *, listener, fetchers, fetch_wait_max_ms, fetch_min_bytes, fetch_max_bytes,
        fetch_response_max_bytes, fetch_backoff_ms, socket_timeout_ms, reads_by_rack
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn new(
        listener: String,
        fetchers: usize,
        fetch_wait_max_ms: i32,
        fetch_min_bytes: i32,
        fetch_max_bytes: i32,
        fetch_response_max_bytes: i32,
        fetch_backoff_ms: i64,
        socket_timeout_ms: i64,
        reads_by_rack: bool,
    ) -> Self {
        Self(api::ClusterConfig {
            listener,
            fetchers,
            fetch_wait_max_ms,
            fetch_min_bytes,
            fetch_max_bytes,
            fetch_response_max_bytes,
            fetch_backoff_ms,
            socket_timeout_ms,
            reads_by_rack,
        })
    }
}

fn read_path(name: &str) -> PyResult<api::ReadPath> {
    match name {
        "auto" => Ok(api::ReadPath::Auto),
        "sendfile" => Ok(api::ReadPath::Sendfile),
        "copy" => Ok(api::ReadPath::Copy),
        _ => Err(unknown_option(UnknownOption {
            option: "fetch.read.path",
            value: name.to_owned(),
        })),
    }
}
