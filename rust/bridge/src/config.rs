//! The plane's configuration, from Python.

use pyo3::prelude::*;
use pyrklog_dataplane::api;
use pyrklog_log::config::UnknownOption;

use crate::classes::keyword_class;
use crate::errors::unknown_option;

keyword_class! {
    /// `api::PlaneConfig`.
    PlaneConfig(api::PlaneConfig) {
        node_id: i32,
        cluster_id: String,
        log_dirs: Vec<String> = log_dirs.into_iter().map(Into::into).collect(),
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
        fetch_read_path: &str = read_path(fetch_read_path)?,
        unwritten_max_bytes: Option<usize>,
        recovery_checkpoint_interval_ms: i64,
        log_start_checkpoint_interval_ms: i64,
        high_watermark_checkpoint_interval_ms: i64,
        retention_check_interval_ms: i64,
        producer_id_expiration_ms: i64,
        auto_create_topics: bool,
        cluster: Option<&Bound<'_, ClusterConfig>> = cluster.map(|one| one.get().0.clone()),
    }
    with {
        cache_dir: Option<String>,
        cache_max_bytes: Option<u64>,
        cache_keeps: bool,
        cache_drops: bool,
        cache_flush_bytes: usize,
        cache_flush_ms: i64,
        cache_direct_min_bytes: u32,
    } => {
        cache: api::CacheConfig {
            dir: cache_dir.map(Into::into),
            max_bytes: cache_max_bytes,
            keeps: cache_keeps,
            drops: cache_drops,
            flush_bytes: cache_flush_bytes,
            flush_ms: cache_flush_ms,
            direct_min_bytes: cache_direct_min_bytes,
        },
    }
}

keyword_class! {
    /// `api::ClusterConfig`.
    ClusterConfig(api::ClusterConfig) {
        listener: String,
        fetchers: usize,
        fetch_wait_max_ms: i32,
        fetch_min_bytes: i32,
        fetch_max_bytes: i32,
        fetch_response_max_bytes: i32,
        fetch_backoff_ms: i64,
        socket_timeout_ms: i64,
        reads_by_rack: bool,
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
