//! Producers with sequence numbers, in transactions or without: many of them on few threads.
//!
//! Each has its own connection, as clients have, since brokers answer the requests of one
//! connection one after the other. A thread waits for its producers' sockets with epoll(7).

pub mod messages;
pub mod producer;

use crate::batch;
use crate::clock::{now_ns, wall_clock_ms};
use crate::connection::{Connection, TURN_NS};
use crate::error::{Failure, Result};
use crate::measurement::{begin, measure, nanoseconds, retry};
use crate::messages::{PRODUCE, PRODUCE_ENROLLS, ProduceTerms, Topic};
use crate::options::{Mode, Options};
use crate::ring;
use crate::tally::{Outcome, Tally};
use messages::{
    TransactionVersion, find_coordinator_reply, find_coordinator_request, init_producer_id_reply,
    init_producer_id_request,
};
use producer::{Pace, Producer, Setup, Waits, Work};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;

/// Sockets that one epoll_wait(2) tells of.
const EVENTS_MAX: usize = 256;

/// Measures as `options` say.
///
/// # Errors
/// As [`crate::run::run`]; a topic that several brokers lead.
pub fn run(options: &Options, topic: &Topic) -> Result<Outcome> {
    let address = only_leader(topic)?;
    let pace = (options.mode == Mode::Transactions).then(|| Pace {
        interval_ns: options.commit_ms.map(|ms| ms * 1_000_000),
        batches: options.commit_batches,
        abort_percent: options.abort_percent,
    });
    let batch = match pace {
        Some(_) => batch::build_transactional,
        None => batch::build,
    }(options.record_bytes, options.batch_bytes, wall_clock_ms());
    let mut ready = Vec::new();
    for number in 0..options.producers {
        ready.push(open(options, topic, address, pace, &batch, number)?);
    }
    let (times, budget) = begin(options);
    let work = Work {
        topic: &topic.name,
        budget: &budget,
        in_flight: in_flight(options, pace),
        pace,
        version: options.transaction_version,
        measure_from_ns: times.measure_from_ns,
        timeout_ns: times.timeout_ns,
    };
    let mut groups: Vec<Vec<Setup>> = (0..options.threads).map(|_| Vec::new()).collect();
    for (number, mut setup) in ready.into_iter().enumerate() {
        let interval_ns = pace.and_then(|pace| pace.interval_ns).unwrap_or(0);
        // Producers that commit at fixed times take turns.
        let phase_ns = interval_ns * number as u64 / options.producers as u64;
        setup.first = (number as u64, times.start_ns + phase_ns);
        groups[number % options.threads].push(setup);
    }
    let jobs = groups
        .into_iter()
        .filter(|group| !group.is_empty())
        .map(|group| {
            let work = &work;
            move || {
                let producers = group.into_iter().map(|setup| Producer::new(work, setup));
                Driver::new(producers.collect())?.run()
            }
        })
        .collect();
    measure(&times, &budget, jobs, Some(&batch))
}

fn only_leader(topic: &Topic) -> Result<&str> {
    let mut leaders = topic.partitions.iter().map(|(_, leader)| leader.as_str());
    let first = leaders.next().unwrap_or_default();
    match leaders.all(|leader| leader == first) && !first.is_empty() {
        true => Ok(first),
        false => Err(Failure::Refused(
            "producers with sequence numbers need a topic that one broker leads".into(),
        )),
    }
}

fn in_flight(options: &Options, pace: Option<Pace>) -> usize {
    let most = pace.and_then(|pace| pace.batches).unwrap_or(usize::MAX);
    options.in_flight.min(most)
}

