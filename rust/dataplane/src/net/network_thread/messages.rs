//! How a network thread handles its messages.

use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::NetworkThread;
use crate::net::connection::Connection;
use crate::net::connection_limits::NewConnection;
use crate::net::message::Message;
use crate::net::{connection_timeouts, output};
use pyrklog_base::clock::mono_ns;
use pyrklog_base::ids::{NEVER_MS, Token};
use pyrklog_base::network_event::NetworkEvent;
use pyrklog_requests::context::Context;
use pyrklog_requests::outcome::Close;
use pyrklog_requests::{control_replies, produce, resume};

impl NetworkThread {
    pub(super) fn receive(&mut self, message: Message) {
        match message {
            Message::Event(event) => self.receive_event(event),
            Message::Connect(new) => self.connect(*new),
            Message::Move(conn) => self.welcome(*conn),
            Message::Job { token, job } => self.with(token, |cx, conn| {
                resume::job_done(cx, &mut conn.client, job)
            }),
            Message::Sent { token, work } => {
                self.with(token, |cx, conn| output::take_back(cx, conn, *work));
            }
        }
    }

    pub(super) fn receive_event(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Produced {
                token,
                sequence,
                index,
                error,
            } => {
                if let Some(conn) = self.connections.get_mut(token)
                    && produce::complete_partition(
                        &self.cx,
                        &mut conn.client.produces,
                        sequence,
                        index,
                        error,
                    )
                {
                    self.list(token);
                }
            }
            NetworkEvent::FetchWake {
                token,
                wait,
                must_answer,
                by,
            } => {
                if let (Some(by), Some(conn)) = (by, self.connections.get_mut(token)) {
                    let now_ms = self.cx.now.mono_ms;
                    self.balancer.woken(&mut conn.affinity, by, now_ms);
                }
                self.with(token, |cx, conn| {
                    resume::wake(cx, &mut conn.client, wait, must_answer)
                });
            }
            NetworkEvent::Reply {
                token,
                request,
                answer,
            } => {
                self.with(token, |cx, conn| {
                    control_replies::reply(cx, &mut conn.client, request, answer)
                });
            }
            NetworkEvent::Verified { token, id, errors } => self.with(token, |cx, conn| {
                resume::verified(cx, &mut conn.client, id, &errors)
            }),
            NetworkEvent::Unblock { token } => self.unblock(token),
            NetworkEvent::Hungry => self.cx.is_hungry = true,
            NetworkEvent::Drain { deadline_ms } => self.drain(deadline_ms),
            NetworkEvent::Stop => self.is_stopped = true,
        }
    }

    /// Does something to a connection, which is then visited, or closed if that fails.
    pub(super) fn with(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut Context, &mut Connection) -> Result<(), Close>,
    ) {
        let Some(mut conn) = self.connections.take(token) else {
            return;
        };
        let began_ns = self.balancer.measures().then(mono_ns);
        match act(&mut self.cx, &mut conn) {
            Ok(()) => {
                conn.affinity.spent_since(began_ns);
                self.connections.put_back(conn);
                self.list(token);
            }
            Err(close) => self.close(conn, close),
        }
    }

    pub(super) fn unblock(&mut self, token: Token) {
        let Some(conn) = self.connections.get_mut(token) else {
            // It was to use a place in the request channel: pass the turn on.
            control_replies::pass_turn(&self.cx.services);
            return;
        };
        resume::unblock(&mut conn.client);
        self.list(token);
    }

    pub(super) fn connect(&mut self, new: NewConnection) {
        if self.cx.is_draining {
            return;
        }
        let principal = Arc::clone(&self.network.anonymous);
        let now_ms = self.cx.now.mono_ms;
        self.add(|token| Connection::new(token, new, principal, now_ms));
    }

    /// Takes over a connection from another thread.
    pub(super) fn welcome(&mut self, mut conn: Connection) {
        let now_ms = self.cx.now.mono_ms;
        self.cx.statistics.connections_moved.add(1);
        self.add(|token| {
            conn.arrive(token, now_ms);
            conn
        });
    }

    pub(super) fn add(&mut self, make: impl FnOnce(Token) -> Connection) {
        let now_ms = self.cx.now.mono_ms;
        let conn = self.connections.insert(make);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(conn.client.context.token);
        let token = conn.client.context.token;
        if let Err(error) = epoll::add(&self.epoll, &conn.socket, data, flags) {
            self.close_by_token(token, Close::Protocol(error.to_string()));
            return;
        }
        self.count_connections();
        if self.next_sweep_ms == NEVER_MS {
            self.next_sweep_ms =
                now_ms + connection_timeouts::interval_ms(&self.cx.services.config);
        }
        self.list(token);
    }
}
