//! A timer that wakes an epoll loop.
//!
//! It stays set over many sleeps; a time-out of the wait would cost a kernel timer each.

use std::os::fd::OwnedFd;

use rustix::io::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::timespec;
use crate::ids::NEVER_MS;

/// See the module. Watch it edge-triggered; never read it.
#[derive(Debug)]
pub struct Alarm {
    fd: OwnedFd,
    set_ms: i64,
}

impl Alarm {
    /// Not set. Fails without a free file descriptor.
    pub fn new() -> Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set_ms: NEVER_MS,
        })
    }

    /// For epoll.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Makes it ring by `due_ms` (monotonic; [`NEVER_MS`] for never). An earlier setting stays; the
    /// listener then asks again.
    pub fn want(&mut self, due_ms: i64) -> Result<()> {
        if due_ms >= self.set_ms {
            return Ok(());
        }
        // Zero would disarm it.
        let new = Itimerspec {
            it_interval: Timespec::default(),
            it_value: timespec(due_ms.max(1)),
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &new)?;
        self.set_ms = due_ms;
        Ok(())
    }

    /// It has rung and is no longer set.
    pub fn rang(&mut self) {
        self.set_ms = NEVER_MS;
    }
}

#[cfg(test)]
mod tests {
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{self, EventData, EventFlags};

    use super::*;
    use crate::clock::mono_ms;

    fn rings(epoll: &OwnedFd, within_ms: i64) -> bool {
        let mut events = Vec::with_capacity(1);
        let timeout = timespec(within_ms);
        epoll::wait(epoll, spare_capacity(&mut events), Some(&timeout)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn alarm_rings_once_at_the_earliest_time_set() {
        let mut alarm = Alarm::new().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, alarm.fd(), EventData::new_u64(1), flags).unwrap();
        alarm.want(NEVER_MS).unwrap();
        assert!(!rings(&epoll, 0), "it was never set");

        let now_ms = mono_ms();
        alarm.want(now_ms + 3_600_000).unwrap();
        alarm.want(now_ms + 5).unwrap();
        alarm.want(now_ms + 7_200_000).unwrap();
        assert!(rings(&epoll, 60_000));
        assert!(mono_ms() >= now_ms + 5);
        assert!(!rings(&epoll, 0), "once");

        alarm.rang();
        alarm.want(now_ms).unwrap();
        assert!(rings(&epoll, 60_000), "a time that has passed");
        alarm.rang();
        alarm.want(0).unwrap();
        assert!(rings(&epoll, 60_000), "long ago");
    }
}
