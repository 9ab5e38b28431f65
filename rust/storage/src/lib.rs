//! Log directories at run time: writers, syncer, readers, block cache, log loader. Knows no
//! connections.

#![forbid(unsafe_code)]

pub mod await_writers;
pub mod begin_internal_read;
pub mod block_cache;
pub mod cache_janitor;
pub mod checkpoints;
pub mod cleaner;
pub mod closing_logs;
pub mod internal_load;
pub mod internal_read;
pub mod kept_arena;
pub mod log_dir_state;
pub mod log_loader;
pub mod log_manager;
pub mod moves;
pub mod muted_queue;
pub mod page_cache_limit;
pub mod partition_dirs;
pub mod reader_pool;
pub mod reader_queue;
pub mod replica_digest;
pub mod shortage;
pub mod syncer;
pub mod syncer_queue;
pub mod writer;
pub mod writer_queue;
