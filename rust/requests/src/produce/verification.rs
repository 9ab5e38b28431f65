//! A transaction's first batches wait until its coordinator was asked about their partitions
//! (KIP-890): the request is held, with a guard open in each of them, and its connection is muted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyrklog_log::BatchInfo;
use pyrklog_log::producer_state::guards::GuardOwner;
use pyrklog_log::producer_state::verification::{Proof, Verification};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::batch::BatchHeader;
use pyrklog_wire::produce::{ProducePartition, ProduceRequest};

use crate::context::Context;
use crate::produce::delayed_produce::{Item, Refusal};
use crate::produce::open_guard::OpenGuard;
use crate::produce::validating::ProduceParams;
use crate::produce::verdicts::Verdict;
use crate::produce::verifications::Waiting;
use pyrklog_base::injected_faults::{Fault, is_injected};
use pyrklog_control::seam::{Event, VerifyTransaction};
use pyrklog_storage::log_dir_state::Partition;

/// First version that may answer TRANSACTION_ABORTABLE.
const ABORTABLE_SINCE: i16 = 11;

/// First version that enrols its partitions in the transaction (transaction version 2).
const ENROLS_SINCE: i16 = 12;

/// How long a request waits for its coordinator.
const WAIT_MAX_MS: i64 = 30_000;

/// The least time for it, whatever the client's time-out.
const WAIT_MIN_MS: i64 = 1_000;

/// What the batches of a request have to show, by position.
#[derive(Debug)]
pub struct Proofs {
    by_position: Vec<Result<Proof, ErrorCode>>,
    of_others: Result<Proof, ErrorCode>,
}

impl Default for Proofs {
    fn default() -> Proofs {
        Proofs::all(Ok(Proof::OpenTransaction))
    }
}

impl Proofs {
    fn all(proof: Result<Proof, ErrorCode>) -> Proofs {
        Proofs {
            by_position: Vec::new(),
            of_others: proof,
        }
    }

    fn set(&mut self, position: usize, proof: Result<Proof, ErrorCode>) {
        if self.by_position.len() <= position {
            self.by_position.resize(position + 1, self.of_others);
        }
        self.by_position[position] = proof;
    }

    /// What the batch at `position` has to show.
    ///
    /// # Errors
    /// The coordinator refuses it, or could not be asked.
    pub fn of(&self, position: usize) -> Result<Proof, Refusal> {
        let proof = self.by_position.get(position).unwrap_or(&self.of_others);
        proof.map_err(|error| Refusal::with(error, reason(error)))
    }
}

fn reason(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::INVALID_TXN_STATE | ErrorCode::TRANSACTION_ABORTABLE => {
            "The partition was not added to the transaction."
        }
        ErrorCode::INVALID_PRODUCER_ID_MAPPING => {
            "The transaction is another producer's, or the request has batches of several."
        }
        ErrorCode::INVALID_PRODUCER_EPOCH => "The producer has a newer epoch.",
        _ => "The transaction's coordinator could not confirm the partition.",
    }
}

/// A request whose coordinator is being asked.
#[derive(Debug)]
pub struct Verifying {
    /// Number of the question.
    pub id: u64,
    /// When it gives up; monotonic milliseconds.
    pub deadline_ms: i64,
    /// Its parameters.
    pub params: ProduceParams,
    /// The request; positions count from the start of `frame`.
    pub request: ProduceRequest,
    /// Its bytes.
    pub frame: Vec<u8>,
    /// Verdicts on its batches.
    pub verdicts: Vec<Verdict>,
    /// What they have to show so far.
    pub proofs: Proofs,
    /// The connection closes after its reply.
    pub is_last: bool,
    /// In the order of the question.
    asked: Vec<OpenGuard>,
    _waiting: Waiting,
}

impl Verifying {
    /// The coordinator's answers; those that are missing did not come in time.
    pub fn answer(&mut self, errors: &[i16]) {
        let version = self.params.header.api_version;
        for (at, asked) in self.asked.iter_mut().enumerate() {
            let error = errors
                .get(at)
                .map_or(ErrorCode::NETWORK_EXCEPTION, |code| ErrorCode(*code));
            let proof = match error {
                ErrorCode::NONE if is_injected(Fault::EnterWithoutGuard) => Ok(Proof::Waived),
                ErrorCode::NONE => Ok(Proof::Guard {
                    number: asked.number,
                    begins_at_zero: version >= ENROLS_SINCE,
                }),
                error => Err(client_error(error, version)),
            };
            asked.is_kept = proof.map_or_else(is_repeated, |_| true);
            self.proofs.set(asked.position, proof);
        }
    }
}

