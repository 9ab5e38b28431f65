//! One connection to a broker: frames out, frames in, never blocking.
//!
//! A frame's memory grows with the bytes that arrive, so that a lying length costs nothing. Frames
//! above the connection's limit wait in the socket until the owner allows them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyrklog_wire::frame::LENGTH_LEN;
use pyrklog_wire::header::parse_response_header;
use pyrklog_wire::sasl::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use pyrklog_wire::{ErrorCode, RequestHeader};

use crate::error::{ClientError, Result};
use crate::sasl::{Credentials, Exchange, line};
use crate::tls;
use crate::transport::Transport;
use crate::versions::{Api, ApiRanges, api};
use crate::wake::{Cancel, Ready, wait, wait_failed};

/// A frame longer than this is another protocol, or an attack.
const FRAME_BYTES_MAX: usize = 1 << 30;
/// Memory for a frame that is longer than the limit, before more of it has arrived.
const FIRST_STEP_BYTES: usize = 256 * 1024;

/// Of a listener.
const MECHANISMS_MAX: usize = 1000;
/// A session is prolonged after this part of its life, as by Java's clients at the earliest.
const REAUTHENTICATE_PERCENT: u32 = 85;
/// Kafka refuses to authenticate again within a second.
const REAUTHENTICATE_MIN: Duration = Duration::from_millis(1100);

/// What [`Connection::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// No whole frame so far.
    Nothing,
    /// A frame: [`Connection::take_frame`] gives it.
    Frame,
    /// A frame of so many bytes, more than the limit: it stays in the socket until
    /// [`Connection::set_frame_limit`] allows it.
    TooLong(usize),
}

/// A whole response.
#[derive(Debug)]
pub struct Frame {
    /// Its bytes, with the length.
    pub bytes: Vec<u8>,
    /// Where the body begins.
    pub body_at: usize,
    /// API key of the request.
    pub api_key: i16,
    /// Version of both.
    pub version: i16,
}

impl Frame {
    /// The response without its header.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_at..]
    }
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    correlation_id: i32,
    api_key: i16,
    version: i16,
}

/// A connection whose broker has told its versions.
#[derive(Debug)]
pub struct Connection {
    transport: Transport,
    address: Arc<str>,
    client_id: Arc<str>,
    ranges: ApiRanges,
    correlation_id: i32,
    expected: VecDeque<Expected>,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    frame_limit: usize,
    credentials: Option<Credentials>,
    /// Authentication under way: requests wait in `held`.
    exchange: Option<Exchange>,
    /// Whether the broker has answered more than the question for its versions.
    is_known: bool,
    /// When to authenticate again (KIP-368).
    again_at: Option<Instant>,
    held: Vec<u8>,
    held_expected: VecDeque<Expected>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl Connection {
    pub(crate) fn new(transport: Transport, address: &str, client_id: &str, limit: usize) -> Self {
        Connection {
            transport,
            address: address.into(),
            client_id: client_id.into(),
            ranges: ApiRanges::default(),
            correlation_id: 0,
            expected: VecDeque::new(),
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            filled: 0,
            frame_limit: limit,
            credentials: None,
            exchange: None,
            is_known: false,
            again_at: None,
            held: Vec::new(),
            held_expected: VecDeque::new(),
        }
    }

    pub(crate) fn set_ranges(&mut self, ranges: ApiRanges) {
        self.ranges = ranges;
    }

    /// The broker's versions.
    pub fn ranges(&self) -> &ApiRanges {
        &self.ranges
    }

    /// The broker's address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The version of `api` to use.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn version(&self, api: Api) -> Result<i16> {
        self.ranges.choose(api, &self.address)
    }

    /// How many bytes a frame may have.
    pub fn set_frame_limit(&mut self, bytes: usize) {
        self.frame_limit = bytes;
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.expected.len() + self.held_expected.len()
    }

    /// Whether what came instead of a frame is what TLS says to those who do not speak it.
    pub(crate) fn begins_with_tls_alert(&self) -> bool {
        self.input[..self.filled].starts_with(&[21, 3])
    }

    /// Bytes of the next frame that have arrived.
    pub fn received(&self) -> usize {
        self.filled
    }

