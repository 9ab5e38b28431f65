//! A fetch's reads at the readers.

use std::sync::Arc;

use pyrklog_log::Wait;

use crate::cold_reads::{ColdPart, FetchJob, Reading};
use crate::fetch::convert::Left;
use crate::fetch::delayed_fetch::DelayedFetch;
use crate::services::Services;
use pyrklog_base::ids::{Place, QueueId};
use pyrklog_control::seam::ReadPath;
use pyrklog_storage::reader_queue::Kind;

impl DelayedFetch {
    /// Submits reads to their queues as wait number `wait` of the connection at `place`; false if
    /// no queue accepted any.
    pub fn hand_over(
        &mut self,
        services: &Services,
        place: Place,
        wait: u64,
        now_ms: i64,
        cold: Vec<(QueueId, ColdPart)>,
    ) -> bool {
        let mut reading = Reading::new(wait, now_ms);
        self.room_bytes = 0;
        self.submit(services, &mut reading, place, cold);
        if reading.is_done() {
            return false;
        }
        // Wakes of earlier waits no longer count.
        self.wait = 0;
        let has_something = self.bytes > 0 || self.has_event;
        reading.is_over(&services.readers, now_ms, self.deadline_ms, has_something);
        self.reading = Some(reading);
        true
    }

    /// Gives up what a queue does not accept. Of reads that are converted, only one queue's go at a
    /// time: each queue would make messages up to the fetch's limit.
    fn submit(
        &mut self,
        services: &Services,
        reading: &mut Reading,
        place: Place,
        mut cold: Vec<(QueueId, ColdPart)>,
    ) {
        while let Some((queue, _)) = cold.first() {
            let queue = *queue;
            let own = cold.extract_if(.., |(other, _)| *other == queue);
            let ticket = reading.ticket(place, queue);
            let job = Box::new(FetchJob {
                ticket: ticket.clone(),
                view: self.view,
                expanded_max_bytes: services.validators.expanded_max_bytes,
                may_be_large: services.readers.queue(queue).kind == Kind::Expand,
                had_bytes: self.bytes,
                parts: own.map(|(_, part)| part).collect(),
                wait: match services.config.fetch_read_path {
                    ReadPath::Auto | ReadPath::Copy => Wait::PastCache,
                    ReadPath::Sendfile => Wait::Blocking,
                },
                mailbox: Arc::clone(&services.mailboxes.fetches),
            });
            match services.readers.submit(queue, job) {
                Ok(()) => {
                    reading.add(&ticket);
                    if self.is_converted() {
                        let others = cold.drain(..).map(|(_, part)| part);
                        self.unfinished.extend(others);
                        return;
                    }
                }
                Err(job) => {
                    for part in &job.parts {
                        self.parts[part.position].is_given_up = true;
                    }
                }
            }
        }
    }

    /// Takes a reader's result; true once all are back. If it `may_go_on`, what readers have not
    /// finished goes to them again, unless there is enough without it. `has_room` says whether there
    /// is reply memory of so many bytes for a large batch.
    pub fn take_back(
        &mut self,
        job: FetchJob,
        services: &Services,
        now_ms: i64,
        may_go_on: bool,
        has_room: &mut dyn FnMut(usize) -> bool,
    ) -> bool {
        let Some(mut reading) = self.reading.take() else {
            return false;
        };
        if !reading.take_back(&job.ticket) {
            self.reading = Some(reading);
            return false;
        }
        for mut part in job.parts {
            let position = part.position;
            self.parts[position].read = std::mem::take(&mut part.read);
            match part.left {
                Left::Nothing => self.note(position),
                Left::Turn | Left::Large => self.unfinished.push(part),
                Left::Room(bytes) if has_room(self.room_bytes + bytes) => {
                    self.room_bytes += bytes;
                    (part.left, part.room_bytes) = (Left::Large, bytes);
                    self.unfinished.push(part);
                }
                Left::Room(_) => {
                    self.parts[position].is_given_up = true;
                    self.note(position);
                }
            }
        }
        while reading.is_done() && !self.unfinished.is_empty() {
            if !may_go_on || self.bytes >= self.max_bytes {
                self.unfinished.clear();
                self.is_behind = true;
            } else {
                self.go_on(services, &mut reading, job.ticket.place, now_ms);
            }
        }
        if !reading.is_done() {
            self.reading = Some(reading);
            return false;
        }
        self.must_answer |= self.has_event;
        true
    }

    /// Submits unfinished reads: those that no reader has seen, else one that needs a large batch, or
    /// all others.
    fn go_on(&mut self, services: &Services, reading: &mut Reading, place: Place, now_ms: i64) {
        let mut unfinished = self.unfinished.iter();
        let is_new = |part: &ColdPart| part.left == Left::Nothing;
        let has_new = unfinished.clone().any(is_new);
        let large = unfinished.position(|part| !has_new && part.left == Left::Large);
        reading.waits_for_large = large.is_some();
        let again = match large {
            Some(at) => vec![self.unfinished.remove(at)],
            None => {
                let chosen = |part: &mut ColdPart| !has_new || is_new(part);
                self.unfinished.extract_if(.., chosen).collect()
            }
        };
        let readers = &services.readers;
        let mut cold = Vec::with_capacity(again.len());
        for part in again {
            let dir = part.partition.dir().index;
            let queue = match part.left {
                Left::Large => readers.for_kind(dir, Kind::Expand),
                _ => readers.for_fetch(dir, &part.partition.topic.name),
            };
            match readers.queue(queue).accepts(now_ms) {
                true => cold.push((queue, part)),
                false => self.parts[part.position].is_given_up = true,
            }
        }
        self.submit(services, reading, place, cold);
    }
}
