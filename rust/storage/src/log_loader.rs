//! Runs slow commands of the control plane: opening, closing and deleting logs, sizes.
//!
//! Each directory has up to `num.recovery.threads.per.data.dir` threads, so a hanging one does not
//! delay the others. Commands for one partition run in order; others run concurrently. A command
//! that waits for space lends its place, so that deleting a topic can free some.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::log_dir_state::Partition;
use pyrklog_base::ids::TicketId;
use pyrklog_control::event_queue::EventQueue;
use pyrklog_control::seam::TicketOutcome;

/// Commands of a directory that may lend their places at a time; each keeps a thread.
const LENT_MAX: usize = 16;

/// The subject of a command. Commands with equal keys never run concurrently.
pub type Key = (Arc<str>, i32);

/// What a command does.
pub type Run = Box<dyn FnOnce() + Send>;

/// A run that is given `context`.
pub fn with<C: Send + Sync + 'static>(
    context: &Arc<C>,
    run: impl FnOnce(&Arc<C>) + Send + 'static,
) -> Run {
    let context = Arc::clone(context);
    Box::new(move || run(&context))
}

/// One piece of slow work.
pub struct Command {
    /// What it is about.
    pub key: Key,
    /// Position of the log directory whose disk it may wait for.
    pub dir: usize,
    /// What to do.
    pub run: Run,
}

