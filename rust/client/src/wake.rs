//! Waiting for sockets, and ending a wait from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::error::{ClientError, Result};

/// Ends waits for it, once each.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker that nobody has used.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Waker> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Waker(eventfd(0, flags)?))
    }

    /// Ends the present or the next wait.
    pub fn wake(&self) {
        // Full means that a wake-up is due already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Forgets past wake-ups.
    pub fn drain(&self) {
        // Empty means that there was none.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends all that uses it, for good.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug)]
struct CancelState {
    is_cancelled: AtomicBool,
    waker: Waker,
}

impl Cancel {
    /// Not cancelled.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Cancel> {
        Ok(Cancel(Arc::new(CancelState {
            is_cancelled: AtomicBool::new(false),
            waker: Waker::new()?,
        })))
    }

    /// Ends every wait, now and later.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.waker.wake();
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// `Cancelled` after a call of [`Cancel::cancel`].
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(ClientError::Cancelled),
            false => Ok(()),
        }
    }

    /// Sleeps.
    ///
    /// # Errors
    /// `Cancelled`, at once.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            wait(&[(self.as_fd(), Ready::Read)], left).map_err(wait_failed)?;
        }
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.waker.as_fd()
    }
}

pub(crate) fn wait_failed(source: io::Error) -> ClientError {
    ClientError::Connection {
        address: "any".into(),
        doing: "waiting",
        source,
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Something to read, or the end of the connection.
    Read,
    /// The same, or room to write.
    ReadOrWrite,
    /// Nothing: something to read was received before, and is decrypted by the next read.
    Now,
}

/// Waits for one of `files`, at most so long; says which of them are ready.
///
/// # Errors
/// poll(2) failed.
pub fn wait(files: &[(BorrowedFd<'_>, Ready)], most: Duration) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = files
        .iter()
        .map(|(file, ready)| {
            let flags = match ready {
                Ready::Read | Ready::Now => PollFlags::IN,
                Ready::ReadOrWrite => PollFlags::IN | PollFlags::OUT,
            };
            PollFd::from_borrowed_fd(*file, flags)
        })
        .collect();
    let is_now = |at: usize| files[at].1 == Ready::Now;
    let most = match (0..files.len()).any(is_now) {
        true => Duration::ZERO,
        false => most,
    };
    let timeout = Timespec {
        tv_sec: most.as_secs().min(3600) as _,
        tv_nsec: most.subsec_nanos() as _,
    };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => {
            let all = polled.iter().enumerate();
            Ok(all
                .map(|(at, one)| is_now(at) || !one.revents().is_empty())
                .collect())
        }
        Err(rustix::io::Errno::INTR) => Ok((0..files.len()).map(is_now).collect()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_ends_a_sleep_of_another_thread() {
        let cancel = Cancel::new().unwrap();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || other.sleep(Duration::from_secs(3600)));
        cancel.cancel();
        assert!(matches!(
            thread.join().unwrap(),
            Err(ClientError::Cancelled)
        ));
        assert!(matches!(cancel.check(), Err(ClientError::Cancelled)));
    }

    #[test]
    fn what_was_received_before_is_not_waited_for() {
        let waker = Waker::new().unwrap();
        let files = [(waker.as_fd(), Ready::Now), (waker.as_fd(), Ready::Read)];
        assert_eq!(
            wait(&files, Duration::from_secs(3600)).unwrap(),
            [true, false]
        );
    }

    #[test]
    fn a_waker_wakes_once() {
        let waker = Waker::new().unwrap();
        let is_ready = || wait(&[(waker.as_fd(), Ready::Read)], Duration::ZERO).unwrap()[0];
        assert!(!is_ready());
        waker.wake();
        waker.wake();
        assert!(is_ready());
        waker.drain();
        assert!(!is_ready());
    }
}
