//! Who may have much of old messages in memory: one thread of the process.

use parking_lot::{Mutex, MutexGuard};

/// What each thread may read, or expand, at any time.
pub(super) const SMALL_BYTES: usize = 4 << 20;
static LARGE: Mutex<()> = Mutex::new(());

/// Waits until no other thread has it.
pub(super) fn lock() -> MutexGuard<'static, ()> {
    LARGE.lock()
}

/// To be held while an entry of `len` bytes is in memory; nothing for small ones.
pub(super) fn lock_for(len: usize) -> Option<MutexGuard<'static, ()>> {
    (len > SMALL_BYTES).then(lock)
}

#[cfg(test)]
pub(super) fn is_locked() -> bool {
    LARGE.is_locked()
}
