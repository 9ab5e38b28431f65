//! The partitions followed of one leader, and their fetch session. No thread, no socket: the owner
//! of the connection asks what this wants and brings the answers here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::{FetchRequestToWrite, FetchResponse};

use crate::follower::append_response::{self, Answer, AppendOutcome};
use crate::follower::fetch_state::{Ask, FETCH_VERSION, FetchSessionHandler, Key};
use crate::follower::fetcher_queue::Fetchers;
use crate::follower::link::LinkError;
use crate::follower::partial::{self, Question, Verdict};
use crate::follower::truncation::{self, Cut};
use pyrklog_base::clock::mono_ms;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::seam::ClusterConfig;
use pyrklog_replica::partition::{Role, Standing};
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::Partition;

/// The first pause after a failure. Each further one is twice as long, up to
/// `replica.fetch.backoff.ms`.
const BACKOFF_FIRST_MS: i64 = 20;
/// Interval of polls while appended records are not durable yet.
pub const DURABLE_END_POLL_MS: i64 = 1;
/// Pause before trying again where a log directory takes no records.
pub const FULL_LOOK_MS: i64 = 50;

#[derive(Debug)]
struct Followed {
    partition: Arc<Partition>,
    leader_epoch: i32,
    /// Not asked for until then (monotonic milliseconds).
    until_ms: i64,
    backoff_ms: i64,
}

impl Followed {
    fn pause(&mut self, cluster: &ClusterConfig) {
        self.backoff_ms = longer(self.backoff_ms, cluster);
        self.until_ms = mono_ms() + self.backoff_ms;
    }
}

/// What there is to ask for.
#[derive(Debug, Default)]
pub struct Wanted {
    pub asks: HashMap<Key, Ask>,
    /// To be asked first, in requests of their own.
    pub questions: Vec<(Key, Question)>,
    /// Some partitions are left out because their logs are not durable to their ends.
    pub waits_for_durable_end: bool,
    /// When the next one is to be tried again.
    pub due_ms: Option<i64>,
    /// The same for partitions whose leader was not ready.
    later_ms: Option<i64>,
}

fn sooner(known_ms: Option<i64>, at_ms: i64) -> Option<i64> {
    Some(known_ms.map_or(at_ms, |known_ms| known_ms.min(at_ms)))
}

impl Wanted {
    pub fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.questions.is_empty()
    }

    /// How long the leader may wait for records: until a partition for which it was not ready is to
    /// be asked for again.
    fn wait_ms(&self, max_ms: i32, now_ms: i64) -> i32 {
        let left_ms = self
            .later_ms
            .map_or(i64::from(max_ms), |later_ms| later_ms - now_ms);
        left_ms.clamp(1, i64::from(max_ms).max(1)) as i32
    }
}

#[derive(Debug)]
pub struct Following {
    services: Arc<Services>,
    fetchers: Arc<dyn Fetchers>,
    leader: i32,
    followed: HashMap<Key, Followed>,
    session: FetchSessionHandler,
}