impl Command {
    /// About a partition, which `run` is given with `context`.
    pub fn about<C: Send + Sync + 'static>(
        partition: Arc<Partition>,
        context: &Arc<C>,
        run: impl FnOnce(&Arc<C>, &Arc<Partition>) + Send + 'static,
    ) -> Command {
        Command {
            key: (Arc::clone(&partition.topic.name), partition.index),
            dir: partition.dir().index,
            run: with(context, move |context| run(context, &partition)),
        }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct OfDir {
    waiting: VecDeque<(u64, Command)>,
    /// Excludes commands that have lent their places.
    running: usize,
    lent: usize,
}

#[derive(Debug)]
struct Inner {
    dirs: Vec<OfDir>,
    /// Numbers and directories of the commands that wait or run, in order.
    by_key: HashMap<Key, VecDeque<(u64, usize)>>,
    last_number: u64,
    threads: usize,
    handles: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub struct LogLoader {
    per_dir: AtomicUsize,
    inner: Mutex<Inner>,
    /// A simulation runs the commands; no thread is started.
    #[cfg(feature = "sim")]
    is_simulated: AtomicBool,
}

impl LogLoader {
    /// A queue with up to `per_dir` threads for each of `dirs` log directories.
    pub fn new(per_dir: usize, dirs: usize) -> LogLoader {
        let inner = Inner::new(dirs);
        LogLoader {
            per_dir: AtomicUsize::new(per_dir.max(1)),
            inner: Mutex::new(inner),
            #[cfg(feature = "sim")]
            is_simulated: AtomicBool::new(false),
        }
    }

    /// Starts no threads from now on.
    #[cfg(feature = "sim")]
    pub fn set_simulated(&self) {
        self.is_simulated.store(true, Ordering::Relaxed);
    }

    fn per_dir(&self) -> usize {
        self.per_dir.load(Ordering::Relaxed)
    }

    /// Changes the number of threads of a directory; surplus ones end after their commands.
    pub fn set_per_dir(self: &Arc<Self>, per_dir: usize) {
        self.per_dir.store(per_dir.max(1), Ordering::Relaxed);
        self.submit([]);
    }

    /// Queues commands and starts threads as needed. After [`LogLoader::stop`] commands are
    /// dropped.
    pub fn submit(self: &Arc<Self>, commands: impl IntoIterator<Item = Command>) {
        let mut inner = self.inner.lock();
        for command in commands {
            inner.add(command);
        }
        #[cfg(feature = "sim")]
        if self.is_simulated.load(Ordering::Relaxed) {
            return;
        }
        while inner.threads < inner.threads_wanted(self.per_dir()) {
            inner.threads += 1;
            let loader = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("loader".into())
                .spawn(move || loader.work());
            match spawned {
                Ok(handle) => {
                    inner.handles.retain(|handle| !handle.is_finished());
                    inner.handles.push(handle);
                }
                Err(error) => {
                    inner.threads -= 1;
                    // Without any thread the ticket would never complete: crash rather than hang.
                    assert!(
                        inner.threads > 0,
                        "cannot start a thread to open logs: {error}"
                    );
                    break;
                }
            }
        }
    }

    fn work(&self) {
        let mut inner = self.inner.lock();
        while let Some(command) = inner.next(self.per_dir()) {
            let Command { key, dir, run } = command;
            drop(inner);
            run();
            inner = self.inner.lock();
            inner.done(&key, dir);
        }
        // The thread that runs an earlier command of the same key looks again afterwards.
        inner.threads -= 1;
    }

    /// Calls `wait` from the running command of `key` while another command takes its place.
    pub fn lend_place(self: &Arc<Self>, key: &Key, wait: impl FnOnce()) {
        let lent = self.inner.lock().lend(key);
        if lent.is_some() {
            self.submit([]);
        }
        wait();
        if let Some(dir) = lent {
            self.inner.lock().take_back(dir);
        }
    }

    /// Runs the next command on the caller's thread; false if there is none.
    #[cfg(feature = "sim")]
    pub fn run_next(&self) -> bool {
        let next = self.inner.lock().next(self.per_dir());
        let Some(Command { key, dir, run }) = next else {
            return false;
        };
        run();
        self.inner.lock().done(&key, dir);
        true
    }

    /// Drops waiting commands and waits for running ones.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.is_stopped = true;
        for dir in &mut inner.dirs {
            dir.waiting.clear();
        }
        let handles = std::mem::take(&mut inner.handles);
        drop(inner);
        for handle in handles {
            let _ = handle.join();
        }
    }

    /// Number of commands that wait or run.
    pub fn depth(&self) -> usize {
        let inner = self.inner.lock();
        let dirs = inner.dirs.iter();
        dirs.map(|dir| dir.waiting.len() + dir.running).sum()
    }
}

impl Inner {
    fn new(dirs: usize) -> Inner {
        let of_dir = |_| OfDir {
            waiting: VecDeque::new(),
            running: 0,
            lent: 0,
        };
        Inner {
            dirs: (0..dirs).map(of_dir).collect(),
            by_key: HashMap::new(),
            last_number: 0,
            threads: 0,
            handles: Vec::new(),
            is_stopped: false,
        }
    }

    fn add(&mut self, command: Command) {
        if self.is_stopped {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        self.by_key
            .entry(command.key.clone())
            .or_default()
            .push_back((number, command.dir));
        self.dirs[command.dir].waiting.push_back((number, command));
    }

    fn threads_wanted(&self, per_dir: usize) -> usize {
        let dirs = self.dirs.iter();
        dirs.map(|dir| per_dir.min(dir.waiting.len() + dir.running))
            .sum()
    }

    /// Takes the next command: of a directory with a free place, the first one whose key has no
    /// earlier command.
    fn next(&mut self, per_dir: usize) -> Option<Command> {
        if self.is_stopped {
            return None;
        }
        for dir in self.dirs.iter_mut().filter(|dir| dir.running < per_dir) {
            let is_first = |(number, command): &(u64, Command)| {
                let numbers = self.by_key.get(&command.key);
                let first = numbers.and_then(VecDeque::front);
                first.is_some_and(|(first, _)| first == number)
            };
            if let Some(at) = dir.waiting.iter().position(is_first)
                && let Some((_, command)) = dir.waiting.remove(at)
            {
                dir.running += 1;
                return Some(command);
            }
        }
        None
    }

    /// Stops counting the running command of `key` and its thread. Returns the directory that it
    /// counts for, from which its partition may have moved; `None` if too many lend already.
    fn lend(&mut self, key: &Key) -> Option<usize> {
        let (_, dir) = *self.by_key.get(key)?.front()?;
        let of_dir = &mut self.dirs[dir];
        if of_dir.lent >= LENT_MAX {
            return None;
        }
        of_dir.lent += 1;
        of_dir.running -= 1;
        self.threads -= 1;
        Some(dir)
    }

    fn take_back(&mut self, dir: usize) {
        self.dirs[dir].lent -= 1;
        self.dirs[dir].running += 1;
        self.threads += 1;
    }

    fn done(&mut self, key: &Key, dir: usize) {
        self.dirs[dir].running -= 1;
        if let Some(numbers) = self.by_key.get_mut(key) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

/// Gathers the error codes of a ticket's commands; the last one completes the ticket.
#[derive(Debug)]
pub struct Gathering {
    ticket: TicketId,
    codes: Mutex<Vec<i16>>,
    left: AtomicUsize,
}

impl Gathering {
    /// For a ticket whose codes begin as `known` and with `left` commands to run.
    pub fn new(ticket: TicketId, known: Vec<i16>, left: usize) -> Arc<Gathering> {
        Arc::new(Gathering {
            ticket,
            codes: Mutex::new(known),
            left: AtomicUsize::new(left),
        })
    }

    /// One command is done.
    pub fn done(&self, events: &EventQueue, index: usize, code: i16) {
        self.codes.lock()[index] = code;
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(events);
        }
    }

    /// Completes the ticket.
    pub fn complete(&self, events: &EventQueue) {
        let codes = std::mem::take(&mut *self.codes.lock());
        events.complete(self.ticket, TicketOutcome::Partitions(codes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(topic: &str, dir: usize) -> Command {
        Command {
            key: (Arc::from(topic), 0),
            dir,
            run: Box::new(|| {}),
        }
    }

    fn queue(dirs: usize, commands: &[(&str, usize)]) -> Inner {
        let mut inner = Inner::new(dirs);
        for (topic, dir) in commands {
            inner.add(command(topic, *dir));
        }
        inner
    }

    fn next(inner: &mut Inner) -> Option<String> {
        inner.next(1).map(|command| command.key.0.to_string())
    }

    #[test]
    fn a_directory_that_hangs_takes_no_more_than_its_own_threads() {
        let mut inner = queue(2, &[("a", 0), ("b", 0), ("c", 1), ("d", 1)]);
        assert_eq!(inner.threads_wanted(1), 2);
        assert_eq!(next(&mut inner).as_deref(), Some("a"));
        assert_eq!(next(&mut inner).as_deref(), Some("c"));
        assert_eq!(next(&mut inner), None);
        inner.done(&(Arc::from("c"), 0), 1);
        assert_eq!(next(&mut inner).as_deref(), Some("d"), "not b, behind a");
        inner.done(&(Arc::from("a"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("b"));
    }

    #[test]
    fn a_command_that_waits_for_space_lends_its_place() {
        let mut inner = queue(1, &[("cut", 0), ("deleted", 0), ("cut", 0), ("last", 0)]);
        inner.threads = 1;
        assert_eq!(next(&mut inner).as_deref(), Some("cut"));
        assert_eq!(next(&mut inner), None);
        let key = |topic: &str| (Arc::from(topic), 0);
        assert_eq!(inner.lend(&key("cut")), Some(0));
        assert_eq!((inner.threads, inner.threads_wanted(1)), (0, 1));
        inner.threads = 1;
        assert_eq!(next(&mut inner).as_deref(), Some("deleted"));
        inner.done(&(Arc::from("deleted"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("last"), "not what is cut");
        inner.take_back(0);
        assert_eq!((inner.threads, inner.dirs[0].running), (2, 2));
        inner.done(&(Arc::from("last"), 0), 0);
        inner.done(&(Arc::from("cut"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("cut"));
        for _ in 0..LENT_MAX {
            inner.dirs[0].running = 1;
            inner.threads = 1;
            assert_eq!(inner.lend(&key("cut")), Some(0));
        }
        assert_eq!(inner.lend(&key("cut")), None);
        assert_eq!(inner.lend(&key("unknown")), None);
    }

    /// The partition may move to another directory before its command runs.
    #[test]
    fn a_command_lends_its_place_in_the_directory_it_was_queued_for() {
        let mut inner = queue(2, &[("cut", 1), ("b", 1)]);
        inner.threads = 1;
        assert_eq!(next(&mut inner).as_deref(), Some("cut"));
        assert_eq!(inner.lend(&(Arc::from("cut"), 0)), Some(1));
        assert_eq!(next(&mut inner).as_deref(), Some("b"));
    }

    #[test]
    fn commands_for_one_partition_keep_their_order_across_directories() {
        let mut inner = queue(2, &[("a", 0), ("a", 1), ("b", 1)]);
        assert_eq!(next(&mut inner).as_deref(), Some("a"));
        assert_eq!(next(&mut inner).as_deref(), Some("b"), "a is under way");
        inner.done(&(Arc::from("b"), 0), 1);
        assert_eq!(next(&mut inner), None);
        inner.done(&(Arc::from("a"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("a"));
        inner.done(&(Arc::from("a"), 0), 1);
        assert!(inner.by_key.is_empty());
    }

    #[test]
    fn more_threads_take_what_waits() {
        let loader = Arc::new(LogLoader::new(1, 1));
        let (started, starts) = std::sync::mpsc::channel();
        let ends = ["a", "b"].map(|topic| {
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let started = started.clone();
            let waits = Command {
                run: Box::new(move || {
                    started.send(topic).expect("a listener");
                    let _until_dropped = ends.recv();
                }),
                ..command(topic, 0)
            };
            loader.submit([waits]);
            end
        });
        assert_eq!(starts.recv(), Ok("a"));
        assert!(starts.try_recv().is_err());
        loader.set_per_dir(2);
        assert_eq!(starts.recv(), Ok("b"));
        loader.set_per_dir(0);
        drop(ends);
        loader.submit([command("c", 0)]);
        while loader.depth() > 0 {
            std::thread::yield_now();
        }
        loader.stop();
    }
}
