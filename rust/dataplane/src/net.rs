//! Connections: accepting, receiving, sending, and their threads. Requests get whole frames and
//! know no socket.

pub mod acceptor;
pub mod connection;
pub mod connection_balancer;
pub mod connection_limits;
pub mod connection_timeouts;
pub mod connections;
pub mod creation_rate;
#[cfg(feature = "testing")]
pub mod hook;
pub mod input;
pub mod listeners;
pub mod message;
pub mod network;
pub mod network_thread;
pub mod outlet;
pub mod output;
pub mod send_job;
pub mod send_path;
