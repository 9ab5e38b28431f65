//! Asks a cluster, and waits for the answers.

use std::collections::{HashMap, HashSet};

use pyrklog_wire::ErrorCode;
use pyrklog_wire::list_offsets::ListOffsetsResponse;
use pyrklog_wire::metadata::{MetadataRequest, MetadataResponse};
use pyrklog_wire::offset_for_leader_epoch::EpochResponse;

use crate::config::{Address, ClientConfig};
use crate::connection::{Connection, Frame};
use crate::error::{ClientError, Result};
use crate::metadata::{self, Metadata};
use crate::offsets::{self, EpochEnd, EpochQuery, Isolation, OffsetAnswer, OffsetQuery};
use crate::open;
use crate::versions::{Api, api};
use crate::wake::Cancel;

/// Idle connections that are kept.
const CONNECTIONS_MAX: usize = 64;
/// Brokers, topics, partitions and replicas of Metadata: 400,000 partitions with three replicas,
/// which are named in sync as well.
const METADATA_ELEMENTS_MAX: usize = 3_200_000;
/// Brokers of a cluster. Each takes more memory than on the wire.
const BROKERS_MAX: usize = 100_000;

/// What takes the answer about a topic's partition.
type Found<'f, A> = &'f mut dyn FnMut(&str, i32, A);

/// A client of one cluster, for one thread.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    cancel: Cancel,
    metadata: Metadata,
    /// Who gave it.
    metadata_from: Option<Address>,
    /// Brokers whose metadata was out of date, the latest one last.
    doubted: Vec<Address>,
    connections: HashMap<Address, Connection>,
    /// Brokers that could not be reached a moment ago: the next question is not for them.
    away: HashSet<Address>,
}

/// Opens connections for a client's caller, on any thread.
#[derive(Clone, Debug)]
pub struct Opener {
    config: ClientConfig,
    cancel: Cancel,
}

impl Opener {
    /// A connection of the caller's own. Blocks for as long as `connect_timeout`.
    ///
    /// # Errors
    /// As of every question.
    pub fn open(&self, address: &Address) -> Result<Connection> {
        open::open(address, &self.config, &self.cancel)
    }
}

impl Client {
    /// Connects when the first question is asked.
    pub fn new(config: ClientConfig, cancel: Cancel) -> Client {
        Client {
            config,
            cancel,
            metadata: Metadata::default(),
            metadata_from: None,
            doubted: Vec::new(),
            connections: HashMap::new(),
            away: HashSet::new(),
        }
    }

    /// What ends all waits of this client.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The last metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What opens connections elsewhere.
    pub fn opener(&self) -> Opener {
        Opener {
            config: self.config.clone(),
            cancel: self.cancel.clone(),
        }
    }

