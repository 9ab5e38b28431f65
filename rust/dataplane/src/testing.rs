//! What tests may do on a network thread, and how they wait. Not in production builds: feature
//! `testing`.

mod waiting;

pub use crate::net::hook::{Hook, Moment, NetworkHook};
pub use crate::storage::kept_room::fix as fix_kept_max_bytes;
pub use waiting::{PATIENCE, eventually, within};
