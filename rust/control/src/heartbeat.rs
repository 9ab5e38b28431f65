//! Heartbeats, decoded on their way to the control plane: the most frequent request of a busy
//! coordinator, answered by a code.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::heartbeat::{self, encode_answer};
use pyrklog_wire::membership::{Membership, MembershipFields};

use crate::control_request::ControlRequest;

/// See the module.
#[derive(Debug)]
pub struct Heartbeat {
    /// The request.
    pub request: ControlRequest,
    fields: MembershipFields,
}

impl Heartbeat {
    /// Decodes a request.
    ///
    /// # Errors
    /// A malformed one, for the general path.
    pub fn decode(request: ControlRequest) -> Result<Heartbeat, Box<ControlRequest>> {
        match heartbeat::decode(&request.body, request.api_version) {
            Ok(fields) => Ok(Heartbeat { request, fields }),
            Err(_) => Err(Box::new(request)),
        }
    }

    /// The member.
    pub fn membership(&self) -> Membership<'_> {
        self.fields.of(&self.request.body)
    }

    /// The body of its answer.
    pub fn answer(&self, error: ErrorCode) -> Vec<u8> {
        let mut body = Vec::with_capacity(8);
        encode_answer(self.request.api_version, error, &mut body);
        body
    }
}