/// The coordinator's error as the client's version knows it.
fn client_error(error: ErrorCode, version: i16) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE => {
            ErrorCode::INVALID_TXN_STATE
        }
        ErrorCode::CONCURRENT_TRANSACTIONS if version < ENROLS_SINCE => {
            ErrorCode::NOT_ENOUGH_REPLICAS
        }
        // All clients repeat a request after this one, and ask for no metadata first. "Not
        // attempted" is what a coordinator says of the others if it does not know one partition yet.
        ErrorCode::NETWORK_EXCEPTION
        | ErrorCode::OPERATION_NOT_ATTEMPTED
        | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        | ErrorCode::COORDINATOR_NOT_AVAILABLE
        | ErrorCode::NOT_COORDINATOR
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED => ErrorCode::INVALID_TXN_STATE,
        other => other,
    }
}

/// Whether the client sends its batches again after it, with the same sequences.
fn is_repeated(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_ENOUGH_REPLICAS | ErrorCode::CONCURRENT_TRANSACTIONS
    )
}

/// How a request goes on.
#[derive(Debug)]
pub enum Begun {
    /// Its batches may be appended as far as they can show this.
    Ready(Proofs),
    /// It waits.
    Held(Box<Verifying>),
}

/// Asks about the partitions of `cx.targets` in which the request begins a transaction. Takes
/// `cx.verdicts` if it waits.
pub fn begin(
    cx: &mut Context,
    request: &ProduceRequest,
    params: ProduceParams,
    is_last: bool,
    frame: &[u8],
) -> Begun {
    let Some(transactional_id) = request.transactional_id else {
        return Begun::Ready(Proofs::default());
    };
    let enrols = params.header.api_version >= ENROLS_SINCE;
    if !enrols && !cx.services.verifications.is_on() {
        return Begun::Ready(Proofs::all(Ok(Proof::Waived)));
    }
    let hash = hash(transactional_id.text(frame));
    let question = match look(cx, request, params, frame, hash) {
        Ok(question) => question,
        Err(error) => return Begun::Ready(Proofs::all(Err(error))),
    };
    let Question {
        producer,
        mut asked,
        mut proofs,
    } = question;
    let Some((producer_id, producer_epoch)) = producer.filter(|_| !asked.is_empty()) else {
        return Begun::Ready(proofs);
    };
    let bytes = frame.len();
    let Some((id, waiting)) = cx.services.verifications.begin(params.place, bytes) else {
        for guard in &mut asked {
            guard.is_kept = true;
            proofs.set(guard.position, Err(ErrorCode::NOT_ENOUGH_REPLICAS));
        }
        return Begun::Ready(proofs);
    };
    let name = |asked: &OpenGuard| {
        let item = Item::of(request, asked.position);
        (item.topic.name.text(frame).to_owned(), item.wanted.index)
    };
    cx.services
        .events
        .push(Event::VerifyTransaction(VerifyTransaction {
            id,
            transactional_id: transactional_id.text(frame).to_owned(),
            producer_id,
            producer_epoch,
            partitions: asked.iter().map(name).collect(),
            enrols,
        }));
    let now_ms = cx.now.mono_ms;
    let patience_ms = (params.since_ms + params.patience_ms).min(now_ms + WAIT_MAX_MS);
    Begun::Held(Box::new(Verifying {
        id,
        deadline_ms: patience_ms.max(now_ms + WAIT_MIN_MS),
        params,
        request: request.clone(),
        frame: frame.to_vec(),
        verdicts: std::mem::take(&mut cx.verdicts),
        proofs,
        is_last,
        asked,
        _waiting: waiting,
    }))
}

/// What to ask the coordinator.
struct Question {
    /// Id and epoch of the request's transactional batches; `None` without any.
    producer: Option<(i64, i16)>,
    asked: Vec<OpenGuard>,
    proofs: Proofs,
}

