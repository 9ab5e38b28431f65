//! The topics of a cluster, for those who choose among them.

use std::time::{Duration, Instant};

use pyrklog_client::{Backoff, Cancel, Client, ClientConfig};

use crate::error::Result;

/// All but those that brokers keep for themselves, sorted. Blocks up to `timeout` while no broker
/// answers, or until `cancel` is used.
///
/// # Errors
/// [`crate::ScanError`] of all kinds that no topic is needed for.
pub fn topic_names(config: ClientConfig, timeout: Duration, cancel: Cancel) -> Result<Vec<String>> {
    let until = Instant::now() + timeout;
    let mut client = Client::new(config, cancel);
    let mut backoff = Backoff::default();
    loop {
        match client.topic_names() {
            Err(error) if error.is_retriable() && Instant::now() < until => {
                client.cancel().sleep(backoff.next_wait())?;
            }
            answer => return Ok(answer?),
        }
    }
}
