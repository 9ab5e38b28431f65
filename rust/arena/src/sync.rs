//! Locks and steps that differ between production and the model (`explore`). The model exists only
//! in this crate's unit tests.

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

/// Whether the model plants this fault (a name of `explore::Fault`) here; never in production.
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
