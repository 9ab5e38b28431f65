//! A producer's turn: sends what can be sent, takes the answers that are there, and may wait.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pyrklog_client::{Address, ClientError, Frame, Ready, wait};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::produce::ProduceResponse;

use crate::error::{ErrorKind, ProduceError, Result, is_retried};
use crate::lane::{Lane, Place, ToSend};
use crate::producer::Producer;

/// Looks again after this at the latest.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// An abort waits so long for batches that are on their way.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// Shorter pauses of the caller's are not looked at.
const AWAY_MIN: Duration = Duration::from_millis(100);
/// Kafka's default of `socket.request.max.bytes`: brokers hang up on longer requests.
const REQUEST_BYTES_DEFAULT: usize = 100 << 20;
/// Records that an answer may name as refused.
const RECORD_ERRORS_MAX: usize = 100_000;

/// Of a partition's answer: code and the broker's sentence.
type Answer = (Place, ErrorCode, Option<String>);

impl Producer {
    /// One turn. With `is_waiting` it ends when something has happened, or after a while.
    pub(crate) fn pump(&mut self, is_waiting: bool) -> Result<()> {
        self.was_left_alone(Instant::now());
        let done = self.turn(is_waiting);
        self.left_at = Instant::now();
        done
    }

    fn turn(&mut self, is_waiting: bool) -> Result<()> {
        self.add_partitions()?;
        self.refresh()?;
        self.dispatch()?;
        if !self.receive()? && is_waiting {
            self.wait()?;
            self.receive()?;
        }
        self.check_deadlines()
    }

    /// The caller may compute for long between two calls, in which nothing is sent or received: no
    /// answer is late for that, and no batch was tried for that long.
    fn was_left_alone(&mut self, now: Instant) {
        let away = now.saturating_duration_since(self.left_at);
        if away < AWAY_MIN {
            return;
        }
        for lane in self.lanes.values_mut() {
            lane.was_left_alone(away);
        }
        let partitions = self.topics.iter_mut().flat_map(|one| &mut one.partitions);
        for first in partitions.filter_map(|one| one.queue.front_mut()) {
            first.first_try = first.first_try.map(|at| at + away);
        }
    }

