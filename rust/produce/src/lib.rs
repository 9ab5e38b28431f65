//! Writes Arrow record batches to topics of any Kafka from 0.11 on.
//!
//! [`Producer`] turns rows into record batches and sends them, with sequence numbers and in the
//! caller's thread; [`Transactions`] ends transactions that others have left open, by their producer
//! ids and epochs. What is promised: `docs/understanding/spark-sink.md`. A producer that keeps
//! offsets writes to brokers of pyrklog alone: `docs/understanding/mirroring.md`.
//!
//! ```text
//! rows -> partitioner -> partition (open batch, queue) -> lanes, one a leader -> brokers
//! ```

#![forbid(unsafe_code)]

mod at_offsets;
mod coordinators;
mod error;
mod lane;
mod options;
mod partition;
mod partitioner;
mod producer;
mod pump;
mod rows;
mod transactions;

pub use error::{ErrorKind, ProduceError, Result};
pub use options::ProduceOptions;
pub use partitioner::{murmur2, partition_of_key};
pub use producer::{Producer, Written};
pub use transactions::{LeftOpen, Outcome, Transactions};
