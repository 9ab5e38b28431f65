//! One network thread: an epoll loop over its connections, its inbox and its timers.
//!
//! A turn: wait; read the clocks; take the messages; read, work and answer on every connection that
//! has something; send each connection's answers at once; fire due timers. A request runs to its
//! end here; nothing here waits for a disk or for the control plane.

mod messages;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use pyrklog_log::disk;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::net::connection::{Connection, Sending};
use crate::net::connection_balancer::ConnectionBalancer;
use crate::net::connections::Connections;
use crate::net::input::{has_whole_frame, pump};
use crate::net::message::Message;
use crate::net::network::Network;
use crate::net::{connection_timeouts, output};
use pyrklog_base::alarm::Alarm;
use pyrklog_base::clock::mono_ns;
use pyrklog_base::ids::{COPY_BUFFER_BYTES, NEVER_MS, RECEIVE_BUFFER_BYTES, Token};
use pyrklog_base::inbox::Inbox;
use pyrklog_requests::context::{Context, borrow_memory};
use pyrklog_requests::delayed::Delayed;
use pyrklog_requests::outcome::{Close, Hold};
use pyrklog_requests::{admission, control_replies, produce, resume};

const INBOX: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;

const EVENTS_PER_TURN: usize = 256;

/// Rounds of reading, working and sending on one connection before the others get their turn.
const ROUNDS_PER_VISIT: usize = 4;

#[derive(Debug)]
pub struct NetworkThread {
    network: Arc<Network>,
    cx: Context,
    inbox: Arc<Inbox<Message>>,
    epoll: OwnedFd,
    alarm: Alarm,
    connections: Connections,
    balancer: ConnectionBalancer,
    receive_buffer: Vec<u8>,
    copy_buffer: Vec<u8>,
    listed: Vec<Token>,
    next_sweep_ms: i64,
    drain_deadline_ms: i64,
    is_stopped: bool,
}

