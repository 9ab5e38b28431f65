//! A producer: encodes rows, sends batches, and waits for answers, in the caller's thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use pyrklog_client::{Address, Backoff, Cancel, Client, ClientConfig, Opener};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::builder::HeaderToWrite;

use crate::at_offsets;
use crate::coordinators::{Coordinators, Partitions, ProducerId};
use crate::error::{ErrorKind, ProduceError, Result};
use crate::lane::{Lane, Place};
use crate::options::ProduceOptions;
use crate::partition::{Partition, Recipe};
use crate::partitioner::{Sticky, partition_of_key};
use crate::rows::{Row, Rows};

/// Of batches that bring their offsets.
const NO_PRODUCER: ProducerId = (-1, -1);
/// A topic does not exist if brokers say so for this long, as with scans.
const ABSENT: Duration = Duration::from_secs(3);
/// One broker may know a new partition so much later than another.
const NEW_PARTITION: Duration = Duration::from_secs(1);
/// What a record takes besides key, value and headers, at most.
const RECORD_OVERHEAD: usize = 32;
/// A record's fields must fit into the lengths of the format.
const RECORD_BYTES_MAX: usize = 1 << 30;
/// As brokers have it; also bounds what is encoded.
const TOPIC_NAME_MAX: usize = 249;
pub(crate) const TRANSACTIONAL_ID_MAX: usize = 1000;
/// Bounds what is encoded.
const CLIENT_ID_MAX: usize = 1000;

/// A client with a setting that can be sent.
///
/// # Errors
/// `Argument`, `Resources`.
pub(crate) fn new_client(config: &ClientConfig) -> Result<Client> {
    let cancel = Cancel::new()
        .map_err(|error| ProduceError::new(ErrorKind::Resources, error.to_string()))?;
    client_with(config, cancel)
}

fn client_with(config: &ClientConfig, cancel: Cancel) -> Result<Client> {
    if config.client_id.len() > CLIENT_ID_MAX {
        let text = "a client id has at most 1000 bytes";
        return Err(ProduceError::new(ErrorKind::Argument, text));
    }
    Ok(Client::new(config.clone(), cancel))
}

/// What is in the log of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Records that were acknowledged.
    pub records: u64,
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub name: Arc<str>,
    pub partitions: Vec<Partition>,
    sticky: Sticky,
}

/// A producer of one cluster, for one thread.
#[derive(Debug)]
pub struct Producer {
    pub(crate) options: ProduceOptions,
    pub(crate) client: Client,
    pub(crate) opener: Opener,
    coordinators: Coordinators,
    pub(crate) recipe: Recipe,
    pub(crate) topics: Vec<Topic>,
    pub(crate) by_name: HashMap<Arc<str>, usize>,
    /// Where the option's topic is in `topics`, once it was found: no row asks for it by name.
    topic_of_all: Option<usize>,
    pub(crate) lanes: HashMap<Address, Lane>,
    /// Of batches that are not closed.
    open_bytes: usize,
    /// Of those that are, and not acknowledged.
    pub(crate) queued_bytes: usize,
    pub(crate) acknowledged_bytes: u64,
    /// Leaders are to be looked for again, and when.
    pub(crate) is_stale: bool,
    pub(crate) refresh_at: Instant,
    pub(crate) refreshes: Backoff,
    /// When its last turn ended: what passes until the next one is the caller's time.
    pub(crate) left_at: Instant,
    /// Batches were dropped, whose sequences are missing.
    is_spent: bool,
}

impl Producer {
    /// Gets a producer id; one with a transactional id ends older producers of it.
    ///
    /// # Errors
    /// Any.
    pub fn open(options: ProduceOptions) -> Result<Producer> {
        let client = new_client(&options.client)?;
        Producer::with_client(options, client)
    }

    /// The same; all that it does ends as soon as `cancel` is used, with an error.
    ///
    /// # Errors
    /// Any.
    pub fn open_until(options: ProduceOptions, cancel: Cancel) -> Result<Producer> {
        let client = client_with(&options.client, cancel)?;
        Producer::with_client(options, client)
    }