/// Connects a producer and gives it an id.
fn open(
    options: &Options,
    topic: &Topic,
    address: &str,
    pace: Option<Pace>,
    batch: &batch::Batch,
    number: usize,
) -> Result<Setup> {
    let timeout_ns = nanoseconds(options.timeout_seconds);
    let mut connection = Connection::open(address)?;
    let transactional_id = format!("{}-{number}", options.transactional_id);
    let id = pace.is_some().then_some(transactional_id.as_str());
    if let Some(id) = id {
        let request = find_coordinator_request(id);
        let coordinator = retry(timeout_ns, || {
            find_coordinator_reply(&connection.round_trip(&request, timeout_ns)?)
        })?;
        if coordinator != address {
            return Err(Failure::Refused(format!(
                "{id:?} is coordinated by {coordinator}, the topic led by {address}: \
                 transactions are measured on one broker"
            )));
        }
    }
    let request = init_producer_id_request(id);
    let producer = retry(timeout_ns, || {
        init_producer_id_reply(&connection.round_trip(&request, timeout_ns)?)
    })?;
    let mut partitions: Vec<i32> = topic.partitions.iter().map(|(index, _)| *index).collect();
    let count = partitions.len();
    partitions.rotate_left(number % count);
    if let Some(most) = pace.and_then(|pace| pace.batches) {
        partitions.truncate(most);
    }
    let in_flight = in_flight(options, pace);
    let is_v2 = pace.is_some() && options.transaction_version == TransactionVersion::V2;
    // A refused batch is sent again, and none of its partition may have followed it.
    if is_v2 && in_flight > partitions.len() {
        return Err(Failure::Refused(format!(
            "with --transaction-version 2 and {} partitions use --in-flight {} or less",
            partitions.len(),
            partitions.len()
        )));
    }
    let terms = ProduceTerms {
        transactional_id: id,
        version: if is_v2 { PRODUCE_ENROLLS } else { PRODUCE },
        ..ProduceTerms::plain(options.acks, (options.timeout_seconds * 1e3) as i32)
    };
    // Each batch gets its sequence number in its frame, so no frame may be used again before its
    // reply.
    let rounds = in_flight.div_ceil(partitions.len()) + 1;
    Ok(Setup {
        ring: ring::build_own(&topic.name, &partitions, rounds, &terms, batch)?,
        connection,
        transactional_id,
        producer,
        partitions,
        first: (0, 0),
    })
}

/// A thread's producers.
struct Driver<'a> {
    producers: Vec<Producer<'a>>,
    epoll: OwnedFd,
    /// Which sockets are watched for room to send.
    to_send: Vec<bool>,
    /// The earliest wake that is in `wakes`; `u64::MAX` = none.
    woken_ns: Vec<u64>,
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    left: usize,
}

impl<'a> Driver<'a> {
    fn new(producers: Vec<Producer<'a>>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        for (index, producer) in producers.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, producer.connection(), data, epoll::EventFlags::IN)
                .map_err(failed)?;
        }
        let count = producers.len();
        Ok(Self {
            producers,
            epoll,
            to_send: vec![false; count],
            woken_ns: vec![u64::MAX; count],
            wakes: BinaryHeap::new(),
            left: count,
        })
    }

    /// Runs until every producer is done.
    fn run(mut self) -> Result<Tally> {
        for index in 0..self.producers.len() {
            self.turn(index, false)?;
        }
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut check_ns = now_ns() + TURN_NS;
        while self.left > 0 {
            let next = self.wakes.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: next.saturating_sub(now_ns()).min(TURN_NS) as _,
            };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
            for event in &events {
                let (flags, data) = (event.flags, event.data);
                // An error or a hang-up shows when receiving.
                self.turn(data.u64() as usize, flags != epoll::EventFlags::OUT)?;
            }
            self.wake_due()?;
            let now = now_ns();
            if now >= check_ns {
                check_ns = now + TURN_NS;
                for producer in &self.producers {
                    producer.check_progress(now)?;
                }
            }
        }
        let mut tally = Tally::default();
        for producer in self.producers {
            tally.merge(&producer.into_tally());
        }
        Ok(tally)
    }

    fn wake_due(&mut self) -> Result<()> {
        let now = now_ns();
        while let Some(&Reverse((at_ns, index))) = self.wakes.peek() {
            if at_ns > now {
                return Ok(());
            }
            self.wakes.pop();
            if self.woken_ns[index] == at_ns {
                self.woken_ns[index] = u64::MAX;
            }
            self.turn(index, false)?;
        }
        Ok(())
    }

    fn turn(&mut self, index: usize, readable: bool) -> Result<()> {
        let producer = &mut self.producers[index];
        if producer.is_done() {
            return Ok(());
        }
        let Waits { to_send, wake_ns } = producer.turn(readable)?;
        if producer.is_done() {
            self.left -= 1;
            return epoll::delete(&self.epoll, producer.connection()).map_err(failed);
        }
        if self.to_send[index] != to_send {
            self.to_send[index] = to_send;
            let flags = match to_send {
                true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, producer.connection(), data, flags).map_err(failed)?;
        }
        if let Some(wake_ns) = wake_ns.filter(|wake_ns| *wake_ns < self.woken_ns[index]) {
            self.woken_ns[index] = wake_ns;
            self.wakes.push(Reverse((wake_ns, index)));
        }
        Ok(())
    }
}

fn failed(error: rustix::io::Errno) -> Failure {
    Failure::Connection("epoll failed".into(), io::Error::from(error))
}
