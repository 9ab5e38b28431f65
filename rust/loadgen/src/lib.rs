//! Load generator for Kafka-protocol brokers: prebuilt batches, pipelining, percentiles.
//!
//! One thread a connection, frames that are built once, no allocation for a request: the generator
//! is to cost so little that the broker beside it on a small machine is what gets measured. It
//! speaks to Apache Kafka and to pyrklog alike; `options::HELP` describes its use.

#![forbid(unsafe_code)]

pub mod batch;
pub mod budget;
pub mod clock;
pub mod connection;
pub mod end_to_end;
pub mod error;
pub mod fetch;
pub mod histogram;
pub mod messages;
pub mod options;
pub mod pacing;
pub mod probe;
pub mod produce;
pub mod ring;
pub mod run;
pub mod tally;
