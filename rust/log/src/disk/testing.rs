//! Disks for tests: one in memory that forgets like a real one, and one that fails on demand.

mod faulty;
mod mem;

pub use faulty::{Fault, FaultyDisk, Operation};
pub use mem::MemDisk;
