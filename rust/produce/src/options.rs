//! What a producer is given.

use std::time::Duration;

use pyrklog_client::ClientConfig;
use pyrklog_wire::batch::Compression;

/// Options of a [`crate::Producer`].
#[derive(Clone, Debug)]
pub struct ProduceOptions {
    /// Where the cluster is.
    pub client: ClientConfig,
    /// The topic of all rows; else the column `topic` has it.
    pub topic: Option<String>,
    /// Names of the columns in their order: `key`, `value`, `topic`, `partition`, `headers`,
    /// `timestamp`, `offset`; an empty name is passed over.
    pub columns: Vec<String>,
    /// How batches are compressed.
    pub codec: Compression,
    /// A batch before compression.
    pub batch_bytes: usize,
    /// Batches that are not acknowledged, full or not.
    pub memory_bytes: usize,
    /// A request, unless one batch exceeds it.
    pub request_bytes: usize,
    /// How long a batch, or a question to a coordinator, is tried.
    pub delivery_timeout: Duration,
    /// Of a producer with transactions.
    pub transactional_id: Option<String>,
    /// How long a coordinator leaves a transaction open.
    pub transaction_timeout_ms: i32,
    /// Each row has the offset that it gets (column `offset`), at brokers of pyrklog: no producer
    /// id, and no transactions.
    pub keeps_offsets: bool,
}