    fn with_client(options: ProduceOptions, mut client: Client) -> Result<Producer> {
        let id = options.transactional_id.as_deref();
        if id.is_some_and(|id| id.is_empty() || id.len() > TRANSACTIONAL_ID_MAX) {
            let text = "a transactional id has 1 to 1000 bytes";
            return Err(ProduceError::new(ErrorKind::Argument, text));
        }
        let mut coordinators = Coordinators::new(options.delivery_timeout);
        let keeps_offsets = options.keeps_offsets;
        if keeps_offsets && id.is_some() {
            let text = "records with their own offsets are in no transaction";
            return Err(ProduceError::new(ErrorKind::Argument, text));
        }
        let (producer, lanes) = match keeps_offsets {
            true => (NO_PRODUCER, at_offsets::lanes(&mut client, &options)?),
            false => {
                let timeout_ms = options.transaction_timeout_ms;
                let producer = coordinators.init(&mut client, id, timeout_ms)?;
                (producer, HashMap::new())
            }
        };
        Ok(Producer {
            opener: client.opener(),
            client,
            coordinators,
            recipe: Recipe {
                producer,
                is_transactional: id.is_some(),
                codec: options.codec,
                keeps_offsets,
            },
            options,
            topics: Vec::new(),
            by_name: HashMap::new(),
            topic_of_all: None,
            lanes,
            open_bytes: 0,
            queued_bytes: 0,
            acknowledged_bytes: 0,
            is_stale: false,
            refresh_at: Instant::now(),
            refreshes: Backoff::default(),
            left_at: Instant::now(),
            is_spent: false,
        })
    }

    /// Producer id and epoch.
    pub fn id(&self) -> ProducerId {
        self.recipe.producer
    }

    /// Looks for the option's topic now, instead of when a row comes.
    ///
    /// # Errors
    /// `UnknownTopic`, and any.
    pub fn find(&mut self) -> Result<()> {
        if let (Some(topic), None) = (self.options.topic.clone(), self.topic_of_all) {
            self.topic_of_all = Some(self.topic(&topic)?);
        }
        Ok(())
    }

