//! What of locks and steps is one thing in production and another in the model (`explore`): there
//! is nothing of the model outside of this crate's own unit tests.

#[cfg(not(test))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};

    /// Other threads may see what was done so far.
    #[inline(always)]
    pub(crate) fn step() {}

    /// A store to the arena is done.
    #[inline(always)]
    pub(crate) fn stored() {}
}

#[cfg(not(test))]
pub(crate) use real::{Mutex, MutexGuard, step, stored};

#[cfg(test)]
pub(crate) use crate::explore::{SteppedGuard as MutexGuard, SteppedMutex as Mutex, step, stored};

/// Whether the model wants this fault (a name of `explore::Fault`) here; never in production.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(test)]
        let is_planted = $crate::explore::has($crate::explore::Fault::$fault);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}
pub(crate) use planted;
