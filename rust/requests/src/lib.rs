//! Requests: decoded, decided and answered or delayed, from a client's frame to its reply. No
//! socket, no thread.

#![forbid(unsafe_code)]

pub mod admission;
pub mod api_versions;
pub mod broker_connections;
pub mod carry_out;
pub mod client;
pub mod client_context;
pub mod client_software;
pub mod client_timers;
pub mod cold_reads;
pub mod context;
pub mod control_replies;
pub mod control_requests;
pub mod delayed;
pub mod dispatch;
pub mod fetch;
pub mod handled;
pub mod heavy;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod old_clients;
pub mod out_queue;
pub mod outcome;
pub mod produce;
pub mod replica_segments;
pub mod replica_start;
pub mod reply_header;
pub mod request;
pub mod request_time;
pub mod resume;
pub mod services;
pub mod timed_work;
pub mod zookeeper_offsets;
