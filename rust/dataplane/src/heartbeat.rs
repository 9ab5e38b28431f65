//! Heartbeats, decoded on their way to the control plane: a busy coordinator sees more of them than of
//! anything else, and each needs no more of it than a code.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::heartbeat::{HeartbeatRequest, encode_answer};

use crate::api::{ControlRequest, Event};

/// See the module.
#[derive(Debug)]
pub struct Heartbeat {
    /// The request as any other.
    pub request: ControlRequest,
    decoded: HeartbeatRequest,
}

impl Heartbeat {
    /// Decodes a request; a malformed one goes up as any other.
    pub fn event(request: ControlRequest) -> Event {
        match HeartbeatRequest::decode(&request.body, request.api_version) {
            Ok(decoded) => Event::Heartbeat(Box::new(Heartbeat { request, decoded })),
            Err(_) => Event::Request(request),
        }
    }

    /// The group.
    pub fn group_id(&self) -> &str {
        self.decoded.group_id.text(&self.request.body)
    }

    /// The generation.
    pub fn generation(&self) -> i32 {
        self.decoded.generation
    }

    /// The member.
    pub fn member_id(&self) -> &str {
        self.decoded.member_id.text(&self.request.body)
    }

    /// The instance id of a static member.
    pub fn instance_id(&self) -> Option<&str> {
        let span = self.decoded.instance_id?;
        Some(span.text(&self.request.body))
    }

    /// The body of its answer.
    pub fn answer(&self, error: ErrorCode) -> Vec<u8> {
        let mut body = Vec::with_capacity(8);
        encode_answer(self.request.api_version, error, &mut body);
        body
    }
}
