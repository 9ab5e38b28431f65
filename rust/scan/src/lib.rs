//! Reads topics of any Kafka into Arrow record batches: `pyrklog.scan`.
//!
//! ```text
//! names         topics to choose among
//! plan          offsets to read of each partition: splits
//! absence       what a broker does not know of what is to be read
//! doubts        which brokers said the same thing that may be old
//! sample        the first values of them, for a schema
//! coordinator   one thread: finds leaders, checks epochs, hands out splits
//! openers       threads for a moment: connect side by side
//! worker        a few threads: each polls its lanes, decodes, fills a batch
//! lane          one connection, the splits read on it, one Fetch in flight
//! left_out      partitions without which it goes on
//! queue         finished batches, bounded in bytes
//! reader        the caller's side
//! bad_rows      records whose values did not fit, gathered beside a batch
//! bad_writer    a thread that writes them before the batch is given
//! typed         values as columns: JSON, Avro, Protobuf
//! registry      schemas by the ids that values name
//! ```
//!
//! What is promised to users: `docs/understanding/scan.md`. Brokers are not trusted: a length, count
//! or expansion is bounded before its memory is taken.

#![forbid(unsafe_code)]

mod aborted;
mod absence;
mod ask;
mod assign;
mod bad_rows;
mod bad_writer;
mod builder;
mod bytes_builder;
mod columns;
mod coordinator;
mod decode;
mod doubts;
mod entries;
mod error;
mod lane;
mod large;
mod left_out;
mod names;
mod old_formats;
mod openers;
mod options;
mod plan;
mod progress;
mod queue;
mod reader;
mod registry;
mod rows;
mod sample;
mod split;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threads;
mod typed;
mod worker;

pub use bad_rows::{BAD_RECORD_COLUMNS, BadRecords};
pub use bad_writer::{BadRecordSink, NotWritten, cannot_write};
pub use columns::{Column, Columns, UnknownColumn};
pub use error::{ErrorKind, Result, ScanError};
pub use left_out::LeftOut;
pub use names::topic_names;
pub use options::{
    ALL_PARTITIONS, Missing, OptionsError, Position, ScanOptions, TopicPartitions, Unanswered,
};
pub use plan::Plan;
pub use progress::SplitProgress;
pub use reader::{Interrupt, Next, ScanReader, Status};
pub use registry::latest_schema;
pub use sample::{given, plan};
pub use split::Split;
pub use typed::{Decode, Decoding, Format, OnBad, infer};

#[cfg(test)]
mod tests;
