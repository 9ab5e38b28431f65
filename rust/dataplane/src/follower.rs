//! Following: fetches what other brokers lead, and appends it here.
//!
//! One thread for each leader and fetcher number (`num.replica.fetchers`), with one connection and
//! one incremental fetch session over all its partitions (KIP-227). As many again, each with its
//! own connection, follow what is not in sync yet: producers (acks=all) wait for replicas in sync,
//! and must not wait for old records beside theirs. A partition changes between both as it catches
//! up, or falls behind; `PartitionState::fetcher` says which one has it. Whether an answer still counts
//! is decided under the partition's mutex: role, leader epoch and log end must be those of the
//! request. So a change of a partition's role needs no message to the thread: it finds out and lets
//! go.
//!
//! Truncation has to wait for a disk: it is a command of the log loader ([`truncation`]), which
//! gives the partition back when it is done. A replica that may begin at its leader's end asks for
//! its start before it fetches ([`partial`]). What it lacks is back-filled by threads of their own, one
//! for each broker that it is fetched from ([`back_fill`]).

pub mod append_response;
pub mod back_fill;
pub mod back_fill_thread;
pub mod fetch_state;
pub mod fetcher_manager;
pub mod fetcher_queue;
pub mod fetcher_thread;
pub mod following;
pub mod link;
pub mod partial;
pub mod truncation;
