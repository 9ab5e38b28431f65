//! Ends transactions that other processes have left open.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pyrklog_client::{Client, ClientConfig, api};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::transactions::{ListTransactionsRequest, ListTransactionsResponse};

use crate::coordinators::{Coordinators, Partitions};
use crate::error::{ErrorKind, ProduceError, Result, is_fenced};
use crate::producer::{TRANSACTIONAL_ID_MAX, new_client};

/// Transactions that are ended at once, each on a connection of its own.
const THREADS_MAX: usize = 8;
/// Fewer are not worth a thread.
const EACH_MIN: usize = 4;
/// Of an answer.
const LISTED_MAX: usize = 1_000_000;
const ONGOING: &str = "Ongoing";

/// A transaction that a producer has left open.
#[derive(Clone, Debug)]
pub struct LeftOpen {
    /// Transactional id.
    pub id: String,
    /// Producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// What it has written to.
    pub partitions: Vec<(String, Vec<i32>)>,
}

/// What became of a request about one of several transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// It is not open: somebody else has ended it. The coordinator's code.
    Fenced(String),
}

/// A client of the cluster's coordinators.
#[derive(Debug)]
pub struct Transactions {
    config: ClientConfig,
    timeout: Duration,
    client: Client,
    coordinators: Coordinators,
}

impl Transactions {
    /// Connects with the first question; each is tried for `timeout`.
    ///
    /// # Errors
    /// `Resources`.
    pub fn new(config: ClientConfig, timeout: Duration) -> Result<Self> {
        Ok(Transactions {
            client: new_client(&config)?,
            config,
            timeout,
            coordinators: Coordinators::new(timeout),
        })
    }

    /// Gets an epoch for `id`, which ends a transaction of an older one: if it is not decided it is
    /// aborted.
    ///
    /// # Errors
    /// Any.
    pub fn init(&mut self, id: &str, timeout_ms: i32) -> Result<(i64, i16)> {
        self.coordinators
            .init(&mut self.client, Some(id), timeout_ms)
    }

    /// Whether each of these transactions is open.
    ///
    /// # Errors
    /// The first coordinator's that does not answer.
    pub fn check(&mut self, all: &[LeftOpen]) -> Result<Vec<Outcome>> {
        self.each(all, |client, coordinators, one| {
            let producer = (one.producer_id, one.producer_epoch);
            let partitions: &Partitions = &one.partitions;
            let code = coordinators.add_partitions(client, &one.id, producer, partitions)?;
            outcome(code, "AddPartitionsToTxn", one)
        })
    }

    /// Commits or aborts each of these transactions.
    ///
    /// # Errors
    /// The first coordinator's that does not answer; others may be ended.
    pub fn end(&mut self, all: &[LeftOpen], commit: bool) -> Result<Vec<Outcome>> {
        self.each(all, |client, coordinators, one| {
            let producer = (one.producer_id, one.producer_epoch);
            let code = coordinators.end(client, &one.id, producer, commit)?;
            outcome(code, "EndTxn", one)
        })
    }

    /// The open transactions whose ids begin with `prefix`, of all brokers that answer: one that is
    /// away coordinates nothing.
    ///
    /// # Errors
    /// `Unsupported` before Kafka 3.0; no broker answers.
    pub fn open_with_prefix(&mut self, prefix: &str) -> Result<Vec<String>> {
        let metadata = self.client.refresh(&[])?;
        let brokers = metadata.brokers.values();
        let addresses: Vec<_> = brokers.map(|broker| broker.address.clone()).collect();
        let request = ListTransactionsRequest {
            states: vec![ONGOING],
            producer_ids: Vec::new(),
        };
        let mut found = Vec::new();
        for address in addresses {
            let asked = self
                .client
                .ask(&address, api::LIST_TRANSACTIONS, |out, version| {
                    request.encode(out, version)
                });
            let frame = match asked {
                Ok(frame) => frame,
                Err(error) if error.is_retriable() => continue,
                Err(error) => return Err(error.into()),
            };
            let (body, version) = (frame.body(), frame.version);
            let answer = ListTransactionsResponse::decode_bounded(body, version, LISTED_MAX);
            let answer = answer.map_err(|error| {
                let text = format!("broker {address} does not follow Kafka's protocol: {error}");
                ProduceError::new(ErrorKind::Protocol, text)
            })?;
            if !answer.error_code.is_none() {
                let text = format!("broker {address}: ListTransactions: {}", answer.error_code);
                return Err(ProduceError::new(ErrorKind::Unavailable, text));
            }
            let ids = answer.transactions.iter().map(|one| one.transactional_id);
            // A longer one is not of ours.
            let ours = ids.filter(|id| id.starts_with(prefix) && id.len() <= TRANSACTIONAL_ID_MAX);
            found.extend(ours.map(str::to_owned));
        }
        Ok(found)
    }

    /// The results of all, in order, or the first failure.
    fn each(
        &mut self,
        all: &[LeftOpen],
        work: impl Fn(&mut Client, &mut Coordinators, &LeftOpen) -> Result<Outcome> + Sync,
    ) -> Result<Vec<Outcome>> {
        let threads = (all.len() / EACH_MIN).min(THREADS_MAX);
        if threads < 2 {
            let (client, coordinators) = (&mut self.client, &mut self.coordinators);
            return all
                .iter()
                .map(|one| work(client, coordinators, one))
                .collect();
        }
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<Outcome>>>> = Mutex::new(vec![None; all.len()]);
        let run = || -> Result<()> {
            let mut client = new_client(&self.config)?;
            let mut coordinators = Coordinators::new(self.timeout);
            while let Some((at, one)) = take(&next, all) {
                let result = work(&mut client, &mut coordinators, one);
                let mut results = results.lock().unwrap_or_else(|held| held.into_inner());
                results[at] = Some(result);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            let ends = started.into_iter().map(|thread| thread.join());
            ends.map(|end| end.unwrap_or_else(|_| Err(lost())))
                .collect::<Result<Vec<()>>>()
        })?;
        let results = results
            .into_inner()
            .unwrap_or_else(|held| held.into_inner());
        results
            .into_iter()
            .map(|one| one.unwrap_or_else(|| Err(lost())))
            .collect()
    }
}

fn take<'a>(next: &AtomicUsize, all: &'a [LeftOpen]) -> Option<(usize, &'a LeftOpen)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    all.get(at).map(|one| (at, one))
}

fn lost() -> ProduceError {
    ProduceError::new(ErrorKind::Resources, "a thread ended early")
}

fn outcome(code: ErrorCode, what: &str, one: &LeftOpen) -> Result<Outcome> {
    match code {
        ErrorCode::NONE => Ok(Outcome::Done),
        code if is_fenced(code) => Ok(Outcome::Fenced(code.to_string())),
        code => {
            let what = format!("{what} of transactional id {}", one.id);
            Err(ProduceError::of_code(code, &what))
        }
    }
}
