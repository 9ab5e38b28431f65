//! Authentication as clients do it: SaslHandshake 1, SaslAuthenticate 0 to 2 (KIP-152).
//!
//! Version notes: SaslAuthenticate 1 tells how long the session lasts (KIP-368); 2 flexible.
//! SaslHandshake 0 is followed by tokens without frames, which no client of ours sends.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, body, fields};
use crate::reader::Reader;
use crate::writer::Writer;

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SaslHandshakeRequest<'a> {
        pub mechanism: &'a str,
    }
}

body!(request SASL_HANDSHAKE from 1: SaslHandshakeRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SaslHandshakeResponse<'a> {
        pub error_code: ErrorCode,
        /// What the listener has.
        pub mechanisms: Vec<&'a str>,
    }
}

body!(response SASL_HANDSHAKE from 1: SaslHandshakeResponse<'a>);

fields! {
    /// Has no `Debug`: the bytes may hold a password.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct SaslAuthenticateRequest<'a> {
        /// Of the mechanism; never null.
        pub auth_bytes: Option<&'a [u8]>,
    }
}

body!(request SASL_AUTHENTICATE from 0: SaslAuthenticateRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SaslAuthenticateResponse<'a> {
        pub error_code: ErrorCode,
        /// For the user.
        pub error_message: Option<&'a str>,
        /// Of the mechanism; never null.
        pub auth_bytes: Option<&'a [u8]>,
        /// After this the broker closes the connection, unless the client authenticates again; 0
        /// for never.
        pub session_lifetime_ms: i64 [in 1.., else 0],
    }
}

body!(response SASL_AUTHENTICATE from 0: SaslAuthenticateResponse<'a>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_has_the_bytes_of_the_protocol() {
        let mut out = Vec::new();
        let mechanism = "PLAIN";
        SaslHandshakeRequest { mechanism }.encode(&mut out, 1);
        assert_eq!(out, b"\0\x05PLAIN");
        let answer = b"\0\x21\0\0\0\x02\0\x05PLAIN\0\x01X";
        let answer = SaslHandshakeResponse::decode(answer, 1).unwrap();
        assert_eq!(answer.error_code, ErrorCode::UNSUPPORTED_SASL_MECHANISM);
        assert_eq!(answer.mechanisms, ["PLAIN", "X"]);
    }

    #[test]
    fn an_authentication_is_read_in_every_version() {
        for version in 0..=2 {
            let mut out = Vec::new();
            let auth_bytes = Some(&b"abc"[..]);
            SaslAuthenticateRequest { auth_bytes }.encode(&mut out, version);
            let wanted: &[u8] = match version {
                2 => b"\x04abc\0",
                _ => b"\0\0\0\x03abc",
            };
            assert_eq!(out, wanted);
            let answer = SaslAuthenticateResponse {
                error_code: ErrorCode::NONE,
                error_message: None,
                auth_bytes: Some(b"r=1"),
                session_lifetime_ms: if version == 0 { 0 } else { 60_000 },
            };
            let mut body = Vec::new();
            answer.encode(&mut body, version);
            let decoded = SaslAuthenticateResponse::decode(&body, version).unwrap();
            assert_eq!(decoded, answer);
            for len in 0..body.len() {
                assert!(SaslAuthenticateResponse::decode(&body[..len], version).is_err());
            }
        }
    }
}
