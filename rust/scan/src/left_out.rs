//! Partitions whose leaders do not answer, without which a scan may go on.

use std::sync::Arc;

use parking_lot::Mutex;

/// A partition that is not read, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// A sentence: why.
    pub reason: String,
}

/// Those of a scan, which its threads share: each partition once at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOuts(Arc<Mutex<Vec<LeftOut>>>);

impl LeftOuts {
    pub fn new(planned: Vec<LeftOut>) -> LeftOuts {
        LeftOuts(Arc::new(Mutex::new(planned)))
    }

    pub fn push(&self, one: LeftOut) {
        self.0.lock().push(one);
    }

    pub fn read(&self) -> Vec<LeftOut> {
        self.0.lock().clone()
    }
}
