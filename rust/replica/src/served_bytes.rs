//! Record bytes of a partition that fetches got, by where they were.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Counts from when this broker began to host the partition.
#[derive(Debug, Default)]
pub struct ServedBytes {
    cached: AtomicU64,
    from_files: AtomicU64,
}

impl ServedBytes {
    /// Counts what an answer has.
    pub fn count(&self, bytes: usize, is_cached: bool) {
        let counter = if is_cached {
            &self.cached
        } else {
            &self.from_files
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes out of the block cache, and out of files (or the system's page cache).
    pub fn get(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.cached), read(&self.from_files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_where_they_were() {
        let served = ServedBytes::default();
        for (bytes, is_cached) in [(1, true), (20, false), (300, true)] {
            served.count(bytes, is_cached);
        }
        assert_eq!(served.get(), (301, 20));
    }
}
