//! Hooks of tests on a network thread, and their waiting. Not in production builds: feature
//! `testing`.

pub use crate::net::hook::{Hook, Moment, NetworkHook};
pub use pyrklog_base::waiting::{PATIENCE, eventually, within};
pub use pyrklog_storage::page_cache_limit::fix as fix_kept_pages_max_bytes;
