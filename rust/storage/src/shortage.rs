//! What a directory's writers do when a write finds no space, or the process lacks descriptors or
//! memory for it (`block-cache.md`, section 7): they keep the job and try again. On a full volume
//! they write acknowledged records into the reserve first, and let the directory take records again
//! once there is space.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyrklog_log::disk::{is_exhausted, is_full};
use pyrklog_log::{Log, WriteJob};
use pyrklog_wire::ErrorCode;

use crate::log_dir_state::{LogDirState, Partition};
use crate::log_manager::LogManager;
use pyrklog_base::clock::mono_ms;
use pyrklog_control::outbox::Outbox;

const RETRY_MS: i64 = 1_000;

/// Space needed beyond the reserve before the directory takes records again, as a fraction of the
/// reserve. With less, the next records would fill the volume again.
const MARGIN_SHARE: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// Not checked: nothing was written yet.
    Unknown,
    Made,
    /// It was given up, or there was no space for it.
    Gone,
    /// The file system does not support it.
    Refused,
}

/// See the module; shared by the writers of one directory.
#[derive(Debug)]
pub struct Shortage {
    logs: Arc<LogManager>,
    dir: Arc<LogDirState>,
    /// Held while the reserve is made or given up.
    reserve: Mutex<Reserve>,
    is_known: AtomicBool,
    /// How often the reserve was given up. A writer that failed before the last time retries.
    given_up: AtomicUsize,
    stuck: Mutex<Vec<(Arc<Partition>, WriteJob)>>,
    next_try_ms: AtomicI64,
}

impl Shortage {
    /// For one directory.
    pub fn new(logs: Arc<LogManager>, dir: Arc<LogDirState>) -> Shortage {
        Shortage {
            logs,
            dir,
            reserve: Mutex::new(Reserve::Unknown),
            is_known: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
            stuck: Mutex::default(),
            next_try_ms: AtomicI64::new(0),
        }
    }

    /// Checks at start: a directory with neither a reserve nor space for one takes no records.
    pub fn check_at_start(&self) {
        let files = &self.dir.files;
        // Unknown free space does not count as a full volume.
        if let (Ok(false), Ok(space)) = (files.has_reserve(), files.space())
            && space.usable_bytes < self.dir.reserve_bytes
        {
            let (free, wanted) = (space.usable_bytes, self.dir.reserve_bytes);
            let reason = format!("{free} bytes are free, but the reserve needs {wanted}");
            self.logs.make_read_only(&self.dir, reason);
        }
    }

    /// When the first writer must look again, monotonic milliseconds; `None` if nothing is short,
    /// no job is kept and no log waits to be opened.
    pub fn due_ms(&self) -> Option<i64> {
        // A job may still be kept, or a log wait, after another writer found space.
        let is_waiting = self.dir.is_read_only()
            || self.dir.is_exhausted()
            || !self.stuck.lock().is_empty()
            || self.dir.has_waiting_for_space();
        let is_waiting = is_waiting && !self.dir.has_failed();
        is_waiting.then(|| self.next_try_ms.load(Ordering::Relaxed))
    }

