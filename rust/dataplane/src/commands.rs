//! Slow commands of the control plane: opening, closing and deleting logs, sizes.
//!
//! They run on `num.recovery.threads.per.data.dir` threads a directory, started when there is
//! work and ended when there is none. Commands for the same partition run one after another in
//! the order given; those for different partitions side by side.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::api::{Event, TicketId, TicketOutcome};
use crate::shared::Shared;

/// What a command is about; two with the same key never run at the same time.
pub type Key = (Arc<str>, i32);

/// What a command does.
pub type Run = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// One piece of slow work.
pub struct Command {
    /// What it is about.
    pub key: Key,
    /// What to do.
    pub run: Run,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Command>,
    running: HashSet<Key>,
    threads: usize,
    handles: Vec<JoinHandle<()>>,
    last_ticket: TicketId,
    is_stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub struct CommandQueue {
    max_threads: usize,
    inner: Mutex<Inner>,
}

impl CommandQueue {
    /// A queue served by up to `max_threads` threads.
    pub fn new(max_threads: usize) -> CommandQueue {
        CommandQueue {
            max_threads: max_threads.max(1),
            inner: Mutex::default(),
        }
    }

    /// A new ticket.
    pub fn ticket(&self) -> TicketId {
        let mut inner = self.inner.lock();
        inner.last_ticket += 1;
        inner.last_ticket
    }

    /// Queues commands and sees that threads run them.
    pub fn submit(&self, shared: &Arc<Shared>, commands: impl IntoIterator<Item = Command>) {
        let mut inner = self.inner.lock();
        inner.waiting.extend(commands);
        while inner.threads
            < self
                .max_threads
                .min(inner.waiting.len() + inner.running.len())
        {
            inner.threads += 1;
            let shared = Arc::clone(shared);
            let spawned = std::thread::Builder::new()
                .name("loader".into())
                .spawn(move || shared.commands.work(&shared));
            match spawned {
                Ok(handle) => {
                    inner.handles.retain(|handle| !handle.is_finished());
                    inner.handles.push(handle);
                }
                Err(error) => {
                    inner.threads -= 1;
                    // The process is out of threads. With none for this work the ticket would
                    // never complete: better a loud end than a broker that hangs.
                    assert!(
                        inner.threads > 0,
                        "no thread to open logs can be started: {error}"
                    );
                    break;
                }
            }
        }
    }

    fn work(&self, shared: &Arc<Shared>) {
        let mut inner = self.inner.lock();
        while let Some(command) = inner.next() {
            let key = command.key.clone();
            inner.running.insert(key.clone());
            drop(inner);
            (command.run)(shared);
            inner = self.inner.lock();
            inner.running.remove(&key);
        }
        // A command that was held back by one of another thread is left to that thread, which
        // looks again when it is done.
        inner.threads -= 1;
    }

    /// Drops what waits, lets what runs come to its end, and waits for that.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.is_stopped = true;
        inner.waiting.clear();
        let handles = std::mem::take(&mut inner.handles);
        drop(inner);
        for handle in handles {
            let _ = handle.join();
        }
    }

    /// Commands that wait or run.
    pub fn depth(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.running.len()
    }
}

impl Inner {
    /// The first command whose key is neither running nor that of an earlier one that is held
    /// back.
    fn next(&mut self) -> Option<Command> {
        if self.is_stopped {
            return None;
        }
        let mut held_back: HashSet<&Key> = HashSet::new();
        let position = self.waiting.iter().position(|command| {
            if self.running.contains(&command.key) || held_back.contains(&command.key) {
                held_back.insert(&command.key);
                return false;
            }
            true
        })?;
        self.waiting.remove(position)
    }
}

/// Gathers the error codes of one ticket's commands and completes it with the last of them.
#[derive(Debug)]
pub struct Gathering {
    ticket: TicketId,
    codes: Mutex<Vec<i16>>,
    left: AtomicUsize,
}

impl Gathering {
    /// For a ticket of `count` commands, of which `known` are decided already (the others 0).
    pub fn new(ticket: TicketId, known: Vec<i16>, left: usize) -> Arc<Gathering> {
        Arc::new(Gathering {
            ticket,
            codes: Mutex::new(known),
            left: AtomicUsize::new(left),
        })
    }

    /// One command is done.
    pub fn done(&self, shared: &Shared, index: usize, code: i16) {
        self.codes.lock()[index] = code;
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(shared);
        }
    }

    /// Tells the control plane; for a ticket that has nothing left to do.
    pub fn complete(&self, shared: &Shared) {
        let codes = std::mem::take(&mut *self.codes.lock());
        shared.events.push(Event::Ticket {
            id: self.ticket,
            outcome: TicketOutcome::Partitions(codes),
        });
    }
}
