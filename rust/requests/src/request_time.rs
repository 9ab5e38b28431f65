//! How long a request took, phase by phase ([`Phase`]).
//!
//! A request arrives when its thread first looks for it. What is closed without a reply is not
//! counted. [`crate::timed_work`] reads the clock.

use pyrklog_control::latency::{Group, Phase};
use pyrklog_control::statistics::ThreadStatistics;
use pyrklog_wire::api::{ApiRow, Owner, key};

/// More replies on their way count as sent when they are ready.
const UNSENT_MAX: usize = 256;

/// Replies whose memory is kept by a connection that has sent everything.
const UNSENT_KEPT: usize = 16;

/// The group of an API's requests; `None` for those of this project's tools. Fetches of followers
/// are told apart later.
pub fn group_of(row: &ApiRow) -> Option<Group> {
    match row.key {
        key::PRODUCE | key::PRODUCE_AT => Some(Group::Produce),
        _ if row.is_private => None,
        key::FETCH => Some(Group::FetchConsumer),
        key::JOIN_GROUP | key::SYNC_GROUP => Some(Group::JoinGroup),
        _ if row.owner == Owner::Python => Some(Group::Control),
        _ => Some(Group::Other),
    }
}

/// What a request took so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTime {
    group: Option<Group>,
    arrived_ns: u64,
    queue_ns: u64,
    local_ns: u64,
    /// If readers worked on it.
    read_ns: Option<u64>,
    /// If it waited for others.
    remote_ns: Option<u64>,
    /// When the last work on it ended.
    left_ns: u64,
}

impl RequestTime {
    /// Of a request that arrived at `arrived_ns` and is worked on since `began_ns`.
    pub fn begun(group: Option<Group>, arrived_ns: u64, began_ns: u64) -> RequestTime {
        RequestTime {
            group,
            arrived_ns,
            queue_ns: began_ns - arrived_ns,
            left_ns: began_ns,
            ..RequestTime::default()
        }
    }

    /// Its group.
    pub fn group(&self) -> Option<Group> {
        self.group
    }

    /// Since the last call it was in this phase.
    pub fn spend(&mut self, phase: Phase, until_ns: u64) {
        let spent_ns = until_ns.saturating_sub(self.left_ns);
        match phase {
            Phase::Read => self.read_ns = Some(self.read_ns.unwrap_or(0) + spent_ns),
            Phase::Remote => self.remote_ns = Some(self.remote_ns.unwrap_or(0) + spent_ns),
            _ => self.local_ns += spent_ns,
        }
        self.left_ns = until_ns;
    }

    /// Waited for replicas until now.
    pub fn acknowledged(&mut self, now_ns: u64) {
        self.spend(Phase::Remote, now_ns);
    }

    /// The reply is ready since the last work on it: counts what led to it.
    pub fn ready(self, statistics: &ThreadStatistics) -> Option<ReplyTime> {
        let group = self.group?;
        let record = |phase, time_ns| statistics.times.record(group, phase, time_ns);
        record(Phase::Queue, self.queue_ns);
        record(Phase::Local, self.local_ns);
        if let Some(read_ns) = self.read_ns {
            record(Phase::Read, read_ns);
        }
        if let Some(remote_ns) = self.remote_ns {
            record(Phase::Remote, remote_ns);
        }
        Some(ReplyTime {
            group,
            arrived_ns: self.arrived_ns,
            ready_ns: self.left_ns,
            waited_ns: self.remote_ns.filter(|_| group.is_fetch()).unwrap_or(0),
        })
    }
}

/// A reply that is ready.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTime {
    group: Group,
    arrived_ns: u64,
    ready_ns: u64,
    /// Of a fetch: for records.
    waited_ns: u64,
}

impl ReplyTime {
    /// Without waiting for the socket.
    pub fn sent_at_once(self, statistics: &ThreadStatistics) {
        self.sent(statistics, self.ready_ns);
    }

    fn sent(self, statistics: &ThreadStatistics, now_ns: u64) {
        let total_ns = now_ns.saturating_sub(self.arrived_ns);
        let record = |phase, time_ns| statistics.times.record(self.group, phase, time_ns);
        record(Phase::Total, total_ns);
        if self.group.is_fetch() {
            record(Phase::Served, total_ns.saturating_sub(self.waited_ns));
        }
        record(Phase::Send, now_ns.saturating_sub(self.ready_ns));
    }
}

