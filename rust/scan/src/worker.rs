//! A thread that polls its lanes, decodes what arrives and fills batches.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use pyrklog_client::{Arrival, Cancel, ClientError, Connection, Ready, Waker, wait};

use crate::ask::FetchTerms;
use crate::decode::Decoder;
use crate::error::{ErrorKind, Result, ScanError};
use crate::lane::{Answer, Lane, LaneId, Why};
use crate::large::LargeGate;
use crate::queue::Queue;
use crate::split::Cursor;

/// Rows wait so long for more while no lane has anything.
const ROWS_WAIT: Duration = Duration::from_millis(100);
/// Rows wait so long for a full batch.
const ROWS_AGE_MAX: Duration = Duration::from_secs(1);
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// How often a lane asks again for the right to a large frame.
const BLOCKED_WAIT: Duration = Duration::from_millis(20);
/// What an answer has besides records: heads of partitions, aborted transactions.
const ANSWER_HEADS_BYTES: usize = 256 << 10;

/// What the coordinator tells a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// A connection for a new lane.
    Open(LaneId, Box<Connection>),
    /// A split for a lane.
    Assign(LaneId, Box<Cursor>),
    /// A lane without a split is not needed.
    Close(LaneId),
}

/// What a worker or an opener tells the coordinator.
#[derive(Debug)]
pub(crate) enum Event {
    /// All of a split is in the queue.
    Done(LaneId),
    /// A split left its lane; what it read is in the queue.
    Released(LaneId, Box<Cursor>, Why),
    /// A lane is gone, with its splits.
    LaneLost(LaneId, Vec<Cursor>, String),
    /// A lane's connection is open, or why it is not.
    Opened(LaneId, Result<Box<Connection>, ClientError>),
}

/// What the threads of a scan share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub queue: Arc<Queue>,
    /// For frames above a lane's share.
    pub frames: Arc<LargeGate>,
    /// For expansions above a worker's share.
    pub expansions: Arc<LargeGate>,
    pub cancel: Cancel,
}

impl Shared {
    pub fn new(queue: Arc<Queue>, cancel: Cancel) -> Shared {
        Shared {
            queue,
            frames: Arc::default(),
            expansions: Arc::default(),
            cancel,
        }
    }

    /// Ends the scan for all.
    pub fn fail(&self, error: ScanError) {
        self.queue.end(Err(error));
        self.cancel.cancel();
    }
}

/// What a worker needs to know.
#[derive(Clone, Debug)]
pub(crate) struct WorkerTerms {
    pub fetch: Arc<FetchTerms>,
    pub large_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    pub number: usize,
    pub shared: Shared,
    pub terms: WorkerTerms,
    pub decoder: Decoder,
    pub commands: Receiver<Command>,
    pub events: Sender<Event>,
    pub waker: Arc<Waker>,
    pub lanes: Vec<Lane>,
    /// Since when the batch has rows.
    pub rows_since: Option<Instant>,
    /// Lanes of splits whose last rows are not in the queue yet.
    pub finished: Vec<LaneId>,
    /// Since when it has not looked for what arrived.
    pub awake_since: Instant,
}

impl Worker {
    /// Runs until the scan is over.
    pub fn run(mut self) {
        match self.work() {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Cancelled => {}
            Err(error) => self.shared.fail(error),
        }
    }

