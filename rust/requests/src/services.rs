//! Shared state that requests are served from.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;

use crate::client_software::ClientSoftware;
use crate::cold_reads::FetchJob;
use crate::fetch::sessions::SessionCache;
use crate::list_offsets::delayed_list_offsets::LookUpJob;
use crate::old_clients::OldClients;
use crate::produce::refused_batches::RefusedRoom;
use crate::produce::validators::{ValidateJob, Validators};
use crate::produce::verifications::Verifications;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::mailbox::Mailbox;
use pyrklog_base::memory_budget::MemoryBudget;
use pyrklog_base::replication_quota::ReplicationQuotas;
use pyrklog_base::reply_memory::ReplyMemory;
use pyrklog_base::unguessable::Unguessable;
use pyrklog_control::image::Image;
use pyrklog_control::request_channel::{RequestChannel, Waiting};
use pyrklog_log::Log;
use pyrklog_replica::unreachable_leaders::UnreachableLeaders;
use pyrklog_storage::log_dir_state::Partition;
use pyrklog_storage::log_manager::LogManager;

/// Ways back to connections, one per kind of job.
#[derive(Clone, Debug)]
pub struct Mailboxes {
    /// Reads of fetches.
    pub fetches: Arc<dyn Mailbox<Box<FetchJob>>>,
    /// Look-ups by time.
    pub look_ups: Arc<dyn Mailbox<Box<LookUpJob>>>,
    /// Validated produce requests.
    pub validated: Arc<dyn Mailbox<Box<ValidateJob>>>,
}

/// See the module.
#[derive(Debug)]
pub struct Services {
    /// Log directories and partitions.
    pub logs: Arc<LogManager>,
    /// Requests at the control plane.
    pub channel: Arc<RequestChannel>,
    /// The current image.
    pub image: Arc<ArcSwap<Image>>,
    /// Threads that validate batches which expand to much.
    pub validators: Validators,
    /// Produce requests at transaction coordinators.
    pub verifications: Verifications,
    /// Unreachable leaders.
    pub unreachable_leaders: UnreachableLeaders,
    /// Rates of copying throttled replicas.
    pub quotas: ReplicationQuotas,
    /// Fetch sessions (KIP-227).
    pub sessions: SessionCache,
    /// Their ids.
    pub session_ids: Unguessable,
    /// Bound on receive memory.
    pub budget: Arc<MemoryBudget>,
    /// Bound on reply memory.
    pub replies: ReplyMemory,
    /// Clients that were named for their old message formats.
    pub old_clients: OldClients,
    /// Whether clients may push metrics. librdkafka logs that it asks for them, so that the APIs
    /// are offered only once there is a subscription.
    pub offers_client_metrics: AtomicBool,
    /// Clients whose software was told.
    pub client_software: ClientSoftware,
    /// Connections that remember many refused batches.
    pub refused_room: Arc<RefusedRoom>,
    /// Ways back to connections.
    pub mailboxes: Mailboxes,
}

impl Services {
    /// For newly opened log directories.
    pub fn new(logs: Arc<LogManager>, mailboxes: Mailboxes) -> Services {
        let config = &logs.config;
        let receive_max_bytes = config.receive_buffers_max_bytes;
        let budget = Arc::new(MemoryBudget::new(receive_max_bytes));
        Services {
            channel: Arc::new(RequestChannel::new(
                config.control_queue_max_requests,
                Arc::clone(&budget),
                Waiting::beside(receive_max_bytes),
            )),
            image: Arc::new(ArcSwap::from_pointee(Image::default())),
            validators: Validators::new(
                config.network_threads,
                receive_max_bytes,
                Arc::clone(&budget),
            ),
            verifications: Verifications::new(Arc::clone(&budget)),
            unreachable_leaders: UnreachableLeaders::default(),
            quotas: ReplicationQuotas::default(),
            sessions: SessionCache::within(config.fetch_session_slots, receive_max_bytes / 2),
            session_ids: Unguessable::default(),
            replies: ReplyMemory::new(receive_max_bytes, config.cluster.is_some()),
            old_clients: OldClients::default(),
            offers_client_metrics: AtomicBool::new(false),
            client_software: ClientSoftware::default(),
            refused_room: Arc::default(),
            budget,
            mailboxes,
            logs,
        }
    }
}

impl Services {
    /// Counts `bytes` that a followed partition received, unless it began at its leader's end.
    pub fn count_followed(&self, partition: &Partition, bytes: usize) {
        let quota = &self.quotas.follower;
        let is_copied = || {
            let state = partition.lock();
            !state.log.as_ref().is_some_and(Log::is_partial)
        };
        let node_id = self.config.node_id;
        if quota.is_limited() && partition.is_throttled_following(node_id) && is_copied() {
            quota.count(bytes, mono_ms());
        }
    }
}

impl Deref for Services {
    type Target = LogManager;

    fn deref(&self) -> &LogManager {
        &self.logs
    }
}