/// Times of a client's requests.
#[derive(Debug, Default)]
pub struct ClientTimes {
    /// Since when its next frame is there, if that had to wait.
    pub held_since_ns: Option<u64>,
    /// Of its delayed request.
    pub delayed: RequestTime,
    /// Replies on their way; without pipelining there is one.
    first: Option<ReplyTime>,
    others: Vec<ReplyTime>,
}

impl ClientTimes {
    /// A reply is in the output.
    pub fn add(&mut self, reply: ReplyTime, statistics: &ThreadStatistics) {
        if self.first.is_none() {
            self.first = Some(reply);
        } else if self.others.len() < UNSENT_MAX {
            self.others.push(reply);
        } else {
            reply.sent_at_once(statistics);
        }
    }

    /// Whether replies are on their way.
    pub fn has_unsent(&self) -> bool {
        self.first.is_some()
    }

    /// All output is sent.
    pub fn sent(&mut self, statistics: &ThreadStatistics, now_ns: u64) {
        let others = self.others.drain(..);
        for reply in self.first.take().into_iter().chain(others) {
            reply.sent(statistics, now_ns);
        }
        self.others.shrink_to(UNSENT_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::api;

    fn reading(statistics: &ThreadStatistics, group: Group, phase: Phase) -> (u64, u64) {
        let reading = statistics.times.reading(group, phase);
        (reading.count(), reading.sum_ns)
    }

    fn fetch_that_waited() -> RequestTime {
        let mut time = RequestTime {
            group: Some(Group::FetchConsumer),
            arrived_ns: 100,
            queue_ns: 10,
            left_ns: 110,
            ..RequestTime::default()
        };
        for (phase, until_ns) in [
            (Phase::Local, 115),
            (Phase::Remote, 1_115),
            (Phase::Local, 1_118),
            (Phase::Read, 1_168),
            (Phase::Local, 1_170),
        ] {
            time.spend(phase, until_ns);
        }
        time
    }

    #[test]
    fn phases_add_up_and_a_fetch_is_served_without_its_wait() {
        let statistics = ThreadStatistics::default();
        let reply = fetch_that_waited().ready(&statistics).unwrap();
        reply.sent(&statistics, 1_200);
        let of = |phase| reading(&statistics, Group::FetchConsumer, phase);
        assert_eq!(of(Phase::Queue), (1, 10));
        assert_eq!(of(Phase::Local), (1, 10));
        assert_eq!(of(Phase::Remote), (1, 1_000));
        assert_eq!(of(Phase::Read), (1, 50));
        assert_eq!(of(Phase::Send), (1, 30));
        assert_eq!(of(Phase::Total), (1, 1_100));
        assert_eq!(of(Phase::Served), (1, 100));
    }

    #[test]
    fn phase_that_a_request_did_not_have_is_not_counted() {
        let statistics = ThreadStatistics::default();
        let time = RequestTime {
            group: Some(Group::Produce),
            ..RequestTime::default()
        };
        assert!(time.ready(&statistics).is_some());
        for phase in [Phase::Read, Phase::Remote] {
            assert_eq!(reading(&statistics, Group::Produce, phase), (0, 0));
        }
        assert_eq!(reading(&statistics, Group::Produce, Phase::Local), (1, 0));
        assert!(RequestTime::default().ready(&statistics).is_none());
    }

    #[test]
    fn replies_that_nobody_takes_are_bounded_and_counted() {
        let statistics = ThreadStatistics::default();
        let mut times = ClientTimes::default();
        let replies = UNSENT_MAX + 11;
        for _ in 0..replies {
            let reply = fetch_that_waited().ready(&statistics).unwrap();
            times.add(reply, &statistics);
        }
        assert_eq!(times.others.len(), UNSENT_MAX);
        let (counted, _) = reading(&statistics, Group::FetchConsumer, Phase::Total);
        assert_eq!(counted as usize, replies - UNSENT_MAX - 1);
    }

    #[test]
    fn each_api_has_its_group() {
        let group = |key| group_of(api::lookup(key).unwrap());
        assert_eq!(group(key::PRODUCE_AT), Some(Group::Produce));
        assert_eq!(group(key::FETCH), Some(Group::FetchConsumer));
        assert_eq!(group(key::SYNC_GROUP), Some(Group::JoinGroup));
        assert_eq!(group(key::HEARTBEAT), Some(Group::Control));
        assert_eq!(group(key::LEADER_AND_ISR), Some(Group::Control));
        assert_eq!(group(key::LIST_OFFSETS), Some(Group::Other));
        assert_eq!(group(key::BROKER_HEALTH), None);
    }
}
