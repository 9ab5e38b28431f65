//! Threads and sockets of the broker: network threads, partitions, writers, readers, purgatory. No pyo3.
