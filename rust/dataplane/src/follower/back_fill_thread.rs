//! The thread that back-fills from one broker.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};

use crate::follower::back_fill::{BackFill, FillQuestion, FillTurn};
use crate::follower::fetcher_queue::{FetcherId, FetcherQueue, Fetchers};
use crate::follower::link::{Link, LinkError};
use pyrklog_base::clock::{mono_ms, timespec};
use pyrklog_control::seam::ClusterConfig;
use pyrklog_requests::services::Services;

#[derive(Debug)]
pub struct BackFiller {
    services: Arc<Services>,
    fetchers: Arc<dyn Fetchers>,
    id: FetcherId,
    queue: Arc<FetcherQueue>,
    client_id: String,
    fill: BackFill,
    link: Option<Link>,
}

impl BackFiller {
    pub fn new(
        services: Arc<Services>,
        fetchers: Arc<dyn Fetchers>,
        (id, queue): (FetcherId, Arc<FetcherQueue>),
    ) -> BackFiller {
        BackFiller {
            fill: BackFill::new(Arc::clone(&services), Arc::clone(&fetchers), id.0),
            client_id: format!("broker-{}-back-fill", services.config.node_id),
            services,
            fetchers,
            id,
            queue,
            link: None,
        }
    }

    /// Back-fills until nothing is left to do, or the plane ends.
    pub fn run(mut self) {
        let services = Arc::clone(&self.services);
        let Some(cluster) = &services.config.cluster else {
            return;
        };
        loop {
            self.fill.add(self.queue.take());
            if self.queue.is_stopped() {
                break;
            }
            match self.fill.next() {
                FillTurn::Ask(question) => self.turn(cluster, question),
                FillTurn::Later(at_ms) => self.sleep_until(at_ms),
                FillTurn::Idle if self.fetchers.retire(self.id, &self.queue) => break,
                FillTurn::Idle => {}
            }
        }
    }

    fn sleep_until(&self, at_ms: i64) {
        let timeout = timespec((at_ms - mono_ms()).max(1));
        let mut fds = [PollFd::from_borrowed_fd(self.queue.fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn turn(&mut self, cluster: &ClusterConfig, question: FillQuestion) {
        match self.ask(cluster, question) {
            // The question is put again.
            Ok(()) | Err(LinkError::Interrupted) => {}
            Err(error) => {
                let fields = vec![
                    ("source", self.id.0.to_string()),
                    ("reason", error.to_string()),
                ];
                self.services
                    .events
                    .notice("back_fill_interrupted", "info", fields);
                self.fill.fail_all();
            }
        }
    }

    fn ask(&mut self, cluster: &ClusterConfig, question: FillQuestion) -> Result<(), LinkError> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect(cluster)?,
        };
        let (key, version) = question.api();
        let fill = &self.fill;
        let (frame, body) = link.exchange(
            key,
            version,
            &self.client_id,
            cluster.socket_timeout_ms,
            &self.queue,
            |out| fill.encode(cluster, question, out),
        )?;
        self.fill.take_answer(question, &frame[body..])?;
        link.recycle(frame);
        self.link = Some(link);
        Ok(())
    }

    fn connect(&self, cluster: &ClusterConfig) -> Result<Link, LinkError> {
        let image = self.services.image.load_full();
        let endpoint = image
            .endpoint(self.id.0, &cluster.listener)
            .ok_or_else(|| {
                LinkError::Malformed(format!("broker {} is not known to live", self.id.0))
            })?;
        let port = u16::try_from(endpoint.port).unwrap_or_default();
        Ok(Link::connect(endpoint.host, port)?)
    }
}