    /// Waits for answers to all that was sent, and sends nothing.
    ///
    /// # Errors
    /// `Unavailable` if there is none to one of them.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let timeout = self.options.client.request_timeout;
        let until = Instant::now() + SETTLED_WITHIN.min(timeout);
        loop {
            let lanes = self.lanes.iter().filter(|lane| lane.1.oldest().is_some());
            let addresses: Vec<Address> = lanes.map(|lane| lane.0.clone()).collect();
            if addresses.is_empty() {
                break;
            }
            for address in addresses {
                while let Some(lane) = self.lanes.get_mut(&address) {
                    let Some((frame, places)) = lane.receive(Instant::now(), timeout)? else {
                        break;
                    };
                    for ((at, index), code, _) in self.answers(&address, &frame, &places)? {
                        self.settled(at, index, code);
                    }
                }
            }
            if Instant::now() >= until {
                let seconds = SETTLED_WITHIN.min(timeout).as_secs_f64();
                let text = format!("no answer to Produce within {seconds:.1} s");
                return Err(ProduceError::new(ErrorKind::Unavailable, text));
            }
            self.wait()?;
        }
        let mut all = self.topics.iter().flat_map(|topic| &topic.partitions);
        match all.find(|one| one.is_unanswered) {
            None => Ok(()),
            Some(one) => {
                let text = format!("it is not known whether a batch arrives: {}", one.reason);
                Err(ProduceError::new(ErrorKind::Unavailable, text))
            }
        }
    }

    fn settled(&mut self, at: usize, index: usize, code: ErrorCode) {
        let partition = &mut self.topics[at].partitions[index];
        partition.in_flight = false;
        if is_in_log(code)
            && let Some(full) = partition.acknowledge()
        {
            self.queued_bytes -= full.bytes.len();
            self.acknowledged_bytes += full.bytes.len() as u64;
        }
    }

    /// Looks for leaders, if one was not found or has refused.
    fn refresh(&mut self) -> Result<()> {
        let now = Instant::now();
        if !self.is_stale || now < self.refresh_at {
            return Ok(());
        }
        let names: Vec<_> = self.topics.iter().map(|one| one.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(|one| &**one).collect();
        self.refresh_at = now + self.refreshes.next_wait();
        match self.client.refresh(&names) {
            Ok(_) => self.is_stale = false,
            Err(error) if error.is_retriable() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sends the first batch of each partition that waits for none. A leader gets first what has
    /// waited longest: in the order of partitions, low ones would fill its requests again before
    /// high ones have their turn.
    fn dispatch(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_transactional = self.options.transactional_id.is_some();
        let mut by_leader: BTreeMap<(String, u16), Vec<(Instant, Place)>> = BTreeMap::new();
        for (at, topic) in self.topics.iter_mut().enumerate() {
            for (index, partition) in topic.partitions.iter_mut().enumerate() {
                let is_due = partition.retry_at.is_none_or(|then| then <= now);
                let is_open = partition.is_added || !is_transactional;
                let Some(first) = partition.queue.front_mut() else {
                    continue;
                };
                if partition.in_flight || !is_due || !is_open {
                    continue;
                }
                let since = *first.first_try.get_or_insert(now);
                match self.client.metadata().leader(&topic.name, index as i32) {
                    Some(leader) => {
                        let Address { host, port } = &leader.address;
                        let key = (host.clone(), *port);
                        let places = by_leader.entry(key).or_default();
                        places.push((since, (at, index)));
                    }
                    None => {
                        partition.refuse(now, "it has no leader".into());
                        self.is_stale = true;
                    }
                }
            }
        }
        for ((host, port), mut places) in by_leader {
            places.sort_by_key(|one| one.0);
            let places = places.into_iter().map(|one| one.1).collect();
            self.dispatch_to(Address { host, port }, places)?;
        }
        Ok(())
    }

    fn dispatch_to(&mut self, address: Address, places: Vec<Place>) -> Result<()> {
        if !self.lanes.contains_key(&address) {
            match self.opener.open(&address) {
                Ok(connection) => {
                    self.lanes.insert(address.clone(), Lane::new(connection));
                }
                Err(error) => return self.refuse_all(places, error),
            }
        }
        let mut rest = &places[..];
        while !rest.is_empty() {
            let Some(lane) = self.lanes.get_mut(&address) else {
                return Ok(());
            };
            if lane.is_full() {
                return Ok(());
            }
            let mut bytes = 0;
            let mut batches: Vec<ToSend<'_>> = Vec::new();
            for (at, index) in rest {
                let topic = &self.topics[*at];
                let Some(full) = topic.partitions[*index].queue.front() else {
                    continue;
                };
                if !batches.is_empty() && bytes + full.bytes.len() > self.options.request_bytes {
                    break;
                }
                bytes += full.bytes.len();
                batches.push(ToSend {
                    place: (*at, *index),
                    topic: &topic.name,
                    partition: *index as i32,
                    bytes: &full.bytes,
                    expected_end: self.recipe.keeps_offsets.then_some(full.expected_end),
                });
            }
            let count = batches.len();
            // A request names each topic once.
            batches.sort_by_key(|batch| batch.place);
            let id = self.options.transactional_id.as_deref();
            let timeout = self.options.client.request_timeout;
            let sent = lane.send(Instant::now(), id, timeout, &batches);
            let (now_sent, later) = rest.split_at(count);
            rest = later;
            for (at, index) in now_sent {
                self.topics[*at].partitions[*index].in_flight = true;
            }
            if let Err(error) = sent {
                let more = now_sent.to_vec();
                self.lose_lane(&address, error, more)?;
            }
        }
        Ok(())
    }

    /// Takes what is there. True if there was anything.
    fn receive(&mut self) -> Result<bool> {
        let timeout = self.options.client.request_timeout;
        let addresses: Vec<Address> = self.lanes.keys().cloned().collect();
        let mut has_received = false;
        for address in addresses {
            while let Some(lane) = self.lanes.get_mut(&address) {
                match lane.receive(Instant::now(), timeout) {
                    Ok(None) => break,
                    Ok(Some((frame, places))) => {
                        has_received = true;
                        let answers = self.answers(&address, &frame, &places)?;
                        if let Some(lane) = self.lanes.get_mut(&address) {
                            lane.give_back(frame);
                        }
                        for answer in answers {
                            self.take(answer)?;
                        }
                    }
                    Err(error) => {
                        has_received = true;
                        self.lose_lane(&address, error, Vec::new())?;
                    }
                }
            }
        }
        Ok(has_received)
    }

    fn answers(&self, address: &Address, frame: &Frame, places: &[Place]) -> Result<Vec<Answer>> {
        let wrong = |reason: String| {
            let text = format!("broker {address} does not follow Kafka's protocol: {reason}");
            ProduceError::new(ErrorKind::Protocol, text)
        };
        let most = 2 * places.len() + RECORD_ERRORS_MAX;
        let response = ProduceResponse::decode_bounded(frame.body(), frame.version, most)
            .map_err(|error| wrong(error.to_string()))?;
        let mut answers: Vec<Answer> = Vec::with_capacity(places.len());
        for topic in &response.topics {
            for one in &topic.partitions {
                let at = self.by_name.get(topic.name).copied();
                let index = usize::try_from(one.index).ok();
                let Some(place) = at.zip(index).filter(|place| places.contains(place)) else {
                    return Err(wrong("an answer for a partition that was not sent".into()));
                };
                if answers.iter().any(|answer| answer.0 == place) {
                    return Err(wrong("two answers for a partition".into()));
                }
                let text = one.error_message.as_deref().map(str::to_owned);
                answers.push((place, one.error_code, text));
            }
        }
        match answers.len() == places.len() {
            true => Ok(answers),
            false => Err(wrong("no answer for a partition that was sent".into())),
        }
    }

    fn take(&mut self, ((at, index), code, text): Answer) -> Result<()> {
        let name = self.topics[at].name.clone();
        let partition = &mut self.topics[at].partitions[index];
        match code {
            code if is_in_log(code) => {
                if let Some(full) = partition.acknowledge() {
                    self.queued_bytes -= full.bytes.len();
                    self.acknowledged_bytes += full.bytes.len() as u64;
                }
                self.refreshes.reset();
                Ok(())
            }
            ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => {
                let grown = partition.halve(&self.recipe).map_err(|error| {
                    let text = format!(
                        "partition {index} of topic {name} takes no record so large \
                         (max.message.bytes): {error}"
                    );
                    ProduceError::new(error.kind, text)
                })?;
                self.queued_bytes = self.queued_bytes.saturating_add_signed(grown);
                Ok(())
            }
            code if is_retried(code) => {
                partition.refuse(Instant::now(), code.to_string());
                self.is_stale = true;
                Ok(())
            }
            code => {
                let text = text.map_or_else(String::new, |text| format!(" ({text})"));
                let what = format!("partition {index} of topic {name} is not written{text}");
                Err(ProduceError::of_code(code, &what))
            }
        }
    }

    /// A connection is gone: what it had not answered is sent again, perhaps to another leader.
    fn lose_lane(
        &mut self,
        address: &Address,
        error: ClientError,
        mut places: Vec<Place>,
    ) -> Result<()> {
        if let Some(lane) = self.lanes.remove(address) {
            places.extend(lane.unanswered());
        }
        for (at, index) in &places {
            self.topics[*at].partitions[*index].is_unanswered = true;
        }
        self.refuse_all(places, error)
    }

    fn refuse_all(&mut self, places: Vec<Place>, error: ClientError) -> Result<()> {
        if !error.is_retriable() {
            return Err(error.into());
        }
        let now = Instant::now();
        for (at, index) in places {
            self.topics[at].partitions[index].refuse(now, error.to_string());
        }
        self.is_stale = true;
        Ok(())
    }

    fn check_deadlines(&self) -> Result<()> {
        let now = Instant::now();
        let timeout = self.options.delivery_timeout;
        for topic in &self.topics {
            for (index, partition) in topic.partitions.iter().enumerate() {
                let Some(full) = partition.queue.front().filter(|_| !partition.in_flight) else {
                    continue;
                };
                let is_late = |first| now.saturating_duration_since(first) > timeout;
                if full.first_try.is_some_and(is_late) {
                    let text = format!(
                        "partition {index} of topic {} was not written within {:.1} s: {}{}",
                        topic.name,
                        timeout.as_secs_f64(),
                        partition.reason,
                        hint_at_size(full.bytes.len())
                    );
                    return Err(ProduceError::new(ErrorKind::Unavailable, text));
                }
            }
        }
        Ok(())
    }

    /// Until a socket is ready or something is due.
    fn wait(&mut self) -> Result<()> {
        let now = Instant::now();
        let timeout = self.options.client.request_timeout;
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        let retries = partitions.filter_map(|one| one.retry_at);
        let answers = self.lanes.values().filter_map(|lane| lane.oldest());
        let refresh = self.is_stale.then_some(self.refresh_at);
        let next = retries
            .chain(answers.map(|at| at + timeout))
            .chain(refresh)
            .min()
            .map_or(LONGEST_WAIT, |at| at.saturating_duration_since(now));
        let files: Vec<_> = self
            .lanes
            .values()
            .filter(|lane| lane.oldest().is_some())
            .map(|lane| (lane.connection.as_fd(), lane.connection.interest()))
            .chain([(self.client.cancel().as_fd(), Ready::Read)])
            .collect();
        let most = next.clamp(Duration::from_millis(1), LONGEST_WAIT);
        wait(&files, most)
            .map_err(|error| ProduceError::new(ErrorKind::Resources, error.to_string()))?;
        Ok(self.client.cancel().check()?)
    }
}

/// A broker that hangs up does not say why.
fn hint_at_size(bytes: usize) -> String {
    match bytes > REQUEST_BYTES_DEFAULT {
        true => format!(
            "; the batch has {bytes} bytes, and brokers take no longer requests than \
             socket.request.max.bytes"
        ),
        false => String::new(),
    }
}

/// With the second an earlier request had it in the log, and its answer was lost.
fn is_in_log(code: ErrorCode) -> bool {
    [ErrorCode::NONE, ErrorCode::DUPLICATE_SEQUENCE_NUMBER].contains(&code)
}
