//! The thread that finds a lane for each split, again and again if brokers fail.
//!
//! ```text
//! waiting -> metadata -> position checked (epoch, range) -> lane -> read to its end
//!    ^                                                        |
//!    +------- leader moved, connection lost, other replica ---+
//! ```
//!
//! Epochs: [`epochs`]. Metadata that may be old: [`crate::doubts`].

mod epochs;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use pyrklog_client::{Client, ClientError, Connection, Metadata, OffsetAnswer, OffsetQuery, Waker};
use pyrklog_wire::list_offsets::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};
use pyrklog_wire::{ErrorCode, Uuid};

use crate::ask::FetchTerms;
use crate::assign::{Choice, Lanes};
use crate::doubts::Doubts;
use crate::error::{ErrorKind, Result, ScanError};
use crate::lane::{LaneId, Why};
use crate::left_out::{LeftOut, LeftOuts};
use crate::openers::{self, Openers};
use crate::options::{Missing, Unanswered};
use crate::progress::{Delivered, Progress};
use crate::split::Cursor;
use crate::worker::{Command, Event, Shared};

/// How often the coordinator looks whether the scan was closed.
const LOOK: Duration = Duration::from_millis(100);
/// How long a topic may be unknown to all brokers, or have another id, before it counts as deleted:
/// one that has just started may not know it yet, and one that is cut off never hears of it.
const DELETED_AFTER: Duration = Duration::from_secs(3);
/// How long a replica is preferred before the leader is asked again, as Java's clients do.
const PREFERRED_FOR: Duration = Duration::from_secs(300);

/// A split that has no lane.
#[derive(Debug)]
struct Waiting {
    cursor: Cursor,
    due: Instant,
    /// Why it waits, for the message if it does so for too long.
    reason: Option<String>,
    /// Who does not know its topic, or another one of that name.
    gone: Option<Doubts>,
    /// Who has named a leader epoch that is older than the one known.
    older: Option<Doubts>,
}

/// A worker's ear.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub commands: Sender<Command>,
    pub waker: Arc<Waker>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Coordinator {
    client: Client,
    shared: Shared,
    progress: Arc<Progress>,
    terms: Arc<FetchTerms>,
    missing: Missing,
    unanswered: Unanswered,
    left_out: LeftOuts,
    workers: Vec<WorkerHandle>,
    events: Receiver<Event>,
    openers: Openers,
    lanes: Lanes,
    waiting: Vec<Waiting>,
    /// Splits that are not read to their end.
    left: usize,
    /// The metadata may be out of date.
    is_stale: bool,
}

