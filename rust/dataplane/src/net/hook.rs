//! Hooks of tests on a network thread. Feature `testing`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a network thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before its first turn.
    Begin,
    /// In a turn, its clock read.
    Clock,
    /// In a turn, its requests worked on.
    Turn,
}

/// Called on each network thread, with its index.
pub type NetworkHook = Box<dyn Fn(usize, Moment) + Send + Sync>;

/// What tests ask of a plane's network threads.
#[derive(Default)]
pub struct Hook {
    hook: OnceLock<NetworkHook>,
    is_restless: AtomicBool,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Hook {
    /// Sets the hook; only the first one counts.
    pub fn set(&self, hook: NetworkHook) {
        let _first_wins = self.hook.set(hook);
    }

    /// Every connection moves to the next thread as often as it can.
    pub fn be_restless(&self) {
        self.is_restless.store(true, Ordering::Relaxed);
    }

    /// Set by [`Hook::be_restless`].
    pub fn is_restless(&self) -> bool {
        self.is_restless.load(Ordering::Relaxed)
    }

    /// Calls the hook.
    pub fn call(&self, thread: usize, moment: Moment) {
        if let Some(hook) = self.hook.get() {
            hook(thread, moment);
        }
    }
}
