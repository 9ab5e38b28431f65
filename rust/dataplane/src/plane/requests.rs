//! Answers to requests that the control plane serves, of [`DataPlane`].

use std::sync::atomic::Ordering;

use super::DataPlane;
use pyrklog_base::clock::mono_ms;
use pyrklog_base::ids::{Place, RequestId};
use pyrklog_base::network_event::{Answer, NetworkEvent};
use pyrklog_control::request_channel::Parking;
use pyrklog_requests::admission::FREE_BYTES;

impl DataPlane {
    /// Answers a request with the body after the response header. Ignores an id that is unknown or
    /// already answered. If there is no memory for a large answer the connection is closed; another
    /// broker's may slightly exceed the bound.
    pub fn reply(&self, request: RequestId, body: Vec<u8>) {
        let answer = if body.len() <= FREE_BYTES {
            Answer::Body(body, None)
        } else {
            let is_broker = self.network.channel.is_brokers(request);
            let memory = &self.network.replies;
            let held = memory.hold(is_broker, body.len()).or_else(|| {
                self.note_short_of_replies(is_broker);
                memory.hold_beyond(is_broker, body.len())
            });
            match held {
                None => Answer::NoRoom(body.len()),
                held => Answer::Body(body, held),
            }
        };
        self.answer(request, answer);
    }

    /// Answers a Metadata request that waited for topics; `errors` are the codes of names that
    /// could not be created.
    pub fn resume(&self, request: RequestId, errors: Vec<(String, i16)>) {
        self.answer(request, Answer::Resume(errors));
    }

    /// No answer fits: closes the request's connection.
    pub fn close_request(&self, request: RequestId) {
        self.answer(request, Answer::Close);
    }

    /// The answer has to wait (for other clients, for replication, for the metadata store): the
    /// request keeps its connection waiting, but no longer counts towards `queued.max.requests`.
    /// False if there is no memory for more waiting requests: it is to be answered now. Ignores an
    /// id that is unknown or already answered.
    pub fn park(&self, request: RequestId) -> bool {
        match self.network.channel.park(request) {
            Parking::Done(next) => {
                if let Some(next) = next {
                    self.unblock(next);
                }
                true
            }
            Parking::NoRoom => false,
        }
    }

    /// Whether ApiVersions lists the requests by which clients push metrics (KIP-714); initially not.
    pub fn offer_client_metrics(&self, is_on: bool) {
        let offers = &self.network.offers_client_metrics;
        offers.store(is_on, Ordering::Relaxed);
    }

    fn answer(&self, request: RequestId, answer: Answer) {
        let Some((place, next)) = self.network.channel.finish(request) else {
            return;
        };
        self.network.inboxes[place.thread].send(NetworkEvent::Reply {
            token: place.token,
            request,
            answer,
        });
        if let Some(next) = next {
            self.unblock(next);
        }
    }

    /// Connections that do not take their replies are closed, so that the next answer has room.
    fn note_short_of_replies(&self, is_broker: bool) {
        if self.network.replies.note_refused(is_broker, mono_ms()) {
            return;
        }
        for inbox in self.network.inboxes.iter() {
            inbox.send(NetworkEvent::Hungry);
        }
    }

    fn unblock(&self, next: Place) {
        self.network.inboxes[next.thread].send(NetworkEvent::Unblock { token: next.token });
    }
}
