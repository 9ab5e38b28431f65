//! Disks for tests: one in memory that forgets like a real one, one that fails on demand, and one
//! that stands still on demand.

mod faulty;
mod mem;
mod stalling;

pub use faulty::{Fault, FaultyDisk, Operation};
pub use mem::MemDisk;
pub use stalling::StallingDisk;
