//! The options that the plane is started with, read from `plane/seam.py`, and the limits of
//! connections.

use std::net::IpAddr;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyrklog_dataplane::seam;
use pyrklog_log::config::UnknownOption;

use crate::errors::unknown_option;
use crate::fields::{field, fields, read};

/// Reads `PlaneSettings`; `ValueError` for an unknown word of an option.
pub fn plane_config(settings: &Bound<'_, PyAny>) -> PyResult<seam::PlaneConfig> {
    let py = settings.py();
    let read_path_name: String = field(settings, intern!(py, "fetch_read_path"))?;
    let cluster: Option<Bound<'_, PyAny>> = field(settings, intern!(py, "cluster"))?;
    Ok(read!(settings => seam::PlaneConfig {
        node_id, cluster_id, log_dirs, network_threads, reader_threads,
        recovery_threads_per_dir, writer_threads_per_dir, socket_request_max_bytes,
        receive_buffers_max_bytes, control_queue_max_requests, connections_max_idle_ms,
        max_connections, max_connections_per_ip, socket_send_buffer_bytes,
        socket_receive_buffer_bytes, fetch_max_bytes, fetch_session_slots, unwritten_max_bytes,
        recovery_checkpoint_interval_ms, log_start_checkpoint_interval_ms,
        high_watermark_checkpoint_interval_ms, retention_check_interval_ms,
        producer_id_expiration_ms, auto_create_topics, move_threads
    } with {
        fetch_read_path: read_path(&read_path_name)?,
        cache: cache_config(settings)?,
        cleaner: cleaner_config(&field(settings, intern!(py, "cleaner"))?)?,
        cluster: cluster.as_ref().map(cluster_config).transpose()?,
    }))
}

fn cache_config(settings: &Bound<'_, PyAny>) -> PyResult<seam::CacheConfig> {
    let py = settings.py();
    Ok(seam::CacheConfig {
        dir: field(settings, intern!(py, "cache_dir"))?,
        max_bytes: field(settings, intern!(py, "cache_max_bytes"))?,
        keeps: field(settings, intern!(py, "cache_keeps"))?,
        drops: field(settings, intern!(py, "cache_drops"))?,
        flush_bytes: field(settings, intern!(py, "cache_flush_bytes"))?,
        flush_ms: field(settings, intern!(py, "cache_flush_ms"))?,
        direct_min_bytes: field(settings, intern!(py, "cache_direct_min_bytes"))?,
    })
}

/// Reads `CleanerSettings`.
pub fn cleaner_config(settings: &Bound<'_, PyAny>) -> PyResult<seam::CleanerConfig> {
    Ok(read!(settings => seam::CleanerConfig {
        is_enabled, threads, dedupe_buffer_bytes, load_factor, io_max_bytes_per_second, backoff_ms
    }))
}

fn cluster_config(settings: &Bound<'_, PyAny>) -> PyResult<seam::ClusterConfig> {
    Ok(read!(settings => seam::ClusterConfig {
        listener, fetchers, fetch_wait_max_ms, fetch_min_bytes, fetch_max_bytes,
        fetch_response_max_bytes, fetch_backoff_ms, socket_timeout_ms, back_fill_rate_bytes,
        promotion_window_ms,
        reads_by_rack
    }))
}

/// Reads `ConnectionQuotas`; `ValueError` for text that is no address.
pub fn connection_quotas(quotas: &Bound<'_, PyAny>) -> PyResult<seam::ConnectionQuotas> {
    let py = quotas.py();
    let of_hosts: Vec<(String, usize)> = field(quotas, intern!(py, "max_of_hosts"))?;
    let max_of_hosts = of_hosts.into_iter().map(|(host, max)| {
        let host: IpAddr = host.parse().map_err(|_| {
            PyValueError::new_err(format!("argument 'max_of_hosts': no address: {host}"))
        })?;
        Ok((host.to_canonical(), max))
    });
    let of_listener = |one: &Bound<'_, PyAny>| -> PyResult<seam::ListenerQuota> {
        Ok(read!(one => seam::ListenerQuota { name, max, max_per_second }))
    };
    Ok(
        read!(quotas => seam::ConnectionQuotas { max, max_per_host, max_per_second } with {
            max_of_hosts: max_of_hosts.collect::<PyResult<_>>()?,
            of_listeners: fields(quotas, intern!(py, "of_listeners"), of_listener)?,
        }),
    )
}

fn read_path(name: &str) -> PyResult<seam::ReadPath> {
    match name {
        "auto" => Ok(seam::ReadPath::Auto),
        "sendfile" => Ok(seam::ReadPath::Sendfile),
        "copy" => Ok(seam::ReadPath::Copy),
        _ => Err(unknown_option(UnknownOption {
            option: "fetch.read.path",
            value: name.to_owned(),
        })),
    }
}
