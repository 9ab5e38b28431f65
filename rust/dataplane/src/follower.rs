//! Following: fetching what other brokers lead, and appending it here.
//!
//! One thread for each leader and fetcher number (`num.replica.fetchers`), with one connection and
//! one incremental fetch session over all partitions that it has (KIP-227). Whether an answer still
//! counts is decided under the partition's mutex: role, leader epoch and log end have to be those of
//! the question. So whoever changes a partition's role needs to ask nobody here; the thread finds
//! out and lets go.
//!
//! What has to wait for a disk (cutting a log's end off) is a command of the loader threads
//! ([`cutting`]), which gives the partition back when it is done.

mod asking;
mod cutting;
mod fetcher;
mod fetchers;
mod following;
mod link;

mod taking;

pub use cutting::{lower_high_watermark_row, to_high_watermark, write_cut};
pub use fetchers::Fetchers;

#[cfg(feature = "sim")]
pub use {
    asking::FETCH_VERSION, fetchers::FetcherId, following::Following, link::LinkError,
    taking::LIST_OFFSETS_VERSION, taking::ask_ends,
};