    /// Encodes all rows. Full batches are sent; what is over `memory_bytes` is waited for.
    ///
    /// # Errors
    /// Any; the producer cannot be used after one.
    pub fn send(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.is_spent {
            let text = "a transaction was aborted before all of it was sent: open another producer";
            return Err(ProduceError::new(ErrorKind::Refused, text));
        }
        let names = self.options.columns.clone();
        let rows = Rows::of(batch, &names)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |since| since.as_millis() as i64);
        let mut headers = Vec::new();
        for number in 0..rows.count {
            let row = rows.get(number, &mut headers)?;
            self.push(&row, row.timestamp.unwrap_or(now_ms), &headers)?;
            if self.open_bytes + self.queued_bytes > self.options.memory_bytes {
                self.make_room()?;
            }
        }
        Ok(())
    }

    /// Waits until all is acknowledged. Where no broker takes anything it ends after
    /// `delivery_timeout`, and what a connection, an answer or a question to the coordinator takes
    /// that is under way then; where batches are taken, each has that time anew.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub fn flush(&mut self) -> Result<()> {
        self.seal_all()?;
        while self.queued_bytes > 0 {
            self.pump(true)?;
        }
        Ok(())
    }

    /// Commits or aborts the transaction, if one is open. The caller has flushed what it commits; of
    /// what it aborts nothing more is sent, and what is on its way is waited for: a batch that
    /// arrived behind the marker would belong to no transaction. Before Kafka 3.6 it would hold up
    /// readers, or count for the id's next transaction.
    ///
    /// # Errors
    /// `Fenced`, and any. `Unavailable` if it is not known what became of a batch that is aborted:
    /// the transaction is left open. The next producer of the id ends it, or its time-out does, both
    /// with an epoch that keeps the batch out.
    pub fn end(&mut self, commit: bool) -> Result<()> {
        if !commit {
            self.settle()?;
            self.drop_unsent();
        }
        let added = |topic: &Topic| topic.partitions.iter().any(|one| one.is_added);
        let Some(id) = self.options.transactional_id.clone() else {
            return Ok(());
        };
        if !self.topics.iter().any(added) {
            return Ok(());
        }
        let producer = self.recipe.producer;
        let code = self
            .coordinators
            .end(&mut self.client, &id, producer, commit)?;
        if !code.is_none() {
            let what = format!("EndTxn of transactional id {id}");
            return Err(ProduceError::of_code(code, &what));
        }
        for topic in &mut self.topics {
            for partition in &mut topic.partitions {
                partition.is_added = false;
            }
        }
        Ok(())
    }

    /// What is acknowledged, and all that the transaction has added.
    pub fn written(&self) -> Vec<Written> {
        let mut all = Vec::new();
        for topic in &self.topics {
            for (index, partition) in topic.partitions.iter().enumerate() {
                if partition.acknowledged > 0 || partition.is_added {
                    all.push(Written {
                        topic: topic.name.to_string(),
                        partition: index as i32,
                        records: partition.acknowledged,
                    });
                }
            }
        }
        all
    }

    /// Bytes of acknowledged batches, as they were sent.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    fn push(&mut self, row: &Row<'_>, timestamp: i64, headers: &[HeaderToWrite<'_>]) -> Result<()> {
        let of_headers = headers
            .iter()
            .map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len) + 10);
        let row_bytes = row.key.map_or(0, <[u8]>::len)
            + row.value.map_or(0, <[u8]>::len)
            + of_headers.sum::<usize>()
            + RECORD_OVERHEAD;
        if row_bytes > RECORD_BYTES_MAX {
            let text = format!("a record has {row_bytes} bytes, more than a topic can hold");
            return Err(ProduceError::new(ErrorKind::TooLarge, text));
        }
        let (at, index) = self.place(row, row_bytes)?;
        let open = self.topics[at].partitions[index].open_bytes();
        if open > 0 && open + row_bytes > self.options.batch_bytes {
            self.seal((at, index))?;
            self.pump(false)?;
        }
        if self.recipe.keeps_offsets && !self.takes((at, index), row)? {
            self.seal((at, index))?;
        }
        let partition = &mut self.topics[at].partitions[index];
        self.open_bytes += partition.push(&self.recipe, row, timestamp, headers);
        Ok(())
    }

    /// Whether the row's offset can follow in the open batch.
    fn takes(&self, (at, index): Place, row: &Row<'_>) -> Result<bool> {
        let partition = &self.topics[at].partitions[index];
        row.offset
            .and_then(|offset| partition.takes(offset))
            .ok_or_else(|| {
                let (name, offset) = (&self.topics[at].name, row.offset.unwrap_or(-1));
                let text = format!(
                    "a row has offset {offset} of partition {index} of topic {name}, which does \
                     not follow the one before"
                );
                ProduceError::new(ErrorKind::Argument, text)
            })
    }

    /// Says where the log of a partition ends, before rows with their own offsets are sent to it.
    ///
    /// # Errors
    /// Any.
    pub fn follow(&mut self, topic: &str, partition: i32, end: i64) -> Result<()> {
        let at = self.topic(topic)?;
        let index = self.partition_of_row(at, partition)?;
        self.topics[at].partitions[index].end = Some(end);
        Ok(())
    }

    fn place(&mut self, row: &Row<'_>, row_bytes: usize) -> Result<Place> {
        let at = match (&self.options.topic, self.topic_of_all, row.topic) {
            (Some(_), Some(at), _) => at,
            (Some(topic), None, _) => {
                let topic = topic.clone();
                let at = self.topic(&topic)?;
                *self.topic_of_all.insert(at)
            }
            (None, _, Some(topic)) => self.topic(topic)?,
            (None, _, None) => {
                let text = "a row has no topic: the column is null, and there is no option topic";
                return Err(ProduceError::new(ErrorKind::Argument, text));
            }
        };
        let batch_bytes = self.options.batch_bytes;
        let topic = &mut self.topics[at];
        let count = topic.partitions.len();
        let index = match (row.partition, row.key) {
            (Some(asked), _) => self.partition_of_row(at, asked)?,
            (None, Some(key)) => partition_of_key(key, count),
            (None, None) => topic.sticky.next(row_bytes, batch_bytes, count),
        };
        Ok((at, index))
    }

    fn partition_of_row(&mut self, at: usize, asked: i32) -> Result<usize> {
        if let Ok(index) = usize::try_from(asked)
            && (index < self.topics[at].partitions.len() || self.grow(at, index)?)
        {
            return Ok(index);
        }
        let (name, count) = (&self.topics[at].name, self.topics[at].partitions.len());
        let text = format!("a row is for partition {asked} of topic {name}, which has {count}");
        Err(ProduceError::new(ErrorKind::Argument, text))
    }

    /// Whether a topic has this partition by now.
    fn grow(&mut self, at: usize, index: usize) -> Result<bool> {
        let known: Vec<Arc<str>> = self.topics.iter().map(|one| one.name.clone()).collect();
        let names: Vec<&str> = known.iter().map(|one| &**one).collect();
        let begin = Instant::now();
        let mut waits = Backoff::default();
        loop {
            match self.client.refresh(&names) {
                Ok(metadata) => {
                    let found = metadata.topics.get(names[at]);
                    let count = found.map_or(0, |one| one.partitions.len());
                    let partitions = &mut self.topics[at].partitions;
                    if count > partitions.len() {
                        partitions.resize_with(count, Partition::default);
                    }
                    if index < partitions.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.is_retriable() => {}
                Err(error) => return Err(error.into()),
            }
            let wait = waits.next_wait();
            if begin.elapsed() + wait > NEW_PARTITION {
                return Ok(false);
            }
            self.client.cancel().clone().sleep(wait)?;
        }
    }

    fn topic(&mut self, name: &str) -> Result<usize> {
        match self.by_name.get(name) {
            Some(at) => Ok(*at),
            None => self.find_topic(name),
        }
    }

    fn find_topic(&mut self, name: &str) -> Result<usize> {
        if name.is_empty() || name.len() > TOPIC_NAME_MAX {
            let shown: String = name.chars().take(80).collect();
            let text = format!("no topic can have the name '{shown}'");
            return Err(ProduceError::new(ErrorKind::Argument, text));
        }
        let known: Vec<Arc<str>> = self.topics.iter().map(|one| one.name.clone()).collect();
        let mut names: Vec<&str> = known.iter().map(|one| &**one).collect();
        names.push(name);
        let begin = Instant::now();
        let mut waits = Backoff::default();
        loop {
            let (failure, most) = match self.client.refresh(&names) {
                Ok(metadata) => {
                    let found = metadata.topics.get(name);
                    let code = found.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |one| one.error);
                    let count = found.map_or(0, |one| one.partitions.len());
                    if code.is_none() && count > 0 {
                        return Ok(self.add_topic(name, count));
                    }
                    let failure = ProduceError::of_code(code, &format!("topic {name}"));
                    let may_come = [
                        ErrorCode::NONE,
                        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        ErrorCode::LEADER_NOT_AVAILABLE,
                    ];
                    if !may_come.contains(&code) {
                        return Err(failure);
                    }
                    let text = format!("there is no topic {name}: create it first");
                    let kind = ErrorKind::UnknownTopic;
                    (
                        ProduceError::new(kind, text),
                        ABSENT.min(self.options.delivery_timeout),
                    )
                }
                Err(error) if error.is_retriable() => (error.into(), self.options.delivery_timeout),
                Err(error) => return Err(error.into()),
            };
            let wait = waits.next_wait();
            if begin.elapsed() + wait > most {
                return Err(failure);
            }
            self.client.cancel().clone().sleep(wait)?;
        }
    }

    fn add_topic(&mut self, name: &str, count: usize) -> usize {
        let name: Arc<str> = name.into();
        let at = self.topics.len();
        self.by_name.insert(name.clone(), at);
        self.topics.push(Topic {
            name,
            partitions: (0..count).map(|_| Partition::default()).collect(),
            sticky: Sticky::new(count),
        });
        at
    }

    fn drop_unsent(&mut self) {
        for topic in &mut self.topics {
            for partition in &mut topic.partitions {
                let (open, queued) = partition.drop_unsent();
                self.open_bytes -= open;
                self.queued_bytes -= queued;
                self.is_spent |= open + queued > 0;
            }
        }
    }

    fn seal(&mut self, (at, index): Place) -> Result<()> {
        let (before, after) = self.topics[at].partitions[index].seal(&self.recipe)?;
        self.open_bytes -= before;
        self.queued_bytes += after;
        Ok(())
    }

    fn seal_all(&mut self) -> Result<()> {
        for at in 0..self.topics.len() {
            for index in 0..self.topics[at].partitions.len() {
                self.seal((at, index))?;
            }
        }
        Ok(())
    }

    /// Waits until half of the memory is free.
    fn make_room(&mut self) -> Result<()> {
        let most = self.options.memory_bytes / 2;
        while self.open_bytes + self.queued_bytes > most {
            // Many partitions, each with a small batch.
            if self.open_bytes > most / 2 {
                self.seal_all()?;
            }
            self.pump(true)?;
        }
        Ok(())
    }

    /// Adds partitions to the transaction before anything is sent to them.
    pub(crate) fn add_partitions(&mut self) -> Result<()> {
        let Some(id) = self.options.transactional_id.clone() else {
            return Ok(());
        };
        let is_new = |one: &&(usize, &mut Partition)| !one.1.is_added && !one.1.queue.is_empty();
        let mut asked: Partitions = Vec::new();
        for topic in &mut self.topics {
            let all = topic.partitions.iter_mut().enumerate();
            let all: Vec<(usize, &mut Partition)> = all.collect();
            let new: Vec<i32> = all.iter().filter(is_new).map(|one| one.0 as i32).collect();
            if !new.is_empty() {
                asked.push((topic.name.to_string(), new));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let producer = self.recipe.producer;
        let code = self
            .coordinators
            .add_partitions(&mut self.client, &id, producer, &asked)?;
        if !code.is_none() {
            let what = format!("AddPartitionsToTxn of transactional id {id}");
            return Err(ProduceError::of_code(code, &what));
        }
        for (name, partitions) in &asked {
            let at = self.by_name[name.as_str()];
            for index in partitions {
                self.topics[at].partitions[*index as usize].is_added = true;
            }
        }
        Ok(())
    }
}
