//! Runs slow commands of the control plane: opening, closing and deleting logs, sizes.
//!
//! Each directory has up to `num.recovery.threads.per.data.dir` threads, so a hanging one does not
//! delay the others. Commands for one partition run in order; others run concurrently. A command
//! that waits for space lends its place, so that deleting a topic can free some.
//!
//! A broker that gets many replicas opens them one after another, each with some waits for its
//! disk. What producers wait for is not to wait behind them: what needs no disk runs at once
//! ([`LogLoader::run_now`]), and what serves a log that is open goes first
//! ([`LogLoader::submit_first`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Mutex, MutexGuard};

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
    /// Taken before those that wait.
    first: VecDeque<(u64, Command)>,
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
            inner.add(command, false);
        }
        self.start_threads(inner);
    }

    /// The same, before all commands of other partitions that wait.
    pub fn submit_first(self: &Arc<Self>, commands: impl IntoIterator<Item = Command>) {
        let mut inner = self.inner.lock();
        for command in commands {
            inner.add(command, true);
        }
        self.start_threads(inner);
    }

    /// Runs on the caller's thread what waits for no disk. False, and nothing was run, while
    /// commands of the same key wait or run: then it has to wait for its turn.
    pub fn run_now(self: &Arc<Self>, key: &Key, run: impl FnOnce()) -> bool {
        if !self.inner.lock().begin_now(key) {
            return false;
        }
        run();
        let mut inner = self.inner.lock();
        inner.end(key);
        // Some of the key may have come meanwhile, and found no thread.
        self.start_threads(inner);
        true
    }

    fn start_threads(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
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
            dir.first.clear();
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
        dirs.map(OfDir::depth).sum()
    }
}

impl OfDir {
    fn depth(&self) -> usize {
        self.first.len() + self.waiting.len() + self.running
    }
}

impl Inner {
    fn new(dirs: usize) -> Inner {
        let of_dir = |_| OfDir {
            first: VecDeque::new(),
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

    fn add(&mut self, command: Command, goes_first: bool) {
        if self.is_stopped {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        self.by_key
            .entry(command.key.clone())
            .or_default()
            .push_back((number, command.dir));
        let dir = &mut self.dirs[command.dir];
        let queue = match goes_first {
            true => &mut dir.first,
            false => &mut dir.waiting,
        };
        queue.push_back((number, command));
    }

    /// Keeps commands of the key waiting; false if there are some.
    fn begin_now(&mut self, key: &Key) -> bool {
        if self.is_stopped || self.by_key.contains_key(key) {
            return false;
        }
        self.last_number += 1;
        let running = VecDeque::from([(self.last_number, 0)]);
        self.by_key.insert(key.clone(), running);
        true
    }

    fn threads_wanted(&self, per_dir: usize) -> usize {
        let dirs = self.dirs.iter();
        dirs.map(|dir| per_dir.min(dir.depth())).sum()
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
            for queue in [&mut dir.first, &mut dir.waiting] {
                if let Some(at) = queue.iter().position(is_first)
                    && let Some((_, command)) = queue.remove(at)
                {
                    dir.running += 1;
                    return Some(command);
                }
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
        self.end(key);
    }

    /// The running command of the key has ended.
    fn end(&mut self, key: &Key) {
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
            inner.add(command(topic, *dir), false);
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
    fn what_serves_an_open_log_goes_before_others_but_not_before_its_own() {
        let mut inner = queue(1, &[("opened", 0), ("cut", 0), ("new", 0)]);
        inner.add(command("cut", 0), true);
        inner.add(command("elected", 0), true);
        assert_eq!(next(&mut inner).as_deref(), Some("elected"));
        inner.done(&(Arc::from("elected"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("opened"));
        inner.done(&(Arc::from("opened"), 0), 0);
        assert_eq!(next(&mut inner).as_deref(), Some("cut"), "its earlier one");
        inner.done(&(Arc::from("cut"), 0), 0);
        assert_eq!(inner.dirs[0].first.len(), 1);
        assert_eq!(next(&mut inner).as_deref(), Some("cut"));
        assert!(inner.dirs[0].first.is_empty());
    }

    #[test]
    fn what_needs_no_disk_runs_at_once_unless_its_partition_has_commands() {
        let loader = Arc::new(LogLoader::new(1, 1));
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let hangs = Command {
            run: Box::new(move || {
                let _until_dropped = ends.recv();
            }),
            ..command("a", 0)
        };
        loader.submit([hangs, command("b", 0)]);
        let key = |topic: &str| (Arc::from(topic), 0);
        let mut ran = Vec::new();
        for topic in ["a", "b", "c"] {
            loader.run_now(&key(topic), || ran.push(topic));
        }
        assert_eq!(ran, ["c"]);
        // What comes meanwhile waits, and is run afterwards, although it found no thread.
        let (told, tells) = std::sync::mpsc::channel();
        assert!(loader.run_now(&key("d"), || {
            let later = Command {
                run: Box::new(move || told.send(()).expect("a listener")),
                ..command("d", 0)
            };
            loader.submit_first([later]);
            assert!(!loader.run_now(&key("d"), || unreachable!("one is under way")));
        }));
        assert!(tells.try_recv().is_err(), "the only thread hangs");
        drop(end);
        assert_eq!(tells.recv(), Ok(()));
        loader.stop();
        assert!(!loader.run_now(&key("e"), || unreachable!("it has stopped")));
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
