//! Metadata that may be old: a broker that is cut off, or has just started, says what is not so any
//! more. It is believed once all brokers have said the same for a while.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pyrklog_client::{Address, Backoff, Client, Metadata};

/// Before the next broker is asked that was not asked yet.
const NEXT_BROKER_WAIT: Duration = Duration::from_millis(10);

/// Brokers that said the same doubtful thing.
#[derive(Debug)]
pub(crate) struct Doubts {
    since: Instant,
    brokers: HashSet<Address>,
    answers: usize,
}

impl Doubts {
    pub fn new(now: Instant) -> Doubts {
        Doubts {
            since: now,
            brokers: HashSet::new(),
            answers: 0,
        }
    }

    /// The client's last metadata say so: their broker is asked again after all others.
    pub fn note(&mut self, client: &mut Client) {
        self.brokers.extend(client.doubt().cloned());
        self.answers += 1;
    }

    /// How long to wait before the next broker is asked. One that is away takes the time of a few.
    pub fn next_wait(&self, metadata: &Metadata, backoff: &mut Backoff) -> Duration {
        match self.answers < metadata.brokers.len() {
            true => NEXT_BROKER_WAIT,
            false => backoff.next_wait(),
        }
    }

    /// Whether all brokers that the metadata name have said so, and that for so long. Metadata
    /// without brokers are of one that has heard of none yet.
    pub fn are_of_all(&self, metadata: &Metadata, now: Instant, least: Duration) -> bool {
        let mut brokers = metadata.brokers.values();
        now.saturating_duration_since(self.since) >= least
            && !metadata.brokers.is_empty()
            && brokers.all(|broker| self.brokers.contains(&broker.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_not_all() {
        let now = Instant::now();
        let doubts = Doubts::new(now);
        assert!(!doubts.are_of_all(&Metadata::default(), now, Duration::ZERO));
    }
}
