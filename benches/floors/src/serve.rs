//! A thread a connection: receive what is there, answer every whole request in it, send once.

use crate::answers::{self, Asked, Records};
use crate::files::Ahead;
use crate::relay::Waiting;
use crate::store::{Store, Topic};
use pyrklog_wire::RequestHeader;
use pyrklog_wire::api::key;
use pyrklog_wire::frame::{LENGTH_LEN, Scan, scan};
use pyrklog_wire::produce::ProduceRequest;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
const FRAME_BYTES_MAX: usize = 100 << 20;
/// Of old records: a call into the kernel is not interrupted.
const SENT_AT_ONCE_BYTES: usize = 128 << 10;
/// How long a fetch that finds nothing waits before it says so.
const NOTHING_FOUND: Duration = Duration::from_millis(1);

/// Serves every connection until accepting fails.
///
/// # Errors
/// Accepting failed.
pub fn run(listener: &TcpListener, store: &Arc<Store>) -> io::Result<()> {
    let own = listener.local_addr()?;
    loop {
        let (stream, _) = listener.accept()?;
        let store = Arc::clone(store);
        thread::spawn(move || {
            if let Err(error) = serve(stream, &store, own) {
                eprintln!("pyrklog-floors: {error}");
            }
        });
    }
}

/// What a connection keeps from request to request.
struct Turn<'a> {
    stream: Arc<TcpStream>,
    store: &'a Store,
    own: SocketAddr,
    out: Vec<u8>,
    produce: ProduceRequest,
    topic: Option<Arc<Topic>>,
    /// What the connection reads at the end of.
    followed: Option<Arc<Topic>>,
    /// What it reads from files.
    old: Option<Ahead>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(relay) = self.followed.as_ref().and_then(|topic| topic.relay.get()) {
            relay.forget(&self.stream);
        }
    }
}

fn serve(stream: TcpStream, store: &Store, own: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = Arc::new(stream);
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let mut filled = 0;
    let mut turn = Turn {
        stream: Arc::clone(&stream),
        store,
        own,
        out: Vec::new(),
        produce: ProduceRequest::default(),
        topic: None,
        followed: None,
        old: None,
    };
    loop {
        let received = match (&*stream).read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        filled += received;
        let (consumed, wanted) = turn.answer_all(&buffer[..filled])?;
        buffer.copy_within(consumed..filled, 0);
        filled -= consumed;
        if wanted > buffer.len() {
            buffer.resize(wanted.next_power_of_two(), 0);
        }
    }
}

impl Turn<'_> {
    /// How many bytes were consumed, and how long the frame that follows is, if that is known.
    fn answer_all(&mut self, received: &[u8]) -> io::Result<(usize, usize)> {
        let mut consumed = 0;
        let wanted = loop {
            let rest = &received[consumed..];
            match scan(rest, FRAME_BYTES_MAX).map_err(io::Error::other)? {
                Scan::Whole { content_len } => {
                    self.answer(&rest[LENGTH_LEN..][..content_len])?;
                    consumed += LENGTH_LEN + content_len;
                }
                Scan::Partial { total_len } => break total_len.unwrap_or(0),
            }
        };
        if !self.out.is_empty() {
            (&*self.stream).write_all(&self.out)?;
            self.out.clear();
        }
        Ok((consumed, wanted))
    }

    fn answer(&mut self, content: &[u8]) -> io::Result<()> {
        let (request, body_at) = RequestHeader::parse(content).map_err(io::Error::other)?;
        let body = &content[body_at..];
        let out = &mut self.out;
        match request.api_key {
            key::PRODUCE => {
                let whole = (content, body_at);
                let (decoded, last) = (&mut self.produce, &mut self.topic);
                answers::produce(out, &request, whole, self.store, decoded, last)
            }
            key::FETCH => {
                let start = out.len();
                let fetched =
                    answers::fetch(out, &request, (content, body_at), self.store, &mut self.old)?;
                if fetched.records.is_empty() {
                    if self.waits_for_more(fetched.asked, &request)? {
                        self.out.truncate(start);
                        return Ok(());
                    }
                    thread::sleep(NOTHING_FOUND);
                }
                self.send_with(&fetched.records)
            }
            key::METADATA => answers::metadata(out, &request, body, self.store, self.own),
            key::LIST_OFFSETS => answers::list_offsets(out, &request, body, self.store),
            key::API_VERSIONS => answers::api_versions(out, &request),
            key::INIT_PRODUCER_ID => answers::init_producer_id(out, &request),
            other => Err(io::Error::other(format!("API {other} is not spoken here"))),
        }
    }

    /// Whether the answer comes later, or was just sent, from what somebody follows.
    fn waits_for_more(
        &mut self,
        asked: Option<Asked>,
        request: &RequestHeader<'_>,
    ) -> io::Result<bool> {
        let Some(Asked { topic, positions }) = asked else {
            return Ok(false);
        };
        let waiting = Waiting {
            stream: Arc::clone(&self.stream),
            version: request.api_version,
            correlation_id: request.correlation_id,
        };
        let topic = self.followed.insert(topic);
        let is_at_end = || {
            positions.iter().all(|(index, offset)| {
                let partition = topic.partitions.get(*index);
                partition.is_some_and(|partition| *offset >= partition.next_offset())
            })
        };
        let relay = topic.relay.get();
        relay.map_or(Ok(false), |relay| relay.ask(waiting, is_at_end))
    }

    /// Sends what is written with the records at their places, from where they lie.
    fn send_with(&mut self, records: &[Records]) -> io::Result<()> {
        let mut pieces = Vec::with_capacity(2 * records.len() + 1);
        let mut from = 0;
        for Records { at, found } in records {
            pieces.push(IoSlice::new(&self.out[from..*at]));
            pieces.push(IoSlice::new(&found.bytes[found.range.clone()]));
            from = *at;
        }
        pieces.push(IoSlice::new(&self.out[from..]));
        let mut rest = pieces.as_mut_slice();
        if self.old.is_none() {
            while !rest.is_empty() {
                let sent = (&*self.stream).write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, sent);
            }
        }
        // Old records give way to other threads.
        for piece in rest {
            for part in piece.chunks(SENT_AT_ONCE_BYTES) {
                (&*self.stream).write_all(part)?;
                thread::yield_now();
            }
        }
        self.out.clear();
        Ok(())
    }
}
