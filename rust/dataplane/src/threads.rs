//! The plane's threads: started when first needed, joined at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use pyrklog_arena::Arena;

use crate::net::acceptor::Acceptor;
use crate::net::network::Network;
use crate::net::network_thread::NetworkThread;
use pyrklog_control::seam::CleanerConfig;
use pyrklog_requests::produce::validators;
use pyrklog_storage::cache_janitor::CacheJanitorThread;
use pyrklog_storage::cleaner::Cleaners;
use pyrklog_storage::log_dir_state::LogDirState;
use pyrklog_storage::moves::carry_out;
use pyrklog_storage::reader_pool::{self, ReaderPool};
use pyrklog_storage::syncer::Syncer;
use pyrklog_storage::writer::Writer;

#[derive(Debug, Default)]
struct Running {
    storage: Vec<JoinHandle<()>>,
    cleaners: Option<Arc<Cleaners>>,
    /// Changed since the start.
    cleaner_config: Option<CleanerConfig>,
    /// Why the storage threads could not all be started: they are not tried again.
    storage_failed: Option<String>,
    cache_janitors: Vec<JoinHandle<()>>,
    arenas: Vec<Arc<Arena>>,
    cache_janitors_stop: Arc<AtomicBool>,
    /// Network threads and the acceptor.
    network: Vec<JoinHandle<()>>,
    is_accepting: bool,
    /// The reader starter, then the validators.
    readers_and_validators: Vec<JoinHandle<()>>,
}

impl Running {
    fn start_storage(&mut self, network: &Arc<Network>) -> io::Result<()> {
        for dir in &network.dirs {
            self.start_writers(network, dir)?;
            let syncer = Syncer::new(Arc::clone(&network.logs), Arc::clone(dir));
            self.storage
                .push(spawn(format!("syncer-{}", dir.index), || syncer.run())?);
            let stop = Arc::clone(&self.cache_janitors_stop);
            if let Some(janitor) =
                CacheJanitorThread::new(Arc::clone(&network.logs), Arc::clone(dir), stop)
            {
                self.arenas.push(Arc::clone(janitor.arena()));
                let thread = spawn(format!("cache-{}", dir.index), || janitor.run())?;
                self.cache_janitors.push(thread);
            }
        }
        for number in 0..network.config.move_threads {
            let logs = Arc::clone(&network.logs);
            let thread = spawn(format!("mover-{number}"), move || carry_out::run(&logs))?;
            self.storage.push(thread);
        }
        self.start_cleaners(network)
    }

    fn start_cleaners(&mut self, network: &Arc<Network>) -> io::Result<()> {
        let config = self.cleaner_config.unwrap_or(network.config.cleaner);
        let new = || Cleaners::new(Arc::clone(&network.logs), config);
        let cleaners = self.cleaners.get_or_insert_with(new);
        // Those that are one too many have ended, or will.
        self.storage.retain(|thread| !thread.is_finished());
        for number in cleaners.take_missing() {
            let running = Arc::clone(cleaners);
            let started = spawn(format!("cleaner-{number}"), move || running.run(number));
            if started.is_err() {
                cleaners.ended(number);
            }
            self.storage.push(started?);
        }
        Ok(())
    }

    fn start_writers(&mut self, network: &Arc<Network>, dir: &Arc<LogDirState>) -> io::Result<()> {
        for writer in Writer::team(&network.logs, dir) {
            let is_first = writer.is_first();
            match spawn(writer.name(), || writer.run()) {
                Ok(thread) => self.storage.push(thread),
                Err(error) if is_first => return Err(error),
                // Fewer do the same work.
                Err(error) => {
                    dir.writer.leave();
                    let reason = error.to_string();
                    network.dir_notice(dir, "writer_not_started", "warning", reason);
                }
            }
        }
        Ok(())
    }

    fn start_readers(&mut self, network: &Arc<Network>) -> io::Result<()> {
        if self.readers_and_validators.is_empty() {
            let (readers, events) = (Arc::clone(&network.readers), Arc::clone(&network.events));
            let run = move || reader_pool::start_threads(&readers, &events);
            self.readers_and_validators
                .push(spawn("reader-starter".into(), run)?);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct Threads {
    running: Mutex<Running>,
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run)
}

impl Threads {
    /// Starts the writers and the syncer of every log directory, once.
    pub fn start_storage(&self, network: &Arc<Network>) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if network.is_simulated() {
            return Ok(());
        }
        let mut running = self.running.lock();
        if let Some(reason) = &running.storage_failed {
            return Err(io::Error::other(reason.clone()));
        }
        if !running.storage.is_empty() {
            return Ok(());
        }
        let started = running.start_storage(network);
        if let Err(error) = &started {
            running.storage_failed = Some(error.to_string());
        }
        started
    }

    /// Takes other options of compaction, now or when the cleaners start.
    pub fn set_cleaner(&self, network: &Arc<Network>, config: CleanerConfig) -> io::Result<()> {
        let mut running = self.running.lock();
        running.cleaner_config = Some(config);
        let Some(cleaners) = &running.cleaners else {
            return Ok(());
        };
        cleaners.set_config(config);
        running.start_cleaners(network)
    }

    /// Starts the reader starter, once: the control plane may read before it listens.
    pub fn start_readers(&self, network: &Arc<Network>) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if network.is_simulated() {
            return Ok(());
        }
        self.running.lock().start_readers(network)
    }

    /// Starts the acceptor, the network threads and the reader starter, once.
    pub fn start_network(&self, network: &Arc<Network>) -> io::Result<()> {
        let mut running = self.running.lock();
        if running.is_accepting {
            return Ok(());
        }
        for index in 0..network.config.network_threads {
            let thread = NetworkThread::new(Arc::clone(network), index)?;
            running
                .network
                .push(spawn(format!("network-{index}"), || thread.run())?);
        }
        running.start_readers(network)?;
        for number in 0..network.validators.threads {
            let services = Arc::clone(&network.services);
            let run = move || validators::run(&services.validators, &*services.mailboxes.validated);
            let thread = spawn(format!("validator-{number}"), run)?;
            running.readers_and_validators.push(thread);
        }
        let acceptor = Acceptor::new(Arc::clone(network))?;
        let thread = spawn("acceptor".into(), || acceptor.run())?;
        running.network.push(thread);
        running.is_accepting = true;
        Ok(())
    }

    fn join(&self, some: impl FnOnce(&mut Running) -> &mut Vec<JoinHandle<()>>) {
        let threads = std::mem::take(some(&mut self.running.lock()));
        for thread in threads {
            // A panic was reported on standard error; the other threads still end in order.
            let _ = thread.join();
        }
    }

    /// Waits for the acceptor and the network threads.
    pub fn join_network(&self) {
        self.join(|running| &mut running.network);
    }

    /// Waits for the readers, their starter and the validators.
    pub fn join_readers(&self, readers: &ReaderPool) {
        self.join(|running| &mut running.readers_and_validators);
        readers.wait_ended();
    }

    /// Ends the cleaners, waits for them, the writers and syncers, then ends the cache janitors.
    pub fn join_storage(&self) {
        let cleaners = self.running.lock().cleaners.take();
        if let Some(cleaners) = cleaners {
            cleaners.stop();
        }
        self.join(|running| &mut running.storage);
        let arenas = {
            let mut running = self.running.lock();
            running.cache_janitors_stop.store(true, Ordering::Release);
            std::mem::take(&mut running.arenas)
        };
        arenas.iter().for_each(|arena| arena.ring());
        self.join(|running| &mut running.cache_janitors);
    }
}
