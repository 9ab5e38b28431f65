//! What crosses the seam to the control plane, and what waits for its answers.

#![forbid(unsafe_code)]

pub mod commit_batch;
pub mod connection_quotas;
pub mod control_request;
pub mod event;
pub mod event_queue;
pub mod heartbeat;
pub mod image;
pub mod image_delta;
pub mod internal_read_work;
pub mod latency;
pub mod live_records;
pub mod marker_batch;
pub mod offset_commit;
pub mod offset_table;
pub mod outbox;
pub mod request_channel;
pub mod seam;
pub mod statistics;
pub mod tickets;