impl Following {
    /// Nothing of this leader yet.
    pub fn new(services: Arc<Services>, fetchers: Arc<dyn Fetchers>, leader: i32) -> Following {
        Following {
            services,
            fetchers,
            leader,
            followed: HashMap::new(),
            session: FetchSessionHandler::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.followed.is_empty()
    }

    pub fn add(&mut self, partitions: Vec<Arc<Partition>>) {
        for partition in partitions {
            let leader_epoch = partition.lock().leader_epoch;
            let key = (partition.topic.id, partition.index);
            let followed = Followed {
                partition,
                leader_epoch,
                until_ms: 0,
                backoff_ms: 0,
            };
            self.followed.insert(key, followed);
        }
    }

    /// The connection is gone: the next request is full.
    pub fn reset(&mut self) {
        self.session.reset();
    }

    /// Lets go of partitions that are not followed any more. Returns what can be asked for now.
    pub fn wanted(&mut self) -> Wanted {
        let now_ms = mono_ms();
        let leader = self.leader;
        let node_id = self.services.config.node_id;
        let quota = &self.services.quotas.follower;
        let is_exceeded = quota.is_exceeded(now_ms);
        let mut wanted = Wanted::default();
        let mut whole = Vec::new();
        self.followed.retain(|key, followed| {
            let state = followed.partition.lock();
            let is_followed = state.role == Role::Follower
                && state.leader_to_follow == Some(leader)
                && state.leader_epoch == followed.leader_epoch;
            let Some(log) = state.log.as_ref().filter(|_| is_followed) else {
                return false;
            };
            let standing = state.standing();
            if standing == Standing::IsWhole {
                whole.push(Arc::clone(&followed.partition));
                return false;
            }
            let mut due = |at_ms: i64| wanted.due_ms = sooner(wanted.due_ms, at_ms);
            let dir = &followed.partition.dir();
            if followed.until_ms > now_ms {
                due(followed.until_ms);
                wanted.later_ms = sooner(wanted.later_ms, followed.until_ms);
            } else if dir.has_twice_too_much_unwritten() || dir.is_read_only() {
                due(now_ms + FULL_LOOK_MS);
            } else if is_exceeded
                && !state.is_taken_for_in_sync()
                && !log.is_partial()
                && Question::of(standing).is_none()
                && followed.partition.is_throttled_following(node_id)
            {
                due(quota.look_ms(now_ms));
            } else if log.durable_end_offset() < log.log_end_offset()
                && !(is_injected(Fault::AskWhileWriting) && log.is_being_written())
            {
                wanted.waits_for_durable_end = true;
                due(now_ms + DURABLE_END_POLL_MS);
            } else if let Some(question) = Question::of(standing) {
                wanted.questions.push((*key, question));
            } else {
                let ask = Ask::of(log, followed.leader_epoch);
                wanted.asks.insert(*key, ask);
            }
            true
        });
        for partition in whole {
            partial::submit_whole(&self.services.logs, &self.fetchers, partition);
        }
        // In an order that does not depend on the map's.
        wanted.questions.sort_unstable_by_key(|(key, _)| *key);
        wanted
    }

    /// Appends the body of a question.
    pub fn encode_question(&self, (key, question): (Key, Question), out: &mut Vec<u8>) {
        if let Some(Followed {
            partition,
            leader_epoch,
            ..
        }) = self.followed.get(&key)
        {
            let broker = self.services.config.node_id;
            let fills = !self.services.quotas.back_fill.is_zero();
            question.encode((broker, fills), partition, *leader_epoch, out);
        }
    }

    /// Takes the body of a question's answer.
    pub fn take_verdict(
        &mut self,
        cluster: &ClusterConfig,
        (key, question): (Key, Question),
        body: &[u8],
    ) -> Result<(), LinkError> {
        let Some(followed) = self.followed.get_mut(&key) else {
            return Ok(());
        };
        let partition = Arc::clone(&followed.partition);
        match question.judge(&partition, followed.leader_epoch, body)? {
            Verdict::Again => {}
            Verdict::Fenced => drop(self.followed.remove(&key)),
            Verdict::Later(reason) => {
                followed.pause(cluster);
                if let Some(reason) = reason {
                    let (topic, index) = (&partition.topic.name, partition.index);
                    self.services
                        .partition_error(topic, index, "replica_refused", reason);
                }
            }
            Verdict::Cut(cut) => {
                let leader_epoch = followed.leader_epoch;
                let ask = {
                    let state = partition.lock();
                    state.log.as_ref().map(|log| Ask::of(log, leader_epoch))
                };
                if let Some(ask) = ask {
                    self.cut_partition(&key, ask, cut);
                }
            }
        }
        Ok(())
    }

    /// Appends the body of a request for what is wanted.
    pub fn ask(&mut self, cluster: &ClusterConfig, wanted: &Wanted, out: &mut Vec<u8>) {
        let terms = FetchRequestToWrite {
            replica_id: self.services.config.node_id,
            replica_epoch: self.services.broker_epoch.load(Ordering::Relaxed),
            max_wait_ms: wanted.wait_ms(cluster.fetch_wait_max_ms, mono_ms()),
            min_bytes: cluster.fetch_min_bytes,
            max_bytes: cluster.fetch_response_max_bytes,
            ..FetchRequestToWrite::default()
        };
        let max_bytes = cluster.fetch_max_bytes;
        self.session.ask(&wanted.asks, terms, max_bytes, out);
    }

    /// The answer's partitions, without the bytes, which are changed when they are appended.
    pub fn read(&mut self, frame: &[u8], body: usize) -> Result<Vec<Answer>, LinkError> {
        let response = FetchResponse::decode(&frame[body..], FETCH_VERSION)?;
        match response.head.error_code {
            ErrorCode::NONE => {}
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => {
                self.session.reset();
                return Ok(Vec::new());
            }
            error => {
                let reason = format!("the leader refuses: {error:?}");
                return Err(LinkError::Malformed(reason));
            }
        }
        let mut answers = Vec::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let key = (topic.id, partition.head.index);
                if let Some(ask) = self.session.asked(&key) {
                    answers.push(Answer::new(key, ask, partition, frame));
                }
            }
        }
        self.session.answered(response.head.session_id);
        Ok(answers)
    }

    /// Takes one partition's answer. `ask_ends` asks the leader for the partition's log start and
    /// log end offset in a leader epoch; `None` if it does not say.
    pub fn take_answer(
        &mut self,
        cluster: &ClusterConfig,
        answer: &Answer,
        records: &mut [u8],
        ask_ends: impl FnOnce(&Partition, i32) -> Result<Option<(i64, i64)>, LinkError>,
    ) -> Result<(), LinkError> {
        let Some(followed) = self.followed.get_mut(&answer.key) else {
            return Ok(());
        };
        let partition = Arc::clone(&followed.partition);
        self.services.count_followed(&partition, records.len());
        match append_response::append_answer(&self.services, &partition, answer, records) {
            AppendOutcome::Nothing => {}
            AppendOutcome::Progress => followed.backoff_ms = 0,
            AppendOutcome::Later(reason) => {
                followed.pause(cluster);
                if let Some(reason) = reason {
                    let (topic, index) = (&partition.topic.name, partition.index);
                    self.services
                        .partition_error(topic, index, "replica_refused", reason);
                }
            }
            AppendOutcome::Fenced => {
                // There is a newer leader; its LeaderAndIsr is on its way.
                self.followed.remove(&answer.key);
            }
            AppendOutcome::Diverges(end) => self.cut(answer, Cut::Diverging(end)),
            AppendOutcome::BeginsAt(carried) => self.cut(answer, Cut::BeginsAt(carried)),
            AppendOutcome::OutOfRange => match ask_ends(&partition, answer.ask.leader_epoch)? {
                Some((start, end)) => self.cut(answer, Cut::Outside { start, end }),
                None => followed.pause(cluster),
            },
        }
        Ok(())
    }

    /// Hands the partition to the log loader; it comes back through the fetcher's queue.
    fn cut(&mut self, answer: &Answer, cut: Cut) {
        self.cut_partition(&answer.key, answer.ask, cut);
    }

    fn cut_partition(&mut self, key: &Key, ask: Ask, cut: Cut) {
        if let Some(followed) = self.followed.remove(key) {
            let (logs, fetchers) = (&self.services.logs, &self.fetchers);
            truncation::submit(logs, fetchers, followed.partition, ask, cut);
        }
    }
}

/// The next pause after one of `backoff_ms`.
pub fn longer(backoff_ms: i64, cluster: &ClusterConfig) -> i64 {
    (backoff_ms * 2).clamp(
        BACKOFF_FIRST_MS,
        cluster.fetch_backoff_ms.max(BACKOFF_FIRST_MS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_waits_at_most_until_a_delayed_partition_is_due() {
        let wanted = |later_ms| Wanted {
            later_ms,
            ..Wanted::default()
        };
        assert_eq!(wanted(None).wait_ms(500, 1_000), 500);
        assert_eq!(wanted(Some(1_020)).wait_ms(500, 1_000), 20);
        assert_eq!(wanted(Some(9_000)).wait_ms(500, 1_000), 500);
        assert_eq!(wanted(Some(900)).wait_ms(500, 1_000), 1);
    }
}