    /// Writes a request behind those that are not sent yet. `body` gets the version. If the session
    /// ends soon, authentication goes before it, without blocking.
    ///
    /// # Errors
    /// `Protocol` for a request of 2 GiB; `Authentication`.
    pub fn push(
        &mut self,
        api_key: i16,
        version: i16,
        body: impl FnOnce(&mut Vec<u8>, i16),
    ) -> Result<()> {
        self.authenticate_again()?;
        let is_held = self.exchange.is_some();
        self.write(is_held, api_key, version, body)
    }

    fn write(
        &mut self,
        is_held: bool,
        api_key: i16,
        version: i16,
        body: impl FnOnce(&mut Vec<u8>, i16),
    ) -> Result<()> {
        // What is sent makes room, also if the socket never takes all at once.
        if self.sent >= self.out.len() / 2 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        self.correlation_id = self.correlation_id.wrapping_add(1) & i32::MAX;
        let header = RequestHeader {
            api_key,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some(&self.client_id),
        };
        let (out, expected) = match is_held {
            true => (&mut self.held, &mut self.held_expected),
            false => (&mut self.out, &mut self.expected),
        };
        header
            .encode_frame(out, |out| body(out, version))
            .map_err(|error| ClientError::protocol(&self.address, error))?;
        expected.push_back(Expected {
            correlation_id: self.correlation_id,
            api_key,
            version,
        });
        Ok(())
    }

