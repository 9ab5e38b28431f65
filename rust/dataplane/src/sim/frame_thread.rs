//! Serves clients without sockets: whole frames in, whole replies out.
//!
//! It runs the same parts of `pyrklog-requests` as a network thread: dispatch, progress of delayed
//! requests, the order of replies, the bound on their memory. Not simulated: receiving and sending
//! in pieces, moving to another thread, closing idle connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pyrklog_log::Wait;
use pyrklog_wire::frame::LENGTH_LEN;

use crate::net::message::Message;
use crate::net::network::Network;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::{NEVER_MS, Token};
use pyrklog_base::inbox::Inbox;
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_requests::admission::{self, Recheck};
use pyrklog_requests::client::Client;
use pyrklog_requests::client_context::ClientContext;
use pyrklog_requests::context::{Context, borrow_memory};
use pyrklog_requests::dispatch::dispatch;
use pyrklog_requests::out_queue::FileRange;
use pyrklog_requests::outcome::{Close, Dispatched, Hold};
use pyrklog_requests::{client_timers, control_replies, produce, resume, timed_work};

/// How often clients that wait for memory are checked.
const SWEEP_MS: i64 = 50;

/// See the module.
#[derive(Debug)]
pub struct FrameThread {
    network: Arc<Network>,
    cx: Context,
    inbox: Arc<Inbox<Message>>,
    clients: BTreeMap<Token, FrameClient>,
    last_token: Token,
    replies: Vec<(Token, Option<Vec<u8>>)>,
    next_sweep_ms: i64,
}

#[derive(Debug)]
struct FrameClient {
    client: Client,
    /// Frames that have arrived, without their lengths.
    frames: VecDeque<Vec<u8>>,
    is_gone: bool,
    /// There may be something to do.
    is_listed: bool,
}

impl FrameThread {
    /// The only network thread of a plane.
    pub fn new(network: Arc<Network>) -> FrameThread {
        FrameThread {
            cx: Context::new(Arc::clone(&network.services), 0),
            inbox: Arc::clone(&network.inboxes[0]),
            network,
            clients: BTreeMap::new(),
            last_token: 0,
            replies: Vec::new(),
            next_sweep_ms: NEVER_MS,
        }
    }

    /// Connects a client; returns its token.
    pub fn connect(&mut self) -> Token {
        self.last_token += 1;
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let principal = Arc::clone(&self.network.anonymous);
        let token = self.last_token;
        let listener = Arc::from("PLAINTEXT");
        let context = ClientContext::new(token, token, host, 0, listener, principal);
        let client = FrameClient {
            client: Client::new(context),
            frames: VecDeque::new(),
            is_gone: false,
            is_listed: false,
        };
        self.clients.insert(self.last_token, client);
        self.last_token
    }

    /// A whole frame of a client arrives, with its length; false if the client is gone.
    pub fn send(&mut self, token: Token, frame: &[u8]) -> bool {
        let Some(client) = self.clients.get_mut(&token) else {
            return false;
        };
        let content = frame.get(LENGTH_LEN..).unwrap_or_default();
        client.frames.push_back(content.to_vec());
        client.is_listed = true;
        true
    }

