//! The thread that follows one leader.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::FetchResponse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::asking::{Ask, FETCH_VERSION, Key, Session, Terms};
use super::cutting::{self, Cut};
use super::fetchers::{FetcherId, Mailbox};
use super::link::{Link, LinkError};
use super::taking::{self, Answer, Taken};
use crate::api::ClusterConfig;
use crate::clock::mono_ms;
use crate::partition::{Partition, Role};
use crate::shared::Shared;

/// The first pause after a failure; each one in a row is twice as long, up to
/// `replica.fetch.backoff.ms`.
const BACKOFF_FIRST_MS: i64 = 20;
/// What was appended is on its way to its file: looked at again so soon, so often, before the other
/// partitions go on alone.
const GATE_LOOK_MS: i64 = 1;
const GATE_LOOKS_MAX: usize = 20;
/// How soon a log directory that takes nothing is tried again.
const FULL_LOOK_MS: i64 = 50;

/// A partition that is followed.
#[derive(Debug)]
struct Followed {
    partition: Arc<Partition>,
    leader_epoch: i32,
    /// Left alone until then (monotonic milliseconds).
    until_ms: i64,
    backoff_ms: i64,
}

/// What there is to ask for.
#[derive(Debug, Default)]
struct Wanted {
    asks: HashMap<Key, Ask>,
    waits_for_gate: bool,
    /// When the next one is to be tried again.
    due_ms: Option<i64>,
}

/// See the module.
#[derive(Debug)]
pub struct Fetcher {
    shared: Arc<Shared>,
    id: FetcherId,
    mailbox: Arc<Mailbox>,
    client_id: String,
    followed: HashMap<Key, Followed>,
    session: Session,
    link: Option<Link>,
    backoff_ms: i64,
    is_reachable: bool,
}

impl Fetcher {
    /// A thread's content, to be run there.
    pub fn new(shared: Arc<Shared>, id: FetcherId, mailbox: Arc<Mailbox>) -> Fetcher {
        let client_id = format!("broker-{}-fetcher-{}", shared.config.node_id, id.1);
        Fetcher {
            shared,
            id,
            mailbox,
            client_id,
            followed: HashMap::new(),
            session: Session::default(),
            link: None,
            backoff_ms: 0,
            is_reachable: true,
        }
    }