/// No guard is found by it alone: it keeps apart who does not know the transactional id.
fn hash(transactional_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    transactional_id.hash(&mut hasher);
    hasher.finish()
}

/// Opens the guards.
///
/// # Errors
/// The request has transactional batches of several producers.
fn look(
    cx: &Context,
    request: &ProduceRequest,
    params: ProduceParams,
    frame: &[u8],
    transactional_id: u64,
) -> Result<Question, ErrorCode> {
    let mut question = Question {
        producer: None,
        asked: Vec::new(),
        proofs: Proofs::default(),
    };
    for (position, wanted) in request.partitions.iter().enumerate() {
        let Some(info) = transactional(wanted, frame) else {
            continue;
        };
        let producer = (info.producer_id, info.producer_epoch);
        if *question.producer.get_or_insert(producer) != producer {
            return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        }
        // What else is wrong with a batch, its append tells.
        let is_fit =
            |partition: &&Arc<Partition>| !partition.topic.internal || params.may_write_internal;
        let target = cx.targets[position].as_ref().filter(is_fit);
        let Some(partition) = target.filter(|_| (-1..=1).contains(&params.acks)) else {
            continue;
        };
        match ask(partition, &info, transactional_id, cx.now.wall_ms) {
            Some(Verification::Needed(number)) => question.asked.push(OpenGuard {
                partition: Arc::clone(partition),
                owner: GuardOwner {
                    producer_id: info.producer_id,
                    epoch: info.producer_epoch,
                    transactional_id,
                },
                number,
                position,
                is_kept: false,
            }),
            Some(Verification::Full) => {
                let full = Err(ErrorCode::NOT_ENOUGH_REPLICAS);
                question.proofs.set(position, full);
            }
            Some(Verification::Unneeded) | None => {}
        }
    }
    Ok(question)
}

fn transactional(wanted: &ProducePartition, frame: &[u8]) -> Option<BatchInfo> {
    let header = BatchHeader::parse(wanted.records?.of(frame)).ok()?;
    (header.is_transactional() && header.has_producer()).then(|| BatchInfo::from_header(header))
}

/// `None` where the batch will be refused.
fn ask(
    partition: &Partition,
    info: &BatchInfo,
    transactional_id: u64,
    now_ms: i64,
) -> Option<Verification> {
    let mut state = partition.lock();
    if state.log_led()?.producers().needs_no_verification(info) {
        return Some(Verification::Unneeded);
    }
    let log = state.led().ok()?;
    log.begin_verification_of(info, transactional_id, now_ms)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_what_their_version_knows() {
        let told = |error, version| client_error(error, version);
        assert_eq!(
            told(ErrorCode::PRODUCER_FENCED, 12),
            ErrorCode::INVALID_PRODUCER_EPOCH
        );
        let abortable = ErrorCode::TRANSACTION_ABORTABLE;
        assert_eq!(told(abortable, 10), ErrorCode::INVALID_TXN_STATE);
        assert_eq!(told(abortable, 11), abortable);
        let concurrent = ErrorCode::CONCURRENT_TRANSACTIONS;
        assert_eq!(told(concurrent, 11), ErrorCode::NOT_ENOUGH_REPLICAS);
        assert_eq!(told(concurrent, 12), concurrent);
        let passing = [
            ErrorCode::NETWORK_EXCEPTION,
            ErrorCode::OPERATION_NOT_ATTEMPTED,
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::REQUEST_TIMED_OUT,
        ];
        for error in passing {
            assert_eq!(told(error, 12), ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        let mapping = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
        assert_eq!(told(mapping, 3), mapping);
    }

    #[test]
    fn proofs_are_of_their_positions() {
        let mut proofs = Proofs::all(Ok(Proof::OpenTransaction));
        proofs.set(2, Err(ErrorCode::INVALID_TXN_STATE));
        assert_eq!(proofs.of(1).unwrap(), Proof::OpenTransaction);
        assert_eq!(
            proofs.of(2).unwrap_err().error,
            ErrorCode::INVALID_TXN_STATE
        );
        assert_eq!(proofs.of(3).unwrap(), Proof::OpenTransaction);
    }
}
