//! What tests may do on a network thread. Not in production builds: feature `testing`.

/// Where a network thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before its first turn.
    Begin,
    /// In a turn, its requests worked on.
    Turn,
}

/// Called on each network thread, with its index.
pub type NetworkHook = Box<dyn Fn(usize, Moment) + Send + Sync>;

/// The hook of a plane, if it has one.
#[derive(Default)]
pub struct Hook(std::sync::OnceLock<NetworkHook>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl Hook {
    /// Sets it; only the first one counts.
    pub fn set(&self, hook: NetworkHook) {
        let _first_wins = self.0.set(hook);
    }

    /// A network thread is there.
    pub fn call(&self, thread: usize, moment: Moment) {
        if let Some(hook) = self.0.get() {
            hook(thread, moment);
        }
    }
}