    /// The leaders of these partitions that a question would be sent to on a new connection, each
    /// once.
    pub fn unconnected<'a>(&self, places: impl Iterator<Item = (&'a str, i32)>) -> Vec<Address> {
        let mut seen = HashSet::new();
        places
            .filter_map(|(topic, partition)| self.metadata.leader(topic, partition))
            .map(|leader| &leader.address)
            .filter(|address| !self.connections.contains_key(address) && seen.insert(*address))
            .cloned()
            .collect()
    }

    /// What became of an opening elsewhere. Without a connection the broker is left out of the next
    /// question for leaders, instead of being waited for again.
    pub fn opened(&mut self, address: Address, connection: Option<Connection>) {
        match connection {
            None => {
                self.away.insert(address);
            }
            Some(connection) if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.insert(address, connection);
            }
            Some(_) => {}
        }
    }

    /// The last metadata is out of date: its broker, whose address is returned, is asked for the
    /// next ones after all others.
    pub fn doubt(&mut self) -> Option<&Address> {
        let from = self.metadata_from.clone()?;
        let known: HashSet<Address> = self.addresses().into_iter().collect();
        self.doubted
            .retain(|one| *one != from && known.contains(one));
        self.doubted.push(from);
        self.doubted.last()
    }

    /// Asks one broker after the other for `topics`, until one answers: those that are known, then
    /// the bootstrap servers; those that were [doubted](Client::doubt) last.
    ///
    /// # Errors
    /// The last broker's; `Unsupported`, `Tls` and `Authentication` at once.
    pub fn refresh(&mut self, topics: &[&str]) -> Result<&Metadata> {
        let of_topics = |response: &MetadataResponse<'_>| Metadata::of(response, topics);
        let (address, found) = self.ask_any(&metadata::request(topics), of_topics)?;
        self.metadata = found;
        self.metadata_from = Some(address);
        Ok(&self.metadata)
    }

    /// The names of all topics, sorted, without those that brokers keep for themselves. Asks as
    /// [`Client::refresh`].
    ///
    /// # Errors
    /// As [`Client::refresh`].
    pub fn topic_names(&mut self) -> Result<Vec<String>> {
        Ok(self.ask_any(&metadata::request_all(), metadata::names)?.1)
    }

    /// Asks for metadata, and gives who answered.
    fn ask_any<T>(
        &mut self,
        request: &MetadataRequest<'_>,
        read: impl Fn(&MetadataResponse<'_>) -> T,
    ) -> Result<(Address, T)> {
        let mut last = None;
        for address in self.addresses() {
            let asked = self.ask(&address, api::METADATA, |out, version| {
                request.encode(out, version)
            });
            let decoded = asked.and_then(|frame| {
                let name = address.to_string();
                let limit = METADATA_ELEMENTS_MAX;
                let response = MetadataResponse::decode_bounded(frame.body(), frame.version, limit)
                    .map_err(ClientError::decode(&name))?;
                match response.head.brokers.len() > BROKERS_MAX {
                    true => Err(ClientError::protocol(&name, "it names too many brokers")),
                    false => Ok(read(&response)),
                }
            });
            match decoded {
                Ok(found) => return Ok((address, found)),
                // A password is not tried at every broker.
                Err(
                    error @ (ClientError::Cancelled
                    | ClientError::Unsupported { .. }
                    | ClientError::Tls { .. }
                    | ClientError::Authentication { .. }),
                ) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ClientError::Config("no broker to ask".into())))
    }

    /// Asks the leaders for offsets. A partition without an answer has an error code: that of its
    /// leader, or LEADER_NOT_AVAILABLE if there is none or it cannot be reached. Each partition is
    /// asked about once at most.
    ///
    /// # Errors
    /// `Cancelled`, `Unsupported`, `Protocol`.
    pub fn list_offsets(
        &mut self,
        isolation: Isolation,
        queries: &[OffsetQuery],
    ) -> Result<Vec<OffsetAnswer>> {
        let unanswered = OffsetAnswer {
            error: ErrorCode::LEADER_NOT_AVAILABLE,
            offset: -1,
            leader_epoch: -1,
        };
        let encode = |queries: &[&OffsetQuery], out: &mut Vec<u8>, version| {
            offsets::list_offsets(isolation, queries).encode(out, version);
        };
        let decode = |frame: &Frame, most: usize, found: Found<'_, OffsetAnswer>| {
            let response = ListOffsetsResponse::decode_bounded(frame.body(), frame.version, most)?;
            for topic in &response.topics {
                for one in &topic.partitions {
                    let answer = OffsetAnswer {
                        error: one.error_code,
                        offset: one.offset,
                        leader_epoch: one.leader_epoch,
                    };
                    found(topic.name, one.index, answer);
                }
            }
            Ok(())
        };
        self.ask_leaders(
            api::LIST_OFFSETS,
            queries,
            OffsetQuery::place,
            unanswered,
            encode,
            decode,
        )
    }

    /// Asks the leaders for the ends of epochs; answers as of [`Client::list_offsets`].
    ///
    /// # Errors
    /// `Cancelled`, `Unsupported` before Kafka 2.3, `Protocol`.
    pub fn epoch_ends(&mut self, queries: &[EpochQuery]) -> Result<Vec<EpochEnd>> {
        let unanswered = EpochEnd {
            error: ErrorCode::LEADER_NOT_AVAILABLE,
            leader_epoch: -1,
            end_offset: -1,
        };
        let decode = |frame: &Frame, most: usize, found: Found<'_, EpochEnd>| {
            let response = EpochResponse::decode_bounded(frame.body(), frame.version, most)?;
            for topic in &response.topics {
                for one in &topic.partitions {
                    let answer = EpochEnd {
                        error: one.error_code,
                        leader_epoch: one.leader_epoch,
                        end_offset: one.end_offset,
                    };
                    found(topic.name, one.index, answer);
                }
            }
            Ok(())
        };
        let api = api::OFFSET_FOR_LEADER_EPOCH;
        self.ask_leaders(
            api,
            queries,
            EpochQuery::place,
            unanswered,
            offsets::encode_epochs,
            decode,
        )
    }

    /// Sends one request to each leader, with the queries of its partitions. `decode` gets the most
    /// elements of an answer, and what to call with each of them.
    fn ask_leaders<Q, A: Copy>(
        &mut self,
        api: Api,
        queries: &[Q],
        place: impl Fn(&Q) -> (&str, i32),
        unanswered: A,
        encode: impl Fn(&[&Q], &mut Vec<u8>, i16),
        decode: impl Fn(&Frame, usize, Found<'_, A>) -> pyrklog_wire::Result<()>,
    ) -> Result<Vec<A>> {
        let mut places: HashMap<(&str, i32), usize> = HashMap::new();
        let mut by_leader: HashMap<Address, Vec<usize>> = HashMap::new();
        for (number, query) in queries.iter().enumerate() {
            let (topic, partition) = place(query);
            if *places.entry((topic, partition)).or_insert(number) != number {
                continue;
            }
            if let Some(leader) = self.metadata.leader(topic, partition) {
                let numbers = by_leader.entry(leader.address.clone()).or_default();
                numbers.push(number);
            }
        }
        let mut answers = vec![unanswered; queries.len()];
        let away = std::mem::take(&mut self.away);
        for (address, numbers) in by_leader {
            if away.contains(&address) {
                continue;
            }
            let asked: Vec<&Q> = numbers.iter().map(|number| &queries[*number]).collect();
            // Each partition in a topic of its own.
            let elements_max = 2 * asked.len();
            let sent = self.ask(&address, api, |out, version| encode(&asked, out, version));
            match sent {
                Ok(frame) => {
                    let mut found = |topic: &str, partition: i32, answer: A| {
                        // What this leader was not asked for is dropped, before it costs memory.
                        if let Some(number) = places.get(&(topic, partition))
                            && numbers.binary_search(number).is_ok()
                        {
                            answers[*number] = answer;
                        }
                    };
                    decode(&frame, elements_max, &mut found)
                        .map_err(ClientError::decode(&address.to_string()))?;
                }
                // The next metadata may name another leader.
                Err(error) if error.is_retriable() => {}
                Err(error) => return Err(error),
            }
        }
        let answer = |query| places.get(&place(query)).map(|number| answers[*number]);
        Ok(queries
            .iter()
            .map(|one| answer(one).unwrap_or(unanswered))
            .collect())
    }

    /// Asks the broker at `address`, on a connection that is kept unless it fails.
    ///
    /// # Errors
    /// As [`Connection::exchange`], `Unsupported`.
    pub fn ask(
        &mut self,
        address: &Address,
        api: Api,
        body: impl FnOnce(&mut Vec<u8>, i16),
    ) -> Result<Frame> {
        self.cancel.check()?;
        let mut connection = match self.connections.remove(address) {
            Some(connection) => connection,
            None => open::open(address, &self.config, &self.cancel)?,
        };
        let version = connection.version(api)?;
        let timeout = self.config.request_timeout;
        let frame = connection.exchange(api, version, timeout, &self.cancel, body)?;
        if self.connections.len() < CONNECTIONS_MAX {
            self.connections.insert(address.clone(), connection);
        }
        Ok(frame)
    }

    /// Whom to ask for what every broker knows, each once.
    pub fn addresses(&self) -> Vec<Address> {
        let connected = self.connections.keys().cloned();
        let known = self.metadata.brokers.values();
        let known = known.map(|broker| broker.address.clone());
        let all = connected.chain(known).chain(self.config.bootstrap.clone());
        let mut seen = HashSet::new();
        let mut found: Vec<Address> = all.filter(|one| seen.insert(one.clone())).collect();
        let doubts = |address: &Address| self.doubted.iter().position(|one| one == address);
        found.sort_by_cached_key(|address| doubts(address).map_or(0, |at| at + 1));
        found
    }
}
