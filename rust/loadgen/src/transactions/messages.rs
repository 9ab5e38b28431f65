//! Requests of transactional producers and their replies, in the versions of Kafka 3.9's clients;
//! those of transaction version 2 are Kafka 4's.

use crate::error::{Failure, Result};
use crate::messages::{Api, open, write_frame};
use pyrklog_wire::api::key;
use pyrklog_wire::{ErrorCode, Reader, Writer};

const FIND_COORDINATOR: Api = (key::FIND_COORDINATOR, 6);
const INIT_PRODUCER_ID: Api = (key::INIT_PRODUCER_ID, 5);
const ADD_PARTITIONS_TO_TXN: Api = (key::ADD_PARTITIONS_TO_TXN, 3);
const END_TXN: Api = (key::END_TXN, 4);
/// EndTxn that gives the producer's next id and epoch (KIP-890 part 2).
const END_TXN_BUMPS: Api = (key::END_TXN, 5);
const TRANSACTION_KEYS: i8 = 1;
const TRANSACTION_TIMEOUT_MS: i32 = 60_000;
/// Requests other than Produce carry it; they have no place in a ring.
const CORRELATION_ID: i32 = i32::MAX;

/// Id and epoch of a producer.
pub type ProducerId = (i64, i16);

/// Which protocol of transactions (`transaction.version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionVersion {
    /// Partitions are enrolled by a request of their own; the epoch stays (KIP-98).
    V1,
    /// Produce enrolls its partition; each end bumps the epoch (KIP-890 part 2).
    V2,
}

/// The coordinator still ends the last transaction, or has just come: worth another attempt.
pub fn is_passing(code: ErrorCode) -> bool {
    [
        ErrorCode::CONCURRENT_TRANSACTIONS,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_COORDINATOR,
    ]
    .contains(&code)
}

/// `Ok` without an error; `NotYet` for one that passes.
///
/// # Errors
/// The code, as a failure of `what`.
pub fn check(code: ErrorCode, what: &str) -> Result<()> {
    let text = || format!("{what}: {code}");
    match code {
        ErrorCode::NONE => Ok(()),
        code if is_passing(code) => Err(Failure::NotYet(text())),
        _ => Err(Failure::Refused(text())),
    }
}

fn frame(api: Api, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, api, CORRELATION_ID, |out, _| {
        let mut writer = Writer::new(out, true);
        body(&mut writer);
        writer.no_tags();
    });
    out
}

/// A reader behind the throttle time.
fn reply(frame: &[u8], api: Api) -> Result<Reader<'_>> {
    let (correlation_id, body) = open(frame, api)?;
    if correlation_id != CORRELATION_ID {
        return Err(Failure::Protocol(format!(
            "a reply carries correlation id {correlation_id}, {CORRELATION_ID} was expected"
        )));
    }
    let mut reader = Reader::new(body, true);
    reader.i32()?;
    Ok(reader)
}

/// Asks for the coordinator of a transactional id.
pub fn find_coordinator_request(transactional_id: &str) -> Vec<u8> {
    frame(FIND_COORDINATOR, |writer| {
        writer.i8(TRANSACTION_KEYS);
        writer.array(&[transactional_id], |writer, id| writer.string(id));
    })
}

/// The coordinator's address.
///
/// # Errors
/// `NotYet` while there is none, another error code, an invalid reply.
pub fn find_coordinator_reply(frame: &[u8]) -> Result<String> {
    let mut reader = reply(frame, FIND_COORDINATOR)?;
    if reader.array_len(16)? != 1 {
        let text = "FindCoordinator did not answer for the one id asked";
        return Err(Failure::Protocol(text.into()));
    }
    reader.string()?;
    reader.i32()?;
    let (host, port) = (reader.string()?, reader.i32()?);
    check(reader.error_code()?, "FindCoordinator")?;
    Ok(format!("{host}:{port}"))
}

/// Asks for a producer id; without a transactional id for an idempotent producer.
pub fn init_producer_id_request(transactional_id: Option<&str>) -> Vec<u8> {
    frame(INIT_PRODUCER_ID, |writer| {
        writer.nullable_string(transactional_id);
        writer.i32(TRANSACTION_TIMEOUT_MS);
        writer.i64(-1);
        writer.i16(-1);
    })
}

/// The producer's id and epoch.
///
/// # Errors
/// `NotYet` while an earlier transaction ends, another error code, an invalid reply.
pub fn init_producer_id_reply(frame: &[u8]) -> Result<ProducerId> {
    let mut reader = reply(frame, INIT_PRODUCER_ID)?;
    check(reader.error_code()?, "InitProducerId")?;
    Ok((reader.i64()?, reader.i16()?))
}

/// Enrolls partitions of one topic in a transaction.
pub fn add_partitions_request(
    transactional_id: &str,
    (id, epoch): ProducerId,
    topic: &str,
    partitions: &[i32],
) -> Vec<u8> {
    frame(ADD_PARTITIONS_TO_TXN, |writer| {
        writer.string(transactional_id);
        writer.i64(id);
        writer.i16(epoch);
        writer.array(&[topic], |writer, topic| {
            writer.string(topic);
            writer.array(partitions, |writer, index| writer.i32(*index));
            writer.no_tags();
        });
    })
}

/// The first error code of a partition.
///
/// # Errors
/// An invalid reply.
pub fn add_partitions_reply(frame: &[u8]) -> Result<ErrorCode> {
    let mut reader = reply(frame, ADD_PARTITIONS_TO_TXN)?;
    let topics = reader.array(3, |reader| {
        reader.string()?;
        let codes = reader.array(7, |reader| {
            reader.i32()?;
            let code = reader.error_code()?;
            reader.skip_tags()?;
            Ok(code)
        })?;
        reader.skip_tags()?;
        Ok(codes)
    })?;
    let mut failed = topics.into_iter().flatten().filter(|code| !code.is_none());
    Ok(failed.next().unwrap_or(ErrorCode::NONE))
}

/// Commits or aborts.
pub fn end_request(
    version: TransactionVersion,
    transactional_id: &str,
    (id, epoch): ProducerId,
    is_commit: bool,
) -> Vec<u8> {
    frame(end_api(version), |writer| {
        writer.string(transactional_id);
        writer.i64(id);
        writer.i16(epoch);
        writer.bool(is_commit);
    })
}

/// The error code, and from version 2 on the producer of the next transaction.
///
/// # Errors
/// An invalid reply.
pub fn end_reply(
    version: TransactionVersion,
    frame: &[u8],
) -> Result<(ErrorCode, Option<ProducerId>)> {
    let mut reader = reply(frame, end_api(version))?;
    let code = reader.error_code()?;
    Ok(match version {
        TransactionVersion::V1 => (code, None),
        TransactionVersion::V2 => (code, Some((reader.i64()?, reader.i16()?))),
    })
}

fn end_api(version: TransactionVersion) -> Api {
    match version {
        TransactionVersion::V1 => END_TXN,
        TransactionVersion::V2 => END_TXN_BUMPS,
    }
}
