//! Heartbeats, decoded for the control plane: a busy coordinator's most frequent request, answered
//! by an error code.

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
    /// The request, if malformed, for the general path.
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

    /// The answer's body.
    pub fn answer(&self, error: ErrorCode) -> Vec<u8> {
        let mut body = Vec::with_capacity(8);
        encode_answer(self.request.api_version, error, &mut body);
        body
    }
}
