//! Disks for tests.