impl NetworkThread {
    /// Thread number `index`. Errors: no file descriptor left.
    pub fn new(network: Arc<Network>, index: usize) -> std::io::Result<NetworkThread> {
        let inbox = Arc::clone(&network.inboxes[index]);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered and never read: each wake is an edge of its own.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, inbox.fd(), EventData::new_u64(INBOX), flags)?;
        let alarm = Alarm::new()?;
        epoll::add(&epoll, alarm.fd(), EventData::new_u64(ALARM), flags)?;
        let balancer = ConnectionBalancer::new(index, &network.statistics.threads);
        Ok(NetworkThread {
            balancer,
            cx: Context::new(Arc::clone(&network.services), index),
            network,
            inbox,
            epoll,
            alarm,
            connections: Connections::new(index),
            receive_buffer: vec![0; RECEIVE_BUFFER_BYTES],
            copy_buffer: vec![0; COPY_BUFFER_BYTES],
            listed: Vec::new(),
            next_sweep_ms: NEVER_MS,
            drain_deadline_ms: NEVER_MS,
            is_stopped: false,
        })
    }

    /// Runs until told to stop, or until drained.
    pub fn run(mut self) {
        disk::leave_files_open();
        #[cfg(feature = "testing")]
        self.call_hook(crate::net::hook::Moment::Begin);
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        let mut messages = Vec::new();
        loop {
            self.wait(&mut events);
            self.turn(&events, &mut messages);
            if let Some(files) = disk::take_left_open() {
                self.cx.services.readers.close(files);
            }
            #[cfg(feature = "testing")]
            self.call_hook(crate::net::hook::Moment::Turn);
            if self.is_stopped || self.is_drained() {
                break;
            }
            self.balancer.end_turn();
        }
        for token in self.connections.tokens() {
            if let Some(conn) = self.connections.take(token) {
                self.close(conn, Close::Shutdown);
            }
        }
        for message in self.inbox.close() {
            if let Message::Move(mut conn) = message {
                conn.received.clear(&self.cx.services.budget);
                self.cx.services.budget.release(conn.client.context.id);
            }
        }
    }

    fn turn(&mut self, events: &[epoll::Event], messages: &mut Vec<Message>) {
        // Before the image: a connection that moves here was answered from that image or an older
        // one.
        self.inbox.take(messages);
        self.cx.refresh();
        #[cfg(feature = "testing")]
        self.call_hook(crate::net::hook::Moment::Clock);
        if self.balancer.begin_turn(self.cx.now.mono_ns) {
            let now_ms = self.cx.now.mono_ms;
            let courses = self.connections.iter_mut().map(|conn| &mut conn.affinity);
            self.balancer.relieve(courses, now_ms);
        }
        for message in messages.drain(..) {
            self.receive(message);
        }
        for event in events {
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                INBOX => {}
                ALARM => self.alarm.rang(),
                token => self.note_event(token, flags),
            }
        }
        self.look_at_timers();
        self.visit_listed();
        self.visit_heavy();
        if self.cx.is_hungry {
            let soon_ms = self.cx.now.mono_ms + connection_timeouts::HUNGRY_MS;
            self.next_sweep_ms = self.next_sweep_ms.min(soon_ms);
        }
        self.cx.outbox.deliver(&*self.cx.services.logs);
    }

    #[cfg(feature = "testing")]
    fn call_hook(&self, moment: crate::net::hook::Moment) {
        self.network.hook.call(self.cx.thread, moment);
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        events.clear();
        match self.sleep(events) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                let fields = vec![("reason", error.to_string())];
                self.cx
                    .services
                    .events
                    .notice("network_thread_failed", "error", fields);
                self.is_stopped = true;
            }
        }
        self.inbox.awake();
    }

    /// Waits until something happens or is due; not at all if there is something to do.
    fn sleep(&mut self, events: &mut Vec<epoll::Event>) -> rustix::io::Result<usize> {
        self.alarm.want(self.due_ms())?;
        let has_work = !self.cx.again.is_empty() || self.cx.heavy.has_waiting();
        let must_not_sleep = has_work || !self.inbox.prepare_sleep();
        let at_once = must_not_sleep.then(Timespec::default);
        epoll::wait(&self.epoll, spare_capacity(events), at_once.as_ref())
    }

    fn due_ms(&self) -> i64 {
        let next_timer_ms = self.cx.timers.next_due_ms();
        let next_look_ms = self.next_sweep_ms.min(self.drain_deadline_ms);
        next_timer_ms.min(next_look_ms)
    }

    fn list(&mut self, token: Token) {
        if let Some(conn) = self.connections.get_mut(token)
            && !conn.is_listed
        {
            conn.is_listed = true;
            self.listed.push(token);
        }
    }

    fn note_event(&mut self, token: Token, flags: EventFlags) {
        let Some(conn) = self.connections.get_mut(token) else {
            return;
        };
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            // Both directions are gone: no answer can arrive.
            self.close_by_token(token, Close::Peer);
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
            conn.readable = true;
        }
        if flags.contains(EventFlags::OUT) {
            conn.writable = true;
        }
        let ends = flags.contains(EventFlags::RDHUP);
        if ends && !conn.client.context.hung_up {
            control_replies::tell_gone(&self.cx.services, &conn.client);
        }
        conn.client.context.hung_up |= ends;
        if ends && matches!(&conn.client.delayed, Some(Delayed::Fetch(work)) if !work.is_reading())
        {
            // The peer sends nothing more: it gets what there is, then the end.
            self.with(token, |cx, conn| resume::finish_fetch(cx, &mut conn.client));
        }
        self.list(token);
    }

    fn visit_listed(&mut self) {
        let again = std::mem::take(&mut self.cx.again);
        for token in again {
            self.list(token);
        }
        let mut listed = std::mem::take(&mut self.listed);
        for token in listed.drain(..) {
            if let Some(mut conn) = self.connections.take(token) {
                conn.is_listed = false;
                self.visit_one(conn);
            }
        }
        if self.listed.is_empty() {
            self.listed = listed;
        }
    }

    /// Lets the first of the connections with long-running requests go on.
    fn visit_heavy(&mut self) {
        while let Some(token) = self.cx.heavy.take_turn() {
            let Some(mut conn) = self.connections.take(token) else {
                continue;
            };
            if conn.client.hold == Some(Hold::Heavy) {
                conn.client.hold = None;
            }
            self.visit_one(conn);
            break;
        }
        self.cx.heavy.end_turn();
    }

    fn visit_one(&mut self, mut conn: Box<Connection>) {
        let began_ns = self.balancer.measures().then(mono_ns);
        match self.visit(&mut conn) {
            Ok(()) => {
                if conn.sending != Sending::Reader {
                    // Otherwise its output is with a reader, and still counts.
                    admission::count(&mut self.cx, &mut conn.client);
                }
                conn.affinity.spent_since(began_ns);
                self.keep_or_move(conn);
            }
            Err(close) => self.close(conn, close),
        }
    }

    fn keep_or_move(&mut self, #[allow(unused_mut)] mut conn: Box<Connection>) {
        #[cfg(feature = "testing")]
        if self.network.hook.is_restless() {
            conn.affinity.to = Some((self.cx.thread + 1) % self.network.inboxes.len());
        }
        match conn.affinity.to {
            Some(to) if conn.is_movable() && !self.cx.is_draining => {
                self.connections.forget(conn.client.context.token);
                let _ = epoll::delete(&self.epoll, &conn.socket);
                self.count_connections();
                self.network.inboxes[to].send(Message::Move(conn));
            }
            _ => self.connections.put_back(conn),
        }
    }

    fn visit(&mut self, conn: &mut Connection) -> Result<(), Close> {
        self.cx.looked = 0;
        if std::mem::take(&mut conn.is_flush_postponed) {
            self.flush(conn)?;
        }
        self.cx.arrival_ns = self.cx.now.mono_ns;
        for round in 0.. {
            borrow_memory(&mut self.cx, &mut conn.client.out);
            pump(&mut self.cx, conn, &mut self.receive_buffer)?;
            produce::reply::send_done(&mut self.cx, &mut conn.client)?;
            // Another thread wakes up while this one sends. The fetches that wait for this thread
            // go first, where that delays other connections only briefly.
            conn.is_flush_postponed = self.cx.outbox.has_own() && !self.balancer.measures();
            self.cx.outbox.deliver(&*self.cx.services.logs);
            if conn.is_flush_postponed {
                self.cx.again.push(conn.client.context.token);
                return Ok(());
            }
            self.flush(conn)?;
            let has_work = !conn.is_busy()
                && !self.cx.is_draining
                && (conn.readable || has_whole_frame(&self.cx, conn));
            if !has_work {
                break;
            }
            self.cx.arrival_ns = self.cx.lap_ns();
            if round == ROUNDS_PER_VISIT || self.cx.has_looked_at_many() {
                self.cx.again.push(conn.client.context.token);
                return Ok(());
            }
        }
        let is_over = conn.client.context.ended || conn.client.is_closing || self.cx.is_draining;
        let has_waiting_request = matches!(
            conn.client.hold,
            Some(Hold::Room | Hold::Heavy | Hold::Replies { .. })
        );
        if is_over && conn.is_quiet() && !has_waiting_request {
            return Err(match &conn.client {
                client if client.is_closing => Close::Silently,
                client if client.context.ended => Close::Peer,
                _ => Close::Shutdown,
            });
        }
        Ok(())
    }

    fn flush(&mut self, conn: &mut Connection) -> Result<(), Close> {
        let inboxes = &self.network.inboxes;
        output::flush(&mut self.cx, conn, &mut self.copy_buffer, inboxes)
    }

    fn count_connections(&self) {
        let count = self.connections.len() as u64;
        self.cx.statistics.connections.set(count);
    }

    fn look_at_timers(&mut self) {
        let now_ms = self.cx.now.mono_ms;
        while let Some((due_ms, token)) = self.cx.timers.pop_due(now_ms) {
            if self
                .connections
                .get_mut(token)
                .is_some_and(|conn| conn.client.timer_ms == due_ms)
            {
                self.with(token, connection_timeouts::expire);
            }
        }
        if self.next_sweep_ms <= now_ms {
            self.sweep();
        }
        if self.drain_deadline_ms <= now_ms {
            self.is_stopped = true;
        }
    }

    fn sweep(&mut self) {
        let mut muted = 0;
        self.cx.is_hungry = false;
        for token in self.connections.tokens() {
            let Some(conn) = self.connections.get_mut(token) else {
                continue;
            };
            muted += u64::from(conn.client.hold.is_some());
            match connection_timeouts::check(&mut self.cx, conn) {
                connection_timeouts::Verdict::Keep => {}
                connection_timeouts::Verdict::Visit => self.list(token),
                connection_timeouts::Verdict::Close(close) => self.close_by_token(token, close),
            }
        }
        self.cx.statistics.muted.set(muted);
        let interval_ms = connection_timeouts::interval_ms(&self.cx.services.config);
        let is_empty = self.connections.is_empty();
        self.next_sweep_ms = if is_empty {
            NEVER_MS
        } else {
            self.cx.now.mono_ms + interval_ms
        };
    }

    fn drain(&mut self, deadline_ms: i64) {
        self.cx.is_draining = true;
        self.drain_deadline_ms = deadline_ms;
        for token in self.connections.tokens() {
            self.with(token, |cx, conn| resume::finish_fetch(cx, &mut conn.client));
        }
    }

    fn is_drained(&self) -> bool {
        self.cx.is_draining && self.connections.is_empty()
    }

    fn close_by_token(&mut self, token: Token, close: Close) {
        if let Some(conn) = self.connections.take(token) {
            self.close(conn, close);
        }
    }

    fn close(&mut self, mut conn: Box<Connection>, close: Close) {
        control_replies::report(&self.cx, &conn.client, &close);
        if close == Close::Silently || matches!(close, Close::Protocol(_)) {
            // Earlier answers go out first, as far as the socket takes them.
            let _ = produce::reply::send_done(&mut self.cx, &mut conn.client);
            let _ = self.flush(&mut conn);
        }
        self.connections.forget(conn.client.context.token);
        resume::end(&self.cx, &mut conn.client);
        conn.received.clear(&self.cx.services.budget);
        let _ = epoll::delete(&self.epoll, &conn.socket);
        if conn.sending == Sending::Reader {
            // A reader holds the socket too; this ends its waiting.
            let _ = rustix::net::shutdown(&conn.socket, Shutdown::Both);
        }
        self.count_connections();
    }
}
