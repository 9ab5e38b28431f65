//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory. No pyo3.

#![forbid(unsafe_code)]

pub mod api;
pub mod api_versions;
pub mod fetch_session;
pub mod image;
pub mod metadata;