    /// A client is gone.
    pub fn disconnect(&mut self, token: Token) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.is_gone = true;
            client.is_listed = true;
        }
    }

    /// Whole replies, without their lengths; `None` for a client whose connection was closed.
    pub fn take_replies(&mut self) -> Vec<(Token, Option<Vec<u8>>)> {
        std::mem::take(&mut self.replies)
    }

    /// When the next timer is due.
    pub fn due_ms(&self) -> i64 {
        self.cx.timers.next_due_ms().min(self.next_sweep_ms)
    }

    /// Takes turns until there is nothing to do at this time.
    pub fn run(&mut self) {
        while self.has_work() {
            self.turn();
        }
    }

    fn has_work(&self) -> bool {
        !self.inbox.is_empty()
            || self.cx.heavy.has_waiting()
            || self.clients.values().any(|client| client.is_listed)
            || self.due_ms() <= mono_ms()
    }

    fn turn(&mut self) {
        let mut messages = Vec::new();
        self.inbox.take(&mut messages);
        self.cx.refresh();
        for message in messages {
            self.receive(message);
        }
        self.look_at_timers();
        let listed = self.clients.iter().filter(|(_, client)| client.is_listed);
        let listed: Vec<Token> = listed.map(|(token, _)| *token).collect();
        for token in listed {
            self.visit(token);
        }
        if let Some(token) = self.cx.heavy.take_turn() {
            if let Some(found) = self.clients.get_mut(&token)
                && found.client.hold == Some(Hold::Heavy)
            {
                found.client.hold = None;
            }
            self.visit(token);
        }
        self.cx.heavy.end_turn();
        if self.cx.is_hungry {
            self.next_sweep_ms = self.next_sweep_ms.min(self.cx.now.mono_ms + SWEEP_MS);
        }
        self.cx.outbox.deliver(&*self.cx.services.logs);
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Event(event) => self.receive_event(event),
            Message::Job { token, job } => {
                self.with(token, |cx, client| resume::job_done(cx, client, job))
            }
            Message::Connect(_) | Message::Move(_) | Message::Sent { .. } => {
                debug_assert!(false, "there are no sockets here");
            }
        }
    }

    fn receive_event(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Produced {
                token,
                sequence,
                index,
                error,
            } => self.with(token, |cx, client| {
                produce::complete_partition(cx, &mut client.produces, sequence, index, error);
                Ok(())
            }),
            NetworkEvent::FetchWake {
                token,
                wait,
                must_answer,
                ..
            } => self.with(token, |cx, client| {
                resume::wake(cx, client, wait, must_answer)
            }),
            NetworkEvent::Reply {
                token,
                request,
                answer,
            } => self.with(token, |cx, client| {
                control_replies::reply(cx, client, request, answer)
            }),
            NetworkEvent::Verified { token, id, errors } => self.with(token, |cx, client| {
                resume::verified(cx, client, id, &errors)
            }),
            NetworkEvent::Unblock { token } => match self.clients.contains_key(&token) {
                true => self.with(token, |_, client| {
                    resume::unblock(client);
                    Ok(())
                }),
                false => control_replies::pass_turn(&self.cx.services),
            },
            NetworkEvent::Hungry => self.cx.is_hungry = true,
            // The simulation ends a plane without a turn of its network thread.
            NetworkEvent::Drain { .. } | NetworkEvent::Stop => self.cx.is_draining = true,
        }
    }

    /// Does something to a client, which is then visited, or closed if that fails.
    fn with(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut Context, &mut Client) -> Result<(), Close>,
    ) {
        let Some(found) = self.clients.get_mut(&token) else {
            return;
        };
        found.is_listed = true;
        if let Err(close) = act(&mut self.cx, &mut found.client) {
            self.close(token, &close);
        }
    }

    fn look_at_timers(&mut self) {
        let now_ms = self.cx.now.mono_ms;
        while let Some((due_ms, token)) = self.cx.timers.pop_due(now_ms) {
            let found = self.clients.get(&token);
            if found.is_some_and(|found| found.client.timer_ms == due_ms) {
                self.with(token, client_timers::expire);
            }
        }
        if self.next_sweep_ms > now_ms {
            return;
        }
        self.next_sweep_ms = NEVER_MS;
        self.cx.is_hungry = false;
        let tokens: Vec<Token> = self.clients.keys().copied().collect();
        for token in tokens {
            self.with(token, |cx, client| match admission::recheck(cx, client) {
                Recheck::FinishFetch => resume::finish_fetch(cx, client),
                Recheck::GoOn | Recheck::Keep => Ok(()),
            });
        }
    }

    fn visit(&mut self, token: Token) {
        let Some(found) = self.clients.get_mut(&token) else {
            return;
        };
        found.is_listed = false;
        let served = match found.is_gone {
            true => Err(Close::Peer),
            false => serve(&mut self.cx, found),
        };
        while let Some(reply) = take_reply(&mut found.client) {
            self.replies.push((token, Some(reply)));
        }
        timed_work::sent(&mut self.cx, &mut found.client);
        admission::count(&mut self.cx, &mut found.client);
        let is_over = found.client.is_closing && found.client.is_quiet();
        let served = match is_over {
            true => Err(Close::Silently),
            false => served,
        };
        if let Err(close) = served {
            self.close(token, &close);
        }
    }

    fn close(&mut self, token: Token, close: &Close) {
        let Some(mut found) = self.clients.remove(&token) else {
            return;
        };
        let client = &mut found.client;
        control_replies::report(&self.cx, client, close);
        // Earlier answers go out first.
        let _ = produce::reply::send_done(&mut self.cx, client);
        while let Some(reply) = take_reply(client) {
            self.replies.push((token, Some(reply)));
        }
        resume::end(&self.cx, client);
        if !found.is_gone {
            self.replies.push((token, None));
        }
    }
}

/// Works on what has arrived until it has to wait.
fn serve(cx: &mut Context, found: &mut FrameClient) -> Result<(), Close> {
    let client = &mut found.client;
    borrow_memory(cx, &mut client.out);
    while !client.is_busy() {
        let Some(frame) = found.frames.front_mut() else {
            break;
        };
        if dispatch(cx, client, frame)? == Dispatched::Waits {
            break;
        }
        found.frames.pop_front();
    }
    let held_before = client.hold;
    produce::reply::send_done(cx, client)?;
    found.is_listed |= held_before != client.hold;
    Ok(())
}

/// The next reply, whole and without its length.
fn take_reply(client: &mut Client) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    let out = &mut client.out;
    let read = |range: &FileRange, buffer: &mut [u8], position| {
        range.bytes.read(buffer, position, Wait::Blocking)
    };
    if out.is_empty() || out.fill(&mut length, read).ok()? < length.len() {
        return None;
    }
    out.advance(length.len());
    let mut reply = vec![0; u32::from_be_bytes(length) as usize];
    let mut done = 0;
    while done < reply.len() {
        let count = out.fill(&mut reply[done..], read).ok()?;
        out.advance(count);
        done += count;
    }
    Some(reply)
}