    fn work(&mut self) -> Result<()> {
        loop {
            self.take_commands()?;
            let now = Instant::now();
            for number in (0..self.lanes.len()).rev() {
                if let Err(error) = self.lanes[number].ask(now) {
                    self.lose(number, error)?;
                }
            }
            if self.lanes.iter().all(Lane::is_idle) {
                self.flush()?;
            }
            // The caller may have stopped this worker, at a full queue.
            let now = Instant::now();
            for lane in &mut self.lanes {
                lane.was_left_alone(self.awake_since, now);
            }
            let ready = self.wait()?;
            self.awake_since = Instant::now();
            if self.shared.cancel.is_cancelled() {
                return Err(ScanError::cancelled());
            }
            // From the end: a lost lane moves the last one to its place.
            for number in (0..self.lanes.len()).rev() {
                if ready[number] {
                    self.serve(number)?;
                } else {
                    self.check_age(number)?;
                }
            }
            let age = self.rows_since.map(|since| since.elapsed());
            if !ready.contains(&true) || age.is_some_and(|age| age >= ROWS_AGE_MAX) {
                self.flush()?;
            }
            match self.decoder.rows.is_empty() {
                true => self.rows_since = None,
                false => {
                    self.rows_since.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    fn take_commands(&mut self) -> Result<()> {
        self.waker.drain();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Open(id, mut connection) => {
                    connection.set_frame_limit(self.frame_limit());
                    let terms = Arc::clone(&self.terms.fetch);
                    self.lanes.push(Lane::new(id, *connection, terms));
                }
                Command::Close(id) => self.lanes.retain(|lane| lane.id != id),
                Command::Assign(id, cursor) => {
                    match self.lanes.iter_mut().find(|lane| lane.id == id) {
                        Some(lane) => lane.add(*cursor, Instant::now()),
                        // It was lost on the way.
                        None => {
                            let why = Why::Moved("connection lost".into());
                            self.release(id, *cursor, why);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for a lane, the coordinator or the end. Says which lanes are ready.
    fn wait(&mut self) -> Result<Vec<bool>> {
        let now = Instant::now();
        let mut most = match self.decoder.rows.is_empty() {
            true => IDLE_WAIT,
            false => ROWS_WAIT,
        };
        for lane in &self.lanes {
            if let Some(due) = lane.due() {
                most = most.min(due.saturating_duration_since(now));
            }
            if lane.is_blocked {
                most = most.min(BLOCKED_WAIT);
            }
        }
        let mut files = vec![
            (self.shared.cancel.as_fd(), Ready::Read),
            (self.waker.as_fd(), Ready::Read),
        ];
        // A blocked lane's socket is readable all the time.
        let polled = self.lanes.iter().filter(|lane| !lane.is_blocked);
        files.extend(polled.map(|lane| (lane.connection.as_fd(), lane.connection.interest())));
        let ready = wait(&files, most).map_err(|error| {
            ScanError::new(ErrorKind::Resources, format!("poll failed: {error}"))
        })?;
        let mut ready = ready.into_iter().skip(2);
        let of_lane = |lane: &Lane| lane.is_blocked || ready.next().unwrap_or(false);
        Ok(self.lanes.iter().map(of_lane).collect())
    }

    /// Works on what a lane has received.
    fn serve(&mut self, number: usize) -> Result<()> {
        let lane = &mut self.lanes[number];
        let arrival = lane
            .connection
            .flush()
            .and_then(|_| lane.connection.receive());
        match arrival {
            Ok(Arrival::Nothing) => self.check_age(number),
            Ok(Arrival::TooLong(bytes)) => self.allow(number, bytes),
            Ok(Arrival::Frame) => {
                let frame = lane.connection.take_frame()?;
                self.answered(number, frame)
            }
            Err(error) => self.lose(number, error),
        }
    }

    /// Gives up a lane whose answer is late.
    fn check_age(&mut self, number: usize) -> Result<()> {
        let now = Instant::now();
        let lane = &mut self.lanes[number];
        let is_wanted = lane.has_large && self.shared.frames.is_wanted(now);
        lane.set_wanted(is_wanted, now);
        // The caller may have stopped this worker since it looked.
        let Some(doing) = lane.late(self.awake_since) else {
            return Ok(());
        };
        let error = ClientError::TimedOut {
            address: lane.connection.address().to_owned(),
            doing,
            seconds: self.terms.fetch.request_timeout.as_secs_f64(),
        };
        self.lose(number, error)
    }

    /// Lets a long frame in, once this worker may have one.
    fn allow(&mut self, number: usize, bytes: usize) -> Result<()> {
        let most = self.terms.large_bytes + self.frame_limit();
        let lane = &mut self.lanes[number];
        if bytes > most {
            let text = format!(
                "{}: broker {} sends {bytes} bytes at once, {most} are allowed (large_bytes is {})",
                lane.asked_for(),
                lane.connection.address(),
                self.terms.large_bytes
            );
            return Err(ScanError::new(ErrorKind::BatchTooLarge, text));
        }
        let now = Instant::now();
        if !lane.has_large && !self.shared.frames.try_take(self.number, now) {
            lane.is_blocked = true;
            lane.was_sent(now);
            return Ok(());
        }
        lane.has_large = true;
        lane.is_blocked = false;
        lane.connection.set_frame_limit(bytes);
        Ok(())
    }

    fn answered(&mut self, number: usize, frame: pyrklog_client::Frame) -> Result<()> {
        let lane = &mut self.lanes[number];
        let id = lane.id;
        // The caller may have stopped this worker since the answer came.
        let answer = lane.answered(&frame, self.awake_since)?;
        // The broker works on the next request while this answer is decoded.
        let asked = lane.ask(Instant::now());
        let Answer {
            parts,
            finished,
            released,
        } = answer;
        for part in &parts {
            let aborted = part.aborted.as_deref().unwrap_or_default();
            self.decoder.decode(&part.cursor, part.records, aborted)?;
        }
        drop(parts);
        for cursor in finished {
            self.decoder.rows.begin(&cursor, cursor.end)?;
            self.decoder
                .rows
                .reached(cursor.end, cursor.known_epoch(), 0);
            self.finished.push(id);
        }
        if !released.is_empty() {
            // What follows may be read by another worker: the rows so far come first.
            self.flush()?;
        }
        for (cursor, why) in released {
            self.release(id, cursor, why);
        }
        let limit = self.frame_limit();
        let lane = &mut self.lanes[number];
        if std::mem::take(&mut lane.has_large) {
            self.shared.frames.give_back();
        }
        lane.connection.set_frame_limit(limit);
        lane.connection.give_back(frame, 2 * limit);
        match asked {
            Ok(()) => Ok(()),
            Err(error) => self.lose(number, error),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.decoder.rows.flush()?;
        self.rows_since = None;
        for lane in self.finished.drain(..) {
            self.events.send(Event::Done(lane)).ok();
        }
        Ok(())
    }

    /// Gives a split back to the coordinator, which is there until the scan is over.
    fn release(&self, lane: LaneId, mut cursor: Cursor, why: Why) {
        let now = Instant::now();
        cursor.taken_over(now);
        cursor.was_left_alone(self.awake_since, now);
        let event = Event::Released(lane, Box::new(cursor), why);
        self.events.send(event).ok();
    }

    /// Gives a broken lane's splits back.
    fn lose(&mut self, number: usize, error: ClientError) -> Result<()> {
        if !error.is_retriable() {
            return Err(error.into());
        }
        self.flush()?;
        let mut lane = self.lanes.swap_remove(number);
        lane.was_left_alone(self.awake_since, Instant::now());
        if lane.has_large {
            self.shared.frames.give_back();
        }
        let id = lane.id;
        let event = Event::LaneLost(id, lane.into_cursors(), error.to_string());
        self.events.send(event).ok();
        Ok(())
    }

    fn frame_limit(&self) -> usize {
        self.terms.fetch.bytes + ANSWER_HEADS_BYTES
    }
}
