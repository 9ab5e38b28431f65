//! A guard that a request opened in a partition, given back when the request is over.

use std::sync::Arc;

use pyrklog_log::producer_state::guards::{Afterwards, GuardNumber, GuardOwner};
use pyrklog_storage::log_dir_state::Partition;

/// Dropped after the append, and with a request whose client is gone; not under the partition's
/// lock.
#[derive(Debug)]
pub struct OpenGuard {
    /// Where it is open.
    pub partition: Arc<Partition>,
    /// Whose it is.
    pub owner: GuardOwner,
    /// Its number.
    pub number: GuardNumber,
    /// Of the batch in its request.
    pub position: usize,
    /// The batch may be sent again: until then no higher sequence may enter.
    pub is_kept: bool,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let afterwards = match self.is_kept {
            true => Afterwards::Kept,
            false => Afterwards::Closed,
        };
        // Without a leader here it is void.
        if let Ok(log) = self.partition.lock().led() {
            log.end_verification(self.owner, self.number, afterwards);
        }
    }
}
