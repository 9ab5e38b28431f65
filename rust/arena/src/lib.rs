//! The shared-memory arena of the block cache: produced bytes in a file that survives the death of
//! the process. `block-cache.md` is its contract: the format, what a kill leaves, who may use it.
//!
//! An [`Arena`] belongs to one log directory. A log keeps a [`CachedSegment`] for each of its
//! segments that has bytes here, appends to it, and tells it what was written to the file. Any
//! thread reads it under a [`Guard`]. A [`Janitor`] keeps free chunks ready.
//!
//! Lock order: a segment's blocks, then the pool of chunks.

mod arena;
mod attach;
mod backing;
mod counters;
mod error;
#[cfg(test)]
mod explore;
mod file;
mod fnv;
#[cfg(any(test, feature = "testing"))]
mod fuse;
mod growth;
mod guard;
mod header;
mod janitor;
mod keep;
mod layout;
mod leftover;
pub mod limits;
mod memory;
#[cfg(test)]
mod model;
mod pool;
mod reclaim;
#[cfg(any(test, feature = "testing"))]
mod residence;
pub mod room;
mod segment;
mod shares;
mod slots;
mod sync;

pub use arena::Arena;
pub use attach::{Found, FoundPartition};
pub use counters::ArenaStatistics;
pub use error::ArenaError;
pub use fnv::Fnv;
#[cfg(any(test, feature = "testing"))]
pub use fuse::Fuse;
pub use guard::Guard;
pub use header::{Header, Identity, read as read_header};
pub use janitor::{Janitor, Tended};
pub use keep::{Glance, LeftFiles};
pub use leftover::{
    SET_ASIDE, is_arena_name, is_set_aside_name, is_unfinished, read_header_of, remove_unfinished,
    remove_unlocked,
};
#[cfg(any(test, feature = "testing"))]
pub use residence::resident_pages;
pub use segment::{CachedSegment, Rate};
pub use slots::{PartitionName, Slot};
