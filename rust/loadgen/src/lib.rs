//! Load generator for Kafka-protocol brokers: prebuilt batches, pipelining, percentiles.
//!
//! One thread per connection (transactional producers share threads), frames built once, no
//! allocation per request: the generator must cost little, so that a broker beside it on a small machine is what gets measured. It works with
//! Apache Kafka and pyrklog; `options::HELP` describes its use.

#![forbid(unsafe_code)]

pub mod batch;
pub mod budget;
pub mod clock;
pub mod connection;
pub mod end_to_end;
pub mod error;
pub mod fetch;
pub mod histogram;
pub mod measurement;
pub mod messages;
pub mod options;
pub mod pacing;
pub mod probe;
pub mod produce;
pub mod program;
pub mod ring;
pub mod run;
pub mod tally;
pub mod transactions;
