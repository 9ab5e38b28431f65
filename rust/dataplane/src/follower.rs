//! Following: fetching what other brokers lead, and appending it here.
//!
//! One thread for each leader and fetcher number (`num.replica.fetchers`), with one connection and
//! one incremental fetch session over all partitions that it has (KIP-227). Whether an answer still
//! counts is decided under the partition's mutex: role, leader epoch and log end have to be those of
//! the question. So a change of a partition's role needs no word from here; the thread finds
//! out and lets go.
//!
//! What has to wait for a disk (cutting a log's end off) is a command of the loader threads
//! ([`truncation`]), which gives the partition back when it is done.

pub mod append_response;
pub mod fetch_state;
pub mod fetcher_manager;
pub mod fetcher_thread;
pub mod following;
pub mod link;
pub mod mailbox;
pub mod truncation;
