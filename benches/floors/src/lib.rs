//! The least that produce and fetch can cost on a machine: a floor to hold a broker's figures
//! against.
//!
//! A program that speaks as much of the protocol as the load generator needs, and of the work of a
//! broker does only what nobody can leave out. Produce: receive from a socket, find the batch, check
//! its CRC, copy it to memory that was used before, answer, and write it to its file from another
//! thread in large pieces. Fetch: send from that memory; at the end of the log the producer's thread
//! sends to a consumer that waits; what is not in memory any more, if that is asked for, comes out of
//! the files, read ahead by threads of the connection. It keeps no index, no time index, no producer
//! state, checks no record, waits for no replica, survives nothing and serves nobody else.

#![forbid(unsafe_code)]

pub mod answers;
pub mod chunks;
pub mod files;
pub mod memory;
pub mod partition;
pub mod pieces;
pub mod relay;
pub mod serve;
pub mod store;
pub mod writer;