impl Coordinator {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        client: Client,
        shared: Shared,
        progress: Arc<Progress>,
        terms: Arc<FetchTerms>,
        (missing, unanswered): (Missing, Unanswered),
        left_out: LeftOuts,
        workers: Vec<WorkerHandle>,
        events: Receiver<Event>,
        openers: Openers,
        lanes: Lanes,
        cursors: Vec<Cursor>,
    ) -> Coordinator {
        let due = Instant::now();
        let waiting = |cursor| Waiting {
            cursor,
            due,
            reason: None,
            gone: None,
            older: None,
        };
        Coordinator {
            left: cursors.len(),
            waiting: cursors.into_iter().map(waiting).collect(),
            client,
            shared,
            progress,
            terms,
            missing,
            unanswered,
            left_out,
            workers,
            events,
            openers,
            lanes,
            is_stale: false,
        }
    }

    /// Runs until all is read or the scan is over.
    pub fn run(mut self) {
        match self.work() {
            // Workers end with it.
            Ok(()) => {
                self.shared.queue.end(Ok(()));
                self.shared.cancel.cancel();
            }
            Err(error) => self.shared.fail(error),
        }
    }

    fn work(&mut self) -> Result<()> {
        while self.left > 0 {
            self.shared.cancel.check()?;
            self.place_due()?;
            let now = Instant::now();
            let due = self.waiting.iter().map(|one| one.due).min();
            let most = due.map_or(LOOK, |due| due.saturating_duration_since(now).min(LOOK));
            match self.events.recv_timeout(most) {
                Ok(event) => self.on_event(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ScanError::cancelled()),
            }
            while let Ok(event) = self.events.try_recv() {
                self.on_event(event)?;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Done(lane) => {
                self.lanes.left(lane);
                self.left -= 1;
            }
            Event::Released(lane, cursor, why) => {
                self.lanes.left(lane);
                self.released(*cursor, why)?;
            }
            Event::LaneLost(lane, cursors, reason) => {
                self.lanes.lost(lane);
                self.all_released(cursors, &reason)?;
            }
            Event::Opened(lane, opened) => self.opened(lane, opened)?,
        }
        Ok(())
    }

    fn opened(&mut self, lane: LaneId, opened: Result<Box<Connection>, ClientError>) -> Result<()> {
        let waiting = self.openers.ended(lane)?;
        match opened {
            Ok(connection) => {
                let Some(worker) = self.lanes.worker(lane) else {
                    // It was given up meanwhile.
                    return self.all_released(waiting, "connection lost");
                };
                self.tell(worker, Command::Open(lane, connection));
                for cursor in waiting {
                    self.hand_over(worker, lane, cursor);
                }
                Ok(())
            }
            Err(error) if error.is_retriable() => {
                self.lanes.lost(lane);
                self.all_released(waiting, &error.to_string())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn all_released(&mut self, cursors: Vec<Cursor>, reason: &str) -> Result<()> {
        let mut all = cursors.into_iter();
        all.try_for_each(|cursor| self.released(cursor, Why::Moved(reason.to_owned())))
    }

    fn released(&mut self, mut cursor: Cursor, why: Why) -> Result<()> {
        let now = Instant::now();
        let preferred = cursor.preferred.take();
        let wait = match (why, preferred) {
            // A replica that names another one could do so for ever.
            (Why::Preferred(replica), Some(_)) => {
                Some(format!("a replica names another one, {replica}"))
            }
            (Why::Preferred(replica), None) => {
                if self.client.metadata().brokers.contains_key(&replica) {
                    cursor.preferred = Some((replica, now + PREFERRED_FOR));
                    None
                } else {
                    Some(format!(
                        "the leader names replica {replica}, which is unknown"
                    ))
                }
            }
            // Only the leader's word counts; it could name this replica for ever.
            (Why::OutOfRange, Some((replica, _))) => {
                Some(format!("replica {replica} refused the offset"))
            }
            (Why::OutOfRange, None) => {
                cursor.is_out_of_range = true;
                self.is_stale = true;
                None
            }
            (Why::Moved(text), _) => Some(text),
            (Why::Stalled(text), _) => return self.stalled(&cursor, text),
        };
        let one = Waiting {
            cursor,
            due: now,
            reason: None,
            gone: None,
            older: None,
        };
        match wait {
            None => self.waiting.push(one),
            Some(reason) => {
                self.is_stale = true;
                self.wait_again(one, &reason)?;
            }
        }
        Ok(())
    }

    /// Finds lanes for the splits that are due.
    fn place_due(&mut self) -> Result<()> {
        let now = Instant::now();
        let all = std::mem::take(&mut self.waiting);
        let (mut due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.due <= now);
        self.waiting = later;
        if due.is_empty() {
            return Ok(());
        }
        if self.is_stale {
            let topics: BTreeSet<Arc<str>> = due
                .iter()
                .map(|one| Arc::clone(&one.cursor.topic))
                .collect();
            due.extend(self.doubtful_of(&topics));
            let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
            match self.client.refresh(&topics) {
                Ok(_) => self.is_stale = false,
                Err(error) if error.is_retriable() => {
                    let reason = error.to_string();
                    return due
                        .into_iter()
                        .try_for_each(|one| self.wait_again(one, &reason));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut led = Vec::new();
        for one in due.drain(..) {
            led.extend(self.with_leader(one)?);
        }
        let led = self.check_epochs(led)?;
        let led = self.check_ranges(led)?;
        led.into_iter().try_for_each(|one| self.place(one))
    }

    /// Splits of these topics that ask one broker after the other, though they are not due. Each
    /// answer counts for all of them: in turn with others, one might hear the same broker for ever.
    fn doubtful_of(&mut self, topics: &BTreeSet<Arc<str>>) -> Vec<Waiting> {
        let is_doubtful = |one: &mut Waiting| {
            (one.gone.is_some() || one.older.is_some()) && topics.contains(&one.cursor.topic)
        };
        self.waiting.extract_if(.., is_doubtful).collect()
    }

    /// The split, if its partition has a leader now; else it waits again.
    fn with_leader(&mut self, mut one: Waiting) -> Result<Option<Waiting>> {
        match find_leader(self.client.metadata(), &one.cursor)? {
            Found::Leader => {
                one.gone = None;
                Ok(Some(one))
            }
            Found::None(reason) => {
                one.gone = None;
                self.is_stale = true;
                self.wait_again(one, &reason)?;
                Ok(None)
            }
            Found::Gone(gone) => {
                let now = Instant::now();
                let mut doubts = one.gone.take().unwrap_or_else(|| Doubts::new(now));
                doubts.note(&mut self.client);
                self.is_stale = true;
                if doubts.are_of_all(self.client.metadata(), now, DELETED_AFTER) {
                    return Err(ScanError::new(ErrorKind::TopicDeleted, gone.text));
                }
                let backoff = &mut one.cursor.backoff;
                let wait = doubts.next_wait(self.client.metadata(), backoff);
                one.gone = Some(doubts);
                self.wait_for(wait, one, gone.reason)?;
                Ok(None)
            }
        }
    }

    /// Finds out what became of positions that a leader refused.
    fn check_ranges(&mut self, all: Vec<Waiting>) -> Result<Vec<Waiting>> {
        let (asked, mut passed): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| one.cursor.is_out_of_range);
        if asked.is_empty() {
            return Ok(passed);
        }
        let places = asked.iter().map(|one| &one.cursor);
        let places = places.map(|cursor| (&*cursor.topic, cursor.partition));
        openers::connect(&mut self.client, places)?;
        let mut ask = |timestamp| {
            let query = |one: &Waiting| OffsetQuery {
                topic: Arc::clone(&one.cursor.topic),
                partition: one.cursor.partition,
                timestamp,
            };
            let queries: Vec<OffsetQuery> = asked.iter().map(query).collect();
            self.client.list_offsets(self.terms.isolation, &queries)
        };
        let (starts, ends) = (ask(EARLIEST_TIMESTAMP)?, ask(LATEST_TIMESTAMP)?);
        for ((mut one, start), end) in asked.into_iter().zip(starts).zip(ends) {
            if let Some(code) = first_error(start, end) {
                self.is_stale = true;
                self.wait_again(one, &format!("no answer about offsets: {code}"))?;
                continue;
            }
            let cursor = &mut one.cursor;
            if cursor.position < start.offset && self.missing == Missing::Skip {
                let position = start.offset.min(cursor.end);
                let skipped = position.saturating_sub(cursor.position);
                self.progress.skip(cursor.split, skipped as u64);
                cursor.moved_to(position);
                cursor.last_epoch = -1;
                if !cursor.is_done() {
                    passed.push(one);
                    continue;
                }
                self.left -= 1;
                self.shared.queue.pass(vec![Delivered {
                    split: cursor.split,
                    position,
                    leader_epoch: -1,
                    records: 0,
                    bytes: 0,
                    bad: 0,
                }])?;
                continue;
            }
            if !(start.offset..=end.offset).contains(&cursor.position) {
                return Err(out_of_range(cursor, start.offset, end.offset));
            }
            cursor.is_out_of_range = false;
            self.wait_again(one, "the leader refused the offset")?;
        }
        Ok(passed)
    }

    /// Gives a split to a lane of its broker.
    fn place(&mut self, one: Waiting) -> Result<()> {
        let metadata = self.client.metadata();
        let now = Instant::now();
        let preferred = one.cursor.preferred.filter(|(_, until)| now < *until);
        let preferred = preferred.and_then(|(id, _)| metadata.brokers.get(&id));
        let leader = metadata.leader(&one.cursor.topic, one.cursor.partition);
        let Some(broker) = preferred.or(leader).cloned() else {
            return self.wait_again(one, "the leader's address is unknown");
        };
        let mut choice = self.lanes.choose(broker.id);
        if choice == Choice::Later
            && let Some((idle, worker)) = self.lanes.idle()
        {
            self.tell(worker, Command::Close(idle));
            self.lanes.lost(idle);
            choice = self.lanes.choose(broker.id);
        }
        let id = match choice {
            Choice::Open(id) => id,
            Choice::New(id) => {
                self.lanes.opened(id);
                self.openers.open(id, broker.address)?;
                id
            }
            Choice::Later => {
                let due = now + LOOK;
                self.waiting.push(Waiting { due, ..one });
                return Ok(());
            }
        };
        self.assign(id, one.cursor);
        Ok(())
    }

    fn assign(&mut self, id: LaneId, cursor: Cursor) {
        if let Some(worker) = self.lanes.assigned(id)
            && let Some(cursor) = self.openers.wait(id, cursor)
        {
            self.hand_over(worker, id, cursor);
        }
    }

    fn hand_over(&self, worker: usize, id: LaneId, mut cursor: Cursor) {
        cursor.handed_over(Instant::now());
        self.tell(worker, Command::Assign(id, Box::new(cursor)));
    }

    fn tell(&self, worker: usize, command: Command) {
        let worker = &self.workers[worker];
        // A worker that is gone has ended the scan.
        worker.commands.send(command).ok();
        worker.waker.wake();
    }

    /// The split waits for better times, longer each time, unless it has done so for too long.
    fn wait_again(&mut self, mut one: Waiting, reason: &str) -> Result<()> {
        let wait = one.cursor.backoff.next_wait();
        self.wait_for(wait, one, reason)
    }

    fn wait_for(&mut self, wait: Duration, mut one: Waiting, reason: &str) -> Result<()> {
        let now = Instant::now();
        if one.cursor.stalled_for(now) >= self.terms.timeout {
            let name = one.cursor.name();
            let seconds = self.terms.timeout.as_secs_f64();
            let first = one.reason.as_deref().unwrap_or(reason);
            let text = format!(
                "partition {name} could not be read for {seconds:.0} s: {reason}{}",
                match first == reason {
                    true => String::new(),
                    false => format!(" (at first: {first})"),
                }
            );
            return self.stalled(&one.cursor, text);
        }
        one.due = now + wait;
        one.reason.get_or_insert_with(|| reason.to_owned());
        self.waiting.push(one);
        Ok(())
    }

    /// The split made no progress for too long.
    fn stalled(&mut self, cursor: &Cursor, reason: String) -> Result<()> {
        if self.unanswered == Unanswered::Fail {
            return Err(ScanError::new(ErrorKind::LeaderNotAvailable, reason));
        }
        self.left_out.push(LeftOut {
            topic: Arc::clone(&cursor.topic),
            partition: cursor.partition,
            reason,
        });
        self.left -= 1;
        Ok(())
    }
}

enum Found {
    Leader,
    /// None now, and why.
    None(String),
    /// The broker does not know the topic or the partition, or another topic of that name.
    Gone(Gone),
}

struct Gone {
    /// Why it is asked for again.
    reason: &'static str,
    /// What that means if all brokers say so.
    text: String,
}

/// Looks a split's partition up.
fn find_leader(metadata: &Metadata, cursor: &Cursor) -> Result<Found> {
    let unknown = || {
        Found::Gone(Gone {
            reason: "the brokers do not know the topic",
            text: format!("partition {} is gone: the topic was deleted", cursor.name()),
        })
    };
    let Some(topic) = metadata.topics.get(&cursor.topic) else {
        return Ok(unknown());
    };
    match topic.error {
        ErrorCode::NONE | ErrorCode::LEADER_NOT_AVAILABLE => {}
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => return Ok(unknown()),
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
            let text = format!("this client may not read topic {}", cursor.topic);
            return Err(ScanError::new(ErrorKind::NotAuthorized, text));
        }
        code => return Ok(Found::None(format!("topic {}: {code}", cursor.topic))),
    }
    let known = [topic.id, cursor.topic_id];
    if known[0] != known[1] && known.iter().all(|id| *id != Uuid::default()) {
        return Ok(Found::Gone(Gone {
            reason: "the brokers know another topic of that name",
            text: format!(
                "topic {} was deleted and created anew during the scan",
                cursor.topic
            ),
        }));
    }
    match topic.partition(cursor.partition) {
        None => Ok(unknown()),
        Some(_) if metadata.leader(&cursor.topic, cursor.partition).is_some() => Ok(Found::Leader),
        Some(_) => Ok(Found::None(format!(
            "partition {} has no leader",
            cursor.name()
        ))),
    }
}

fn first_error(start: OffsetAnswer, end: OffsetAnswer) -> Option<ErrorCode> {
    [start.error, end.error]
        .into_iter()
        .find(|code| !code.is_none())
}

fn out_of_range(cursor: &Cursor, start: i64, end: i64) -> ScanError {
    let text = format!(
        "offset {} of partition {} is out of range: the log has {start} to {end}",
        cursor.position,
        cursor.name()
    );
    ScanError::new(ErrorKind::OffsetOutOfRange, text)
}

/// Brokers that lead a split.
pub(crate) fn leaders(metadata: &Metadata, cursors: &[Cursor]) -> usize {
    let mut found = HashMap::new();
    for cursor in cursors {
        if let Some(leader) = metadata.leader(&cursor.topic, cursor.partition) {
            found.insert(leader.id, ());
        }
    }
    found.len()
}

#[cfg(test)]
pub(crate) mod tests;
