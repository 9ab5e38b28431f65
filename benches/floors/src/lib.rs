//! The least that produce and fetch can cost on a machine: a floor for a broker's figures.
//!
//! A program that speaks the load generator's part of the protocol and does only a broker's
//! unavoidable work. Produce: receive from a socket, find the batch, check its CRC, copy it to used
//! memory, answer, and write it to its file from another thread in large pieces. Fetch: send from
//! that memory. At the end of the log the producer's thread sends to a waiting consumer. On
//! request, older data comes from the files, read ahead by the connection's threads. It keeps no
//! index, time index or producer state, checks no record, waits for no replica, survives nothing
//! and serves nobody else.

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
