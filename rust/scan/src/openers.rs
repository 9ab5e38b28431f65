//! Opens connections side by side: a broker that is away holds up its own splits only.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread;

use pyrklog_client::{Address, Client, ClientError, Connection, Opener};

use crate::error::Result;
use crate::lane::LaneId;
use crate::split::Cursor;
use crate::threads;
use crate::worker::Event;

/// Threads that open connections at a time.
const THREADS_MAX: usize = 16;

/// Connections that are being opened for lanes, with the splits that wait for them.
#[derive(Debug)]
pub(crate) struct Openers {
    opener: Opener,
    events: Sender<Event>,
    threads: usize,
    to_open: VecDeque<(LaneId, Address)>,
    waiting: HashMap<LaneId, Vec<Cursor>>,
}

impl Openers {
    /// Each opening ends with [`Event::Opened`].
    pub fn new(opener: Opener, events: Sender<Event>) -> Openers {
        Openers {
            opener,
            events,
            threads: 0,
            to_open: VecDeque::new(),
            waiting: HashMap::new(),
        }
    }

    /// Opens a connection for a lane.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn open(&mut self, lane: LaneId, address: Address) -> Result<()> {
        // One that is being opened already may have splits waiting.
        self.waiting.entry(lane).or_default();
        self.to_open.push_back((lane, address));
        self.start()
    }

    /// Keeps a split for a lane that is being opened; gives it back if the lane is not.
    pub fn wait(&mut self, lane: LaneId, cursor: Cursor) -> Option<Cursor> {
        match self.waiting.get_mut(&lane) {
            None => Some(cursor),
            Some(waiting) => {
                waiting.push(cursor);
                None
            }
        }
    }

    /// An opening has ended. Returns the splits that waited for it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn ended(&mut self, lane: LaneId) -> Result<Vec<Cursor>> {
        self.threads -= 1;
        self.start()?;
        Ok(self.waiting.remove(&lane).unwrap_or_default())
    }

    fn start(&mut self) -> Result<()> {
        while self.threads < THREADS_MAX
            && let Some((lane, address)) = self.to_open.pop_front()
        {
            let (opener, events) = (self.opener.clone(), self.events.clone());
            threads::start("scan-opener", move || {
                let opened = opener.open(&address).map(Box::new);
                // Nobody listens once the scan is over.
                events.send(Event::Opened(lane, opened)).ok();
            })?;
            self.threads += 1;
        }
        Ok(())
    }
}

/// Connects a client with the leaders of these partitions, before they are asked something.
///
/// # Errors
/// The scan was closed; the system has no thread left; a broker that no later try will mend.
pub(crate) fn connect<'a>(
    client: &mut Client,
    places: impl Iterator<Item = (&'a str, i32)>,
) -> Result<()> {
    let addresses = client.unconnected(places);
    // The question itself opens one as fast.
    if addresses.len() < 2 {
        return Ok(());
    }
    for (address, opened) in open_all(&client.opener(), addresses)? {
        match opened {
            Ok(connection) => client.opened(address, Some(connection)),
            Err(error) if error.is_retriable() => client.opened(address, None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

type Opened = (Address, Result<Connection, ClientError>);

fn open_all(opener: &Opener, addresses: Vec<Address>) -> Result<Vec<Opened>> {
    let count = addresses.len().min(THREADS_MAX);
    let (left, opened) = (Mutex::new(addresses), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(address) = next else {
                return;
            };
            let connection = opener.open(&address);
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.push((address, connection));
        }
    };
    let started: std::io::Result<()> = thread::scope(|scope| {
        (0..count).try_for_each(|_| {
            let thread = thread::Builder::new().name("scan-opener".into());
            let thread = thread.stack_size(threads::STACK_BYTES);
            thread.spawn_scoped(scope, work).map(|_| ())
        })
    });
    started.map_err(threads::resources)?;
    Ok(opened.into_inner().unwrap_or_else(PoisonError::into_inner))
}