    /// Sends what the socket takes. True when all is sent.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn flush(&mut self) -> Result<bool> {
        while self.sent < self.out.len() {
            match self.transport.write(&self.out[self.sent..]) {
                Ok(0) => return Ok(false),
                Ok(sent) => self.sent += sent,
                Err(source) => return Err(self.failed("cannot send", source)),
            }
        }
        let flushed = self.transport.flush();
        flushed.map_err(|source| self.failed("cannot send", source))
    }

    /// What to wait for.
    pub fn interest(&self) -> Ready {
        self.transport.interest(self.sent < self.out.len())
    }

    /// Receives what is there, up to the end of one frame.
    ///
    /// # Errors
    /// The connection is gone, or what comes is no answer.
    pub fn receive(&mut self) -> Result<Arrival> {
        loop {
            let wanted = match self.frame_len()? {
                None => LENGTH_LEN,
                Some(len) if len > self.frame_limit => return Ok(Arrival::TooLong(len)),
                Some(len) if self.filled == LENGTH_LEN + len => {
                    if !self.awaits_authentication() {
                        return Ok(Arrival::Frame);
                    }
                    let frame = self.take_frame()?;
                    self.authenticated(&frame)?;
                    self.flush()?;
                    continue;
                }
                Some(len) => LENGTH_LEN + len,
            };
            self.make_room(wanted);
            let until = wanted.min(self.input.len());
            let space = &mut self.input[self.filled..until];
            match self.transport.read(space) {
                Ok(None) => return Ok(Arrival::Nothing),
                Ok(Some(0)) => {
                    let closed =
                        io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed it");
                    return Err(self.lost(closed));
                }
                Ok(Some(received)) => self.filled += received,
                Err(source) => return Err(self.lost(source)),
            }
        }
    }

    /// The frame after [`Arrival::Frame`]. [`Connection::give_back`] reuses its memory.
    ///
    /// # Errors
    /// `Protocol` for an answer to no request.
    pub fn take_frame(&mut self) -> Result<Frame> {
        let expected = self.expected.pop_front();
        let expected = expected
            .ok_or_else(|| ClientError::protocol(&self.address, "an answer without a request"))?;
        let mut bytes = std::mem::take(&mut self.input);
        bytes.truncate(self.filled);
        self.filled = 0;
        self.is_known |= expected.api_key != api::API_VERSIONS.key;
        let header = &bytes[LENGTH_LEN..];
        let parsed = parse_response_header(header, expected.api_key, expected.version);
        let (correlation_id, body_at) = parsed.map_err(ClientError::decode(&self.address))?;
        if correlation_id != expected.correlation_id {
            return Err(ClientError::protocol(
                &self.address,
                "an answer to another request",
            ));
        }
        Ok(Frame {
            bytes,
            body_at: LENGTH_LEN + body_at,
            api_key: expected.api_key,
            version: expected.version,
        })
    }

    /// Takes a frame's memory for later ones, unless it is longer than `keep` bytes.
    pub fn give_back(&mut self, frame: Frame, keep: usize) {
        if self.input.is_empty() && frame.bytes.capacity() <= keep {
            self.input = frame.bytes;
        }
    }

    /// Sends one request and waits for the answer.
    ///
    /// # Errors
    /// As [`Connection::receive`], `TimedOut`, `Cancelled`.
    pub fn exchange(
        &mut self,
        api: Api,
        version: i16,
        timeout: Duration,
        cancel: &Cancel,
        body: impl FnOnce(&mut Vec<u8>, i16),
    ) -> Result<Frame> {
        self.push(api.key, version, body)?;
        let until = Instant::now() + timeout;
        loop {
            cancel.check()?;
            self.flush()?;
            match self.receive()? {
                Arrival::Frame => return self.take_frame(),
                Arrival::TooLong(len) => {
                    let limit = self.frame_limit;
                    let reason = format!("an answer of {len} bytes, the limit is {limit}");
                    return Err(ClientError::protocol(&self.address, reason));
                }
                Arrival::Nothing => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut {
                    address: self.address.to_string(),
                    doing: api.name,
                    seconds: timeout.as_secs_f64(),
                });
            }
            let files = [
                (self.as_fd(), self.interest()),
                (cancel.as_fd(), Ready::Read),
            ];
            wait(&files, left).map_err(wait_failed)?;
        }
    }

    /// Begins to authenticate; [`Connection::receive`] goes on with it. Blocks while a token is asked
    /// for.
    pub(crate) fn authenticate(&mut self, credentials: &Credentials) -> Result<()> {
        let exchange = credentials.begin();
        let exchange = exchange.map_err(|reason| refused(&self.address, credentials, reason))?;
        self.credentials = Some(credentials.clone());
        self.start(exchange)
    }

    /// Whether requests wait for authentication.
    pub(crate) fn is_authenticating(&self) -> bool {
        self.exchange.is_some()
    }

    fn authenticate_again(&mut self) -> Result<()> {
        let is_due = self.again_at.is_some_and(|at| at <= Instant::now());
        let Some(credentials) = self.credentials.as_ref().filter(|_| is_due) else {
            return Ok(());
        };
        let begun = credentials.try_begin();
        match begun.map_err(|reason| refused(&self.address, credentials, reason))? {
            Some(exchange) => self.start(exchange),
            // The session goes on until the token is there.
            None => Ok(()),
        }
    }

    fn start(&mut self, exchange: Exchange) -> Result<()> {
        let mechanism = exchange.mechanism;
        self.again_at = None;
        self.exchange = Some(exchange);
        let version = self.version(api::SASL_HANDSHAKE)?;
        self.write(false, api::SASL_HANDSHAKE.key, version, |out, version| {
            SaslHandshakeRequest { mechanism }.encode(out, version);
        })
    }

    fn awaits_authentication(&self) -> bool {
        let own = [api::SASL_HANDSHAKE.key, api::SASL_AUTHENTICATE.key];
        let next = self.expected.front();
        next.is_some_and(|expected| own.contains(&expected.api_key))
    }

    /// An answer to the handshake, or to a message of the mechanism.
    fn authenticated(&mut self, frame: &Frame) -> Result<()> {
        let address = Arc::clone(&self.address);
        let Some(mut exchange) = self.exchange.take() else {
            return Err(ClientError::protocol(
                &address,
                "an answer to no authentication",
            ));
        };
        let mechanism = exchange.mechanism;
        let failed = |reason| ClientError::Authentication {
            address: address.to_string(),
            mechanism,
            reason,
        };
        let message = if frame.api_key == api::SASL_HANDSHAKE.key {
            let answer =
                SaslHandshakeResponse::decode_bounded(frame.body(), frame.version, MECHANISMS_MAX)
                    .map_err(ClientError::decode(&address))?;
            handshake_refusal(&answer).map_or(Ok(()), |reason| Err(failed(reason)))?;
            Some(exchange.first())
        } else {
            let answer = SaslAuthenticateResponse::decode(frame.body(), frame.version)
                .map_err(ClientError::decode(&address))?;
            if !answer.error_code.is_none() {
                let text = answer.error_message.map(line);
                let text = text.unwrap_or_else(|| answer.error_code.to_string());
                return Err(failed(format!(
                    "it refuses {}: {text}",
                    exchange.settings()
                )));
            }
            self.again_at = again_at(answer.session_lifetime_ms);
            let challenge = answer.auth_bytes.unwrap_or_default();
            exchange.challenge(challenge).map_err(failed)?
        };
        let Some(message) = message else {
            self.out.append(&mut self.held);
            self.expected.append(&mut self.held_expected);
            return Ok(());
        };
        self.exchange = Some(exchange);
        let version = self.version(api::SASL_AUTHENTICATE)?;
        let key = api::SASL_AUTHENTICATE.key;
        self.write(false, key, version, |out, version| {
            let auth_bytes = Some(&message[..]);
            SaslAuthenticateRequest { auth_bytes }.encode(out, version);
        })
    }

    fn frame_len(&self) -> Result<Option<usize>> {
        let Some(prefix) = self.input[..self.filled].first_chunk::<LENGTH_LEN>() else {
            return Ok(None);
        };
        let announced = i32::from_be_bytes(*prefix);
        match usize::try_from(announced) {
            Ok(len) if (LENGTH_LEN..=FRAME_BYTES_MAX).contains(&len) => Ok(Some(len)),
            _ => Err(ClientError::protocol(
                &self.address,
                pyrklog_wire::DecodeError::BadFrameLength {
                    announced,
                    limit: FRAME_BYTES_MAX,
                },
            )),
        }
    }

    /// Makes the buffer longer, towards `wanted` bytes: what has arrived doubles it.
    fn make_room(&mut self, wanted: usize) {
        if self.input.len() >= wanted {
            return;
        }
        let step = (2 * self.filled).max(FIRST_STEP_BYTES);
        if self.filled == self.input.len() || self.input.is_empty() {
            let len = wanted.min(step);
            self.input.reserve_exact(len - self.input.len());
            self.input.resize(len, 0);
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> ClientError {
        tls::failure(&self.address, doing, source)
    }

    fn lost(&self, source: io::Error) -> ClientError {
        let first = self.expected.front().filter(|_| !self.is_known);
        let is_plain = matches!(self.transport, Transport::Plain(_));
        // What a listener does that wants more security, but also a broker that is going down.
        let doing = match first.map(|first| first.api_key == api::API_VERSIONS.key) {
            Some(true) if is_plain => {
                "connection lost at the first request (is its security.protocol SSL or SASL_SSL?)"
            }
            Some(false) if self.credentials.is_none() => {
                "connection lost at the first request (is its security.protocol SASL_PLAINTEXT or \
                 SASL_SSL?)"
            }
            _ => "connection lost",
        };
        self.failed(doing, source)
    }
}

/// When a session that lasts so long is to be prolonged.
fn again_at(lifetime_ms: i64) -> Option<Instant> {
    let lifetime = u64::try_from(lifetime_ms).ok().filter(|ms| *ms > 0)?;
    let wait = Duration::from_millis(lifetime) * REAUTHENTICATE_PERCENT / 100;
    Instant::now().checked_add(wait.max(REAUTHENTICATE_MIN))
}

fn handshake_refusal(answer: &SaslHandshakeResponse<'_>) -> Option<String> {
    match answer.error_code {
        ErrorCode::NONE => None,
        ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
            let all = line(&answer.mechanisms.join(", "));
            Some(format!(
                "the listener has no such sasl.mechanism, but {all}"
            ))
        }
        ErrorCode::ILLEGAL_SASL_STATE => {
            Some("the listener has no SASL: its security.protocol is PLAINTEXT or SSL".into())
        }
        code => Some(code.to_string()),
    }
}

fn refused(address: &str, credentials: &Credentials, reason: String) -> ClientError {
    ClientError::Authentication {
        address: address.to_owned(),
        mechanism: credentials.mechanism(),
        reason,
    }
}
