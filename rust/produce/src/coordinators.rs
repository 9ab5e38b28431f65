//! Requests to the coordinators of transactional ids, repeated until they are answered.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pyrklog_client::{Address, Api, Client, Frame, api};
use pyrklog_wire::ErrorCode;
use pyrklog_wire::transactions::{
    AddPartitionsRequest, AddPartitionsResponse, AddPartitionsTopic, EndTxnRequest, EndTxnResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse,
    TRANSACTION_KEY,
};

use crate::error::{ErrorKind, ProduceError, Result, has_moved, is_passing};

/// The markers of a transaction take a few milliseconds.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Id and epoch of a producer.
pub(crate) type ProducerId = (i64, i16);

/// Partitions by topic.
pub(crate) type Partitions = Vec<(String, Vec<i32>)>;

/// Who coordinates which transactional id.
#[derive(Debug)]
pub(crate) struct Coordinators {
    known: HashMap<String, Address>,
    timeout: Duration,
}

impl Coordinators {
    /// Each question is tried for `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let known = HashMap::new();
        Coordinators { known, timeout }
    }

    /// A producer id; without a transactional id from any broker.
    ///
    /// # Errors
    /// Any.
    pub fn init(
        &mut self,
        client: &mut Client,
        transactional_id: Option<&str>,
        timeout_ms: i32,
    ) -> Result<ProducerId> {
        let request = InitProducerIdRequest {
            transactional_id,
            timeout_ms,
            producer_id: -1,
            producer_epoch: -1,
        };
        let (code, id) = self.ask(
            client,
            transactional_id,
            api::INIT_PRODUCER_ID,
            |out, version| request.encode(out, version),
            |frame| {
                let answer = InitProducerIdResponse::decode(frame.body(), frame.version)?;
                let id = (answer.producer_id, answer.producer_epoch);
                Ok((answer.error_code, id))
            },
        )?;
        match code {
            ErrorCode::NONE => Ok(id),
            ErrorCode::INVALID_TRANSACTION_TIMEOUT => {
                let text = format!(
                    "transaction.timeout.ms is {timeout_ms}, more than the brokers allow with \
                     transaction.max.timeout.ms"
                );
                Err(ProduceError::new(ErrorKind::Argument, text))
            }
            code => Err(ProduceError::of_code(
                code,
                &named("InitProducerId", transactional_id),
            )),
        }
    }

    /// Adds partitions to a transaction, or finds that they are in it. The first code of a partition
    /// that is not NONE.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn add_partitions(
        &mut self,
        client: &mut Client,
        id: &str,
        producer: ProducerId,
        partitions: &Partitions,
    ) -> Result<ErrorCode> {
        let topics = partitions
            .iter()
            .map(|(name, partitions)| AddPartitionsTopic {
                name,
                partitions: partitions.clone(),
            });
        let request = AddPartitionsRequest {
            transactional_id: id,
            producer_id: producer.0,
            producer_epoch: producer.1,
            topics: topics.collect(),
        };
        let asked: usize = partitions.iter().map(|(_, some)| 1 + some.len()).sum();
        let (code, ()) = self.ask(
            client,
            Some(id),
            api::ADD_PARTITIONS_TO_TXN,
            |out, version| request.encode(out, version),
            |frame| {
                let answer =
                    AddPartitionsResponse::decode_bounded(frame.body(), frame.version, asked)?;
                let all = answer.topics.iter().flat_map(|topic| &topic.partitions);
                let mut codes = all.map(|one| one.error_code).filter(|code| {
                    // Nothing was added because of another partition, whose code it is.
                    !code.is_none() && *code != ErrorCode::OPERATION_NOT_ATTEMPTED
                });
                Ok((codes.next().unwrap_or(ErrorCode::NONE), ()))
            },
        )?;
        Ok(code)
    }

    /// Commits or aborts. To do so twice is to do it once.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn end(
        &mut self,
        client: &mut Client,
        id: &str,
        producer: ProducerId,
        committed: bool,
    ) -> Result<ErrorCode> {
        let request = EndTxnRequest {
            transactional_id: id,
            producer_id: producer.0,
            producer_epoch: producer.1,
            committed,
        };
        let (code, ()) = self.ask(
            client,
            Some(id),
            api::END_TXN,
            |out, version| request.encode(out, version),
            |frame| {
                let answer = EndTxnResponse::decode(frame.body(), frame.version)?;
                Ok((answer.error_code, ()))
            },
        )?;
        Ok(code)
    }

    /// Asks until there is an answer that does not pass: its code is the first of what `decode`
    /// gives.
    fn ask<R>(
        &mut self,
        client: &mut Client,
        id: Option<&str>,
        api: Api,
        encode: impl Fn(&mut Vec<u8>, i16),
        decode: impl Fn(&Frame) -> pyrklog_wire::Result<(ErrorCode, R)>,
    ) -> Result<(ErrorCode, R)> {
        let until = Instant::now() + self.timeout;
        let mut wait = FIRST_WAIT;
        loop {
            let failure = match self.try_once(client, id, api, &encode, &decode) {
                Ok((code, answer)) if !is_passing(code) && !has_moved(code) => {
                    return Ok((code, answer));
                }
                Ok((code, _)) => {
                    if has_moved(code) {
                        self.forget(id);
                    }
                    ProduceError::of_code(code, &named(api.name, id))
                }
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    self.forget(id);
                    error
                }
                Err(error) => return Err(error),
            };
            if Instant::now() + wait >= until {
                let seconds = self.timeout.as_secs_f64();
                let text = format!("not answered within {seconds:.1} s: {failure}");
                return Err(ProduceError::new(ErrorKind::Unavailable, text));
            }
            client.cancel().clone().sleep(wait)?;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    fn try_once<R>(
        &mut self,
        client: &mut Client,
        id: Option<&str>,
        api: Api,
        encode: &impl Fn(&mut Vec<u8>, i16),
        decode: &impl Fn(&Frame) -> pyrklog_wire::Result<(ErrorCode, R)>,
    ) -> Result<(ErrorCode, R)> {
        let frame = match id {
            Some(id) => {
                let address = self.find(client, id)?;
                client.ask(&address, api, encode)?
            }
            None => ask_any(client, api, encode)?,
        };
        decode(&frame).map_err(|error| {
            let text = format!("a broker does not follow Kafka's protocol: {error}");
            ProduceError::new(ErrorKind::Protocol, text)
        })
    }

    fn forget(&mut self, id: Option<&str>) {
        if let Some(id) = id {
            self.known.remove(id);
        }
    }

    fn find(&mut self, client: &mut Client, id: &str) -> Result<Address> {
        if let Some(address) = self.known.get(id) {
            return Ok(address.clone());
        }
        let request = FindCoordinatorRequest {
            key: id,
            key_type: TRANSACTION_KEY,
        };
        let frame = ask_any(client, api::FIND_COORDINATOR, |out, version| {
            request.encode(out, version)
        })?;
        let answer = FindCoordinatorResponse::decode(frame.body(), frame.version);
        let answer = answer.map_err(|error| {
            let text = format!("a broker does not follow Kafka's protocol: {error}");
            ProduceError::new(ErrorKind::Protocol, text)
        })?;
        let code = answer.error_code;
        if has_moved(code) || is_passing(code) {
            let text = format!("FindCoordinator for {id}: {code}");
            return Err(ProduceError::new(ErrorKind::Unavailable, text));
        }
        let port = u16::try_from(answer.port).unwrap_or_default();
        if !code.is_none() || port == 0 {
            return Err(ProduceError::of_code(
                code,
                &named("FindCoordinator", Some(id)),
            ));
        }
        let host = answer.host.to_owned();
        let address = Address { host, port };
        self.known.insert(id.to_owned(), address.clone());
        Ok(address)
    }
}

/// Asks one broker after the other until one answers.
pub(crate) fn ask_any(
    client: &mut Client,
    api: Api,
    encode: impl Fn(&mut Vec<u8>, i16),
) -> Result<Frame> {
    let mut last = ProduceError::new(ErrorKind::Unavailable, "no broker to ask");
    for address in client.addresses() {
        match client.ask(&address, api, &encode) {
            Ok(frame) => return Ok(frame),
            Err(error) if error.is_retriable() => last = error.into(),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last)
}

fn named(api: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("{api} of transactional id {id}"),
        None => api.to_owned(),
    }
}
