//! The fetcher threads: started when there is something to follow, ended when there is not.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::follower::back_fill::source_of;
use crate::follower::back_fill_thread::BackFiller;
use crate::follower::fetcher_queue::{BACK_FILL, CATCH_UP, FetcherId, FetcherQueue, Fetchers};
use crate::follower::fetcher_thread::Fetcher;
use crate::follower::following::has_to_catch_up;
use pyrklog_base::clock::mono_ms;
use pyrklog_log::Log;
use pyrklog_replica::partition::Role;
use pyrklog_requests::services::Services;
use pyrklog_storage::log_dir_state::Partition;

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<FetcherId, Arc<FetcherQueue>>,
    threads: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

#[derive(Debug)]
pub struct FetcherManager {
    services: Arc<Services>,
    inner: Mutex<Inner>,
}

impl FetcherManager {
    pub fn new(services: Arc<Services>) -> FetcherManager {
        let rate_bytes = services.config.cluster.as_ref();
        let rate_bytes = rate_bytes.map_or(0, |cluster| cluster.back_fill_rate_bytes);
        let quota = &services.quotas.back_fill;
        quota.set_rate(Some(rate_bytes), mono_ms());
        FetcherManager {
            services,
            inner: Mutex::default(),
        }
    }

    #[cfg(feature = "sim")]
    pub fn ids(&self) -> Vec<FetcherId> {
        let mut ids: Vec<FetcherId> = self.inner.lock().queues.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    #[cfg(feature = "sim")]
    pub fn queue(&self, id: FetcherId) -> Option<Arc<FetcherQueue>> {
        self.inner.lock().queues.get(&id).cloned()
    }

    pub fn stop(&self) {
        let threads = {
            let mut inner = self.inner.lock();
            inner.is_stopped = true;
            for queue in inner.queues.values() {
                queue.stop();
            }
            std::mem::take(&mut inner.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Fetchers for FetcherManager {
    fn follow(self: Arc<Self>, partition: &Arc<Partition>) {
        Arc::clone(&self).change_fetcher(partition);
        self.fill(partition);
    }

    fn change_fetcher(self: Arc<Self>, partition: &Arc<Partition>) {
        let Some(cluster) = &self.services.config.cluster else {
            return;
        };
        let id = {
            let mut state = partition.lock();
            let (Role::Follower, Some(leader @ 0..)) = (state.role, state.leader_to_follow) else {
                return;
            };
            let number = number_of(partition) % cluster.fetchers.max(1);
            state.fetcher = match has_to_catch_up(&state) {
                true => CATCH_UP + number,
                false => number,
            };
            (leader, state.fetcher)
        };
        self.put(id, partition);
    }

    fn fill(self: Arc<Self>, partition: &Arc<Partition>) {
        let Some(cluster) = &self.services.config.cluster else {
            return;
        };
        let source = {
            let state = partition.lock();
            let node_id = self.services.config.node_id;
            let lacks = state.log.as_ref().is_some_and(Log::is_partial);
            if state.role != Role::Follower || !lacks || !state.is_partial(node_id) {
                return;
            }
            let (image, listener) = (self.services.image.load(), &cluster.listener);
            source_of(&state, &image, listener, node_id, number_of(partition))
        };
        if let Some(source) = source {
            self.put((source, BACK_FILL), partition);
        }
    }

    fn retire(&self, id: FetcherId, queue: &Arc<FetcherQueue>) -> bool {
        let mut inner = self.inner.lock();
        let is_idle = queue.is_stopped() || queue.is_empty();
        if is_idle {
            inner.queues.remove(&id);
        }
        is_idle
    }
}

/// Spreads partitions.
fn number_of(partition: &Partition) -> usize {
    let id = partition.topic.id.iter();
    id.map(|byte| *byte as usize).sum::<usize>() + partition.index.unsigned_abs() as usize
}

impl FetcherManager {
    fn put(self: &Arc<Self>, id: FetcherId, partition: &Arc<Partition>) {
        let mut inner = self.inner.lock();
        if inner.is_stopped {
            return;
        }
        let queue = match inner.queues.get(&id) {
            Some(queue) => Arc::clone(queue),
            None => match inner.start(self, id) {
                Ok(queue) => queue,
                Err(error) => {
                    let fields = vec![("reason", error.to_string())];
                    return self
                        .services
                        .events
                        .notice("fetcher_not_started", "error", fields);
                }
            },
        };
        queue.put(partition);
    }
}

impl Inner {
    fn start(
        &mut self,
        manager: &Arc<FetcherManager>,
        id: FetcherId,
    ) -> std::io::Result<Arc<FetcherQueue>> {
        let queue = Arc::new(FetcherQueue::new()?);
        #[cfg(feature = "sim")]
        if manager.services.is_simulated() {
            self.queues.insert(id, Arc::clone(&queue));
            return Ok(queue);
        }
        let services = Arc::clone(&manager.services);
        let fetchers = Arc::clone(manager) as Arc<dyn Fetchers>;
        let place = (id, Arc::clone(&queue));
        let thread = std::thread::Builder::new();
        let thread = match id {
            (source, BACK_FILL) => thread
                .name(format!("fill-{source}"))
                .spawn(move || BackFiller::new(services, fetchers, place).run()),
            (leader, number @ CATCH_UP..) => thread
                .name(format!("catch-{leader}-{}", number - CATCH_UP))
                .spawn(move || Fetcher::new(services, fetchers, place).run()),
            (leader, number) => thread
                .name(format!("fetch-{leader}-{number}"))
                .spawn(move || Fetcher::new(services, fetchers, place).run()),
        }?;
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
        self.queues.insert(id, Arc::clone(&queue));
        Ok(queue)
    }
}
