//! Disks for tests: in memory with losses, failing on demand, and stalling on demand.

mod faulty;
mod mem;
mod stalling;

pub use faulty::{Fault, FaultyDisk, Operation};
pub use mem::MemDisk;
pub use stalling::StallingDisk;