    /// Follows until there is nothing to follow any more, or the plane ends.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(cluster) = &shared.config.cluster else {
            return;
        };
        loop {
            self.take_mail();
            if self.mailbox.is_stopped() {
                break;
            }
            let wanted = self.wanted_when_written();
            if self.followed.is_empty() {
                if self.shared.fetchers.retire(self.id, &self.mailbox) {
                    break;
                }
            } else if wanted.asks.is_empty() {
                self.sleep_until(wanted.due_ms.unwrap_or(mono_ms() + FULL_LOOK_MS));
            } else {
                self.turn(cluster, &wanted);
            }
        }
    }

    fn take_mail(&mut self) {
        for partition in self.mailbox.take() {
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

    /// A partition goes on where its log is durable to its end, which without a block cache takes a
    /// moment after each append.
    fn wanted_when_written(&mut self) -> Wanted {
        for _ in 0..GATE_LOOKS_MAX {
            let wanted = self.wanted();
            if !wanted.waits_for_gate {
                return wanted;
            }
            self.sleep_until(mono_ms() + GATE_LOOK_MS);
        }
        self.wanted()
    }

    /// Lets go of what is not followed any more; of the rest, what can be asked for now.
    fn wanted(&mut self) -> Wanted {
        let now_ms = mono_ms();
        let leader = self.id.0;
        let node_id = self.shared.config.node_id;
        let quota = &self.shared.quotas.follower;
        let is_exceeded = quota.is_exceeded(now_ms);
        let mut wanted = Wanted::default();
        self.followed.retain(|key, followed| {
            let state = followed.partition.lock();
            let is_followed = state.role == Role::Follower
                && state.leader == Some(leader)
                && state.leader_epoch == followed.leader_epoch;
            let Some(log) = state.log.as_ref().filter(|_| is_followed) else {
                return false;
            };
            let mut due = |at_ms: i64| {
                wanted.due_ms = Some(wanted.due_ms.map_or(at_ms, |due_ms| due_ms.min(at_ms)));
            };
            let dir = &followed.partition.dir;
            if followed.until_ms > now_ms {
                due(followed.until_ms);
            } else if dir.is_overfull() || dir.is_read_only() {
                due(now_ms + FULL_LOOK_MS);
            } else if is_exceeded
                && !state.has_caught_up()
                && followed.partition.is_throttled_following(node_id)
            {
                due(quota.look_ms(now_ms));
            } else if log.gated_end() < log.log_end_offset() {
                wanted.waits_for_gate = true;
                due(now_ms + GATE_LOOK_MS);
            } else {
                let ask = Ask {
                    leader_epoch: followed.leader_epoch,
                    offset: log.log_end_offset(),
                    last_epoch: log.latest_epoch().unwrap_or(-1),
                    log_start: log.log_start_offset(),
                };
                wanted.asks.insert(*key, ask);
            }
            true
        });
        wanted
    }

    fn sleep_until(&self, at_ms: i64) {
        let left_ms = (at_ms - mono_ms()).max(1);
        let timeout = Timespec {
            tv_sec: left_ms / 1000,
            tv_nsec: left_ms % 1000 * 1_000_000,
        };
        let mut fds = [PollFd::from_borrowed_fd(self.mailbox.fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// One request and what follows from its answer.
    fn turn(&mut self, cluster: &ClusterConfig, wanted: &Wanted) {
        match self.fetch(cluster, wanted) {
            Ok(()) => {
                self.backoff_ms = 0;
                if !std::mem::replace(&mut self.is_reachable, true) {
                    self.tell("leader_reached_again", "info", Vec::new());
                }
            }
            Err(error) => {
                self.link = None;
                self.session.reset();
                if !matches!(error, LinkError::Interrupted) {
                    self.failed(cluster, &error);
                }
            }
        }
    }

    fn failed(&mut self, cluster: &ClusterConfig, error: &LinkError) {
        if std::mem::replace(&mut self.is_reachable, false) {
            let fields = vec![("reason", error.to_string())];
            self.tell("leader_unreachable", "warning", fields);
        }
        self.backoff_ms = longer(self.backoff_ms, cluster);
        self.sleep_until(mono_ms() + self.backoff_ms);
    }

    fn tell(&self, event: &'static str, level: &'static str, fields: Vec<(&'static str, String)>) {
        let mut all = vec![("leader", self.id.0.to_string())];
        all.extend(fields);
        self.shared.events.notice(event, level, all);
    }

    fn link(&mut self, cluster: &ClusterConfig) -> Result<Link, LinkError> {
        if let Some(link) = self.link.take() {
            return Ok(link);
        }
        let image = self.shared.image.load_full();
        let endpoint = image
            .endpoint(self.id.0, &cluster.listener)
            .ok_or_else(|| {
                LinkError::Malformed(format!("broker {} is not known to live", self.id.0))
            })?;
        let port = u16::try_from(endpoint.port).unwrap_or_default();
        Ok(Link::connect(endpoint.host, port)?)
    }

    fn fetch(&mut self, cluster: &ClusterConfig, wanted: &Wanted) -> Result<(), LinkError> {
        let mut link = self.link(cluster)?;
        let terms = Terms {
            broker: self.shared.config.node_id,
            broker_epoch: self.shared.broker_epoch.load(Ordering::Relaxed),
            max_wait_ms: cluster.fetch_wait_max_ms,
            min_bytes: cluster.fetch_min_bytes,
            max_bytes: cluster.fetch_response_max_bytes,
            partition_max_bytes: cluster.fetch_max_bytes,
        };
        let session = &mut self.session;
        let (mut frame, body) = link.exchange(
            key::FETCH,
            FETCH_VERSION,
            &self.client_id,
            i64::from(cluster.fetch_wait_max_ms) + cluster.socket_timeout_ms,
            &self.mailbox,
            |out| session.ask(&wanted.asks, terms, out),
        )?;
        let answers = self.read(&frame, body)?;
        for answer in answers {
            let records = &mut frame[answer.records.clone()];
            self.take(cluster, &mut link, &answer, records)?;
        }
        link.recycle(frame);
        self.link = Some(link);
        Ok(())
    }

    /// The answer's partitions, apart from the bytes, which are changed when they are appended.
    fn read(&mut self, frame: &[u8], body: usize) -> Result<Vec<Answer>, LinkError> {
        let malformed = |reason: String| LinkError::Malformed(reason);
        let response = FetchResponse::decode(&frame[body..], FETCH_VERSION)
            .map_err(|error| malformed(error.to_string()))?;
        match response.head.error_code {
            ErrorCode::NONE => {}
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR => {
                self.session.reset();
                return Ok(Vec::new());
            }
            error => return Err(malformed(format!("the leader refuses: {error:?}"))),
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

    fn take(
        &mut self,
        cluster: &ClusterConfig,
        link: &mut Link,
        answer: &Answer,
        records: &mut [u8],
    ) -> Result<(), LinkError> {
        let Some(followed) = self.followed.get_mut(&answer.key) else {
            return Ok(());
        };
        let partition = Arc::clone(&followed.partition);
        self.shared.count_followed(&partition, records.len());
        match taking::take(&self.shared, &partition, answer, records) {
            Taken::Nothing => {}
            Taken::Progress => followed.backoff_ms = 0,
            Taken::Later(reason) => {
                followed.backoff_ms = longer(followed.backoff_ms, cluster);
                followed.until_ms = mono_ms() + followed.backoff_ms;
                if let Some(reason) = reason {
                    taking::tell(&self.shared, &partition, "replica_refused", &reason);
                }
            }
            Taken::Fenced => {
                // A newer leader is there; its LeaderAndIsr is on its way.
                self.followed.remove(&answer.key);
            }
            Taken::Diverges(end) => self.cut(&answer.key, Cut::Diverging(end)),
            Taken::BeginsAt(carried) => self.cut(&answer.key, Cut::BeginsAt(carried)),
            Taken::OutOfRange => {
                let ends = taking::ask_ends(
                    link,
                    &self.client_id,
                    self.shared.config.node_id,
                    &partition,
                    answer.ask.leader_epoch,
                    cluster.socket_timeout_ms,
                    &self.mailbox,
                )?;
                match ends {
                    Some((start, end)) => self.cut(&answer.key, Cut::Outside { start, end }),
                    None => {
                        followed.backoff_ms = longer(followed.backoff_ms, cluster);
                        followed.until_ms = mono_ms() + followed.backoff_ms;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands the partition over; it comes back by the mailbox.
    fn cut(&mut self, key: &Key, cut: Cut) {
        if let Some(followed) = self.followed.remove(key) {
            cutting::submit(&self.shared, followed.partition, followed.leader_epoch, cut);
        }
    }
}

fn longer(backoff_ms: i64, cluster: &ClusterConfig) -> i64 {
    (backoff_ms * 2).clamp(
        BACKOFF_FIRST_MS,
        cluster.fetch_backoff_ms.max(BACKOFF_FIRST_MS),
    )
}