    /// Executes a job; without space, once more after giving up the reserve.
    ///
    /// # Errors
    /// As [`WriteJob::execute`]. If [`may_pass`](pyrklog_log::disk::may_pass) holds, pass the job to
    /// [`Shortage::keep_for_retry`].
    pub fn execute(&self, job: &mut WriteJob) -> io::Result<()> {
        if !self.is_known.load(Ordering::Acquire) {
            let mut reserve = self.reserve.lock();
            if *reserve == Reserve::Unknown {
                self.make(&mut reserve);
            }
        }
        loop {
            let seen = self.given_up.load(Ordering::Acquire);
            match job.execute() {
                Err(error) if is_full(&error) => {
                    if !self.make_space(seen, &error)? {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    /// Keeps a job that failed by an error that may pass. On a full disk, fails the requests that
    /// wait for its bytes. Without descriptors or memory they wait for the next try, or until they
    /// time out.
    pub fn keep_for_retry(
        &self,
        partition: Arc<Partition>,
        job: WriteJob,
        error: &io::Error,
        outbox: &mut Outbox,
    ) {
        if is_full(error) {
            let mut state = partition.lock();
            state.fail_waiters(ErrorCode::KAFKA_STORAGE_ERROR, outbox);
        }
        let doing = format!("writing {partition}");
        self.stuck.lock().push((partition, job));
        if is_exhausted(error) {
            // Only now, since who finds nothing kept takes the lack for over.
            self.logs.fall_short(&self.dir, &doing, error);
        }
        self.dir.writer.hurry();
    }

    /// The jobs to execute again, if a try is due. Drops jobs of partitions that are gone.
    pub fn take_due(&self) -> Vec<(Arc<Partition>, WriteJob)> {
        let now_ms = mono_ms();
        if self.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return Vec::new();
        }
        let next_try_ms = now_ms + RETRY_MS;
        self.next_try_ms.store(next_try_ms, Ordering::Relaxed);
        let mut stuck = std::mem::take(&mut *self.stuck.lock());
        stuck.retain(|(partition, job)| {
            let is_its = |log: &Log| log.is_written_by(job);
            partition.lock().log.as_ref().is_some_and(is_its)
        });
        stuck
    }

    /// All jobs, at the end; none if the directory has failed.
    pub fn take_all(&self) -> Vec<(Arc<Partition>, WriteJob)> {
        let mut stuck = std::mem::take(&mut *self.stuck.lock());
        if self.dir.has_failed() {
            stuck.clear();
        }
        stuck
    }

    /// After a try: opens logs that wait for space. If nothing waits any more, makes the reserve
    /// again and lets the directory take records.
    pub fn try_to_end(&self) -> io::Result<()> {
        if self.dir.is_exhausted() && !self.dir.files.can_open() {
            return Ok(());
        }
        let waiting = self.dir.take_waiting_for_space();
        if !waiting.is_empty() {
            // One that comes between an opening and this finds out at the next opening.
            if self.dir.is_read_only() {
                self.give_up(&mut self.reserve.lock())?;
            }
            if let Some(listener) = self.logs.space_listener() {
                listener.open_logs(waiting);
            }
            return Ok(());
        }
        if !self.stuck.lock().is_empty() {
            return Ok(());
        }
        let found_descriptors = self.logs.end_exhausted(&self.dir);
        let found_space = self.dir.is_read_only() && self.takes_records_again();
        if (found_descriptors || found_space)
            && let Some(listener) = self.logs.space_listener()
        {
            listener.close_logs(&self.dir);
        }
        Ok(())
    }

    /// Makes the reserve if there is space for it; the directory then takes records.
    fn takes_records_again(&self) -> bool {
        let mut reserve = self.reserve.lock();
        if !self.has_room(*reserve) {
            return false;
        }
        self.make(&mut reserve);
        let is_settled = !matches!(*reserve, Reserve::Unknown | Reserve::Gone);
        if is_settled {
            self.logs.make_writable(&self.dir);
        }
        is_settled
    }

    fn has_room(&self, reserve: Reserve) -> bool {
        let reserve_bytes = self.dir.reserve_bytes;
        let margin_bytes = reserve_bytes / MARGIN_SHARE;
        let wanted_bytes = match reserve {
            Reserve::Unknown | Reserve::Gone => reserve_bytes + margin_bytes,
            Reserve::Made | Reserve::Refused => margin_bytes,
        };
        let space = self.dir.files.space();
        space.is_ok_and(|space| space.usable_bytes >= wanted_bytes)
    }

    fn make(&self, reserve: &mut Reserve) {
        const DOING: &str = "making the reserve";
        *reserve = match self.dir.files.make_reserve(self.dir.reserve_bytes) {
            Ok(()) => Reserve::Made,
            // It stays to be made.
            Err(error) if is_exhausted(&error) => {
                return self.logs.fall_short(&self.dir, DOING, &error);
            }
            Err(error) if is_full(&error) => {
                self.logs.fall_short(&self.dir, DOING, &error);
                Reserve::Gone
            }
            Err(error) => {
                let (event, reason) = ("log_dir_without_reserve", format!("{DOING}: {error}"));
                self.logs.dir_notice(&self.dir, event, "warning", reason);
                Reserve::Refused
            }
        };
        self.is_known.store(true, Ordering::Release);
    }

    /// Makes space after a job failed that had seen `seen` give-ups; true if this call or another
    /// writer made some. The directory then stays read-only until [`Shortage::try_to_end`] has
    /// made the reserve again under the same lock.
    fn make_space(&self, seen: usize, error: &io::Error) -> io::Result<bool> {
        let mut reserve = self.reserve.lock();
        if self.given_up.load(Ordering::Acquire) != seen {
            return Ok(true);
        }
        self.logs.fall_short(&self.dir, "writing", error);
        let was_made = *reserve == Reserve::Made;
        self.give_up(&mut reserve)?;
        Ok(was_made)
    }

    fn give_up(&self, reserve: &mut Reserve) -> io::Result<()> {
        let was_made = *reserve == Reserve::Made;
        if was_made || *reserve == Reserve::Unknown {
            self.dir.files.remove_reserve()?;
            *reserve = Reserve::Gone;
            self.is_known.store(true, Ordering::Release);
        }
        if was_made {
            self.given_up.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}
