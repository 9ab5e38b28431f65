//! The thread that follows one leader.

use std::sync::Arc;

use pyrklog_wire::api::key;
use rustix::event::{PollFd, PollFlags, poll};

use crate::follower::append_response;
use crate::follower::fetch_state::FETCH_VERSION;
use crate::follower::fetcher_queue::{CATCH_UP, FetcherId, FetcherQueue, Fetchers};
use crate::follower::following::{DURABLE_END_POLL_MS, FULL_LOOK_MS, Following, Wanted, longer};
use crate::follower::link::{Link, LinkError};
use pyrklog_base::clock::{mono_ms, timespec};
use pyrklog_control::seam::ClusterConfig;
use pyrklog_requests::services::Services;

/// Polls of the durable end offset before fetching without this partition.
const DURABLE_END_POLLS_MAX: usize = 20;

#[derive(Debug)]
pub struct Fetcher {
    services: Arc<Services>,
    fetchers: Arc<dyn Fetchers>,
    id: FetcherId,
    queue: Arc<FetcherQueue>,
    client_id: String,
    following: Following,
    link: Option<Link>,
    backoff_ms: i64,
    is_reachable: bool,
    gone_since_ms: Option<i64>,
}

impl Fetcher {
    pub fn new(
        services: Arc<Services>,
        fetchers: Arc<dyn Fetchers>,
        (id, queue): (FetcherId, Arc<FetcherQueue>),
    ) -> Fetcher {
        let node_id = services.config.node_id;
        let client_id = match id.1 {
            number @ CATCH_UP.. => format!("broker-{node_id}-catch-up-{}", number - CATCH_UP),
            number => format!("broker-{node_id}-fetcher-{number}"),
        };
        Fetcher {
            following: Following::new(Arc::clone(&services), Arc::clone(&fetchers), id),
            services,
            fetchers,
            id,
            queue,
            client_id,
            link: None,
            backoff_ms: 0,
            is_reachable: true,
            gone_since_ms: None,
        }
    }

    /// Follows until nothing is left to follow, or the plane ends.
    pub fn run(mut self) {
        let services = Arc::clone(&self.services);
        let Some(cluster) = &services.config.cluster else {
            return;
        };
        loop {
            self.following.add(self.queue.take());
            if self.queue.is_stopped() {
                break;
            }
            let wanted = self.wanted_when_written();
            if self.following.is_empty() {
                if self.fetchers.retire(self.id, &self.queue) {
                    break;
                }
            } else if wanted.is_empty() {
                self.sleep_until(wanted.due_ms.unwrap_or(mono_ms() + FULL_LOOK_MS));
            } else {
                self.turn(cluster, &wanted);
            }
        }
    }

    /// A partition is asked for again once its log is durable to its end. Without a block cache
    /// that takes a moment after each append.
    fn wanted_when_written(&mut self) -> Wanted {
        for _ in 0..DURABLE_END_POLLS_MAX {
            let wanted = self.following.wanted();
            if !wanted.waits_for_durable_end {
                return wanted;
            }
            self.sleep_until(mono_ms() + DURABLE_END_POLL_MS);
        }
        self.following.wanted()
    }

    fn sleep_until(&self, at_ms: i64) {
        let timeout = timespec((at_ms - mono_ms()).max(1));
        let mut fds = [PollFd::from_borrowed_fd(self.queue.fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// One request, and what follows from its answer.
    fn turn(&mut self, cluster: &ClusterConfig, wanted: &Wanted) {
        match self.fetch(cluster, wanted) {
            Ok(()) => {
                self.backoff_ms = 0;
                if !std::mem::replace(&mut self.is_reachable, true) {
                    self.tell("leader_reached_again", "info", Vec::new());
                }
                self.gone_since_ms = None;
            }
            Err(error) => {
                self.link = None;
                self.following.reset();
                if !matches!(error, LinkError::Interrupted) {
                    self.failed(cluster, &error);
                }
            }
        }
    }

    fn failed(&mut self, cluster: &ClusterConfig, error: &LinkError) {
        if error.is_by_nobody() {
            let since_ms = *self.gone_since_ms.get_or_insert_with(mono_ms);
            self.services
                .unreachable_leaders
                .begins(self.id.0, since_ms);
        }
        if std::mem::replace(&mut self.is_reachable, false) {
            let fields = vec![("reason", error.to_string())];
            self.tell("leader_unreachable", "warning", fields);
            // Reconnect at once: it tells whether the leader is alive.
            return;
        }
        self.backoff_ms = longer(self.backoff_ms, cluster);
        self.sleep_until(mono_ms() + self.backoff_ms);
    }

    fn tell(&self, event: &'static str, level: &'static str, fields: Vec<(&'static str, String)>) {
        let mut all = vec![("leader", self.id.0.to_string())];
        all.extend(fields);
        self.services.events.notice(event, level, all);
    }

    fn link(&mut self, cluster: &ClusterConfig) -> Result<Link, LinkError> {
        if let Some(link) = self.link.take() {
            return Ok(link);
        }
        let image = self.services.image.load_full();
        let endpoint = image
            .endpoint(self.id.0, &cluster.listener)
            .ok_or_else(|| {
                LinkError::Malformed(format!("broker {} is not known to live", self.id.0))
            })?;
        let port = u16::try_from(endpoint.port).unwrap_or_default();
        let link = Link::connect(endpoint.host, port)?;
        self.services.unreachable_leaders.ends(self.id.0);
        Ok(link)
    }

    fn fetch(&mut self, cluster: &ClusterConfig, wanted: &Wanted) -> Result<(), LinkError> {
        let mut link = self.link(cluster)?;
        let following = &mut self.following;
        let timeout_ms = cluster.socket_timeout_ms;
        let (client_id, queue) = (&self.client_id, &self.queue);
        for question in &wanted.questions {
            let (key, version) = question.1.api();
            let encode = |out: &mut Vec<u8>| following.encode_question(*question, out);
            let (frame, body) =
                link.exchange(key, version, client_id, timeout_ms, queue, encode)?;
            following.take_verdict(cluster, *question, &frame[body..])?;
            link.recycle(frame);
        }
        if wanted.asks.is_empty() {
            self.link = Some(link);
            return Ok(());
        }
        let (mut frame, body) = link.exchange(
            key::FETCH,
            FETCH_VERSION,
            client_id,
            i64::from(cluster.fetch_wait_max_ms) + timeout_ms,
            queue,
            |out| following.ask(cluster, wanted, out),
        )?;
        for answer in following.read(&frame, body)? {
            let records = &mut frame[answer.records.clone()];
            let broker = self.services.config.node_id;
            following.take_answer(cluster, &answer, records, |partition, leader_epoch| {
                append_response::ask_ends(broker, partition, leader_epoch, |request| {
                    let (key, version) = (key::LIST_OFFSETS, append_response::LIST_OFFSETS_VERSION);
                    link.exchange(key, version, client_id, timeout_ms, queue, |out| {
                        request.encode(out, version);
                    })
                })
            })?;
        }
        link.recycle(frame);
        self.link = Some(link);
        Ok(())
    }
}
