//! What the tests of all APIs share.

use proptest::prelude::*;
use pyrklog_wire::leader::{CurrentLeader, NodeEndpoint};
use pyrklog_wire::{DecodeError, ErrorCode};

/// Cases of each property; every case covers all versions of its API.
pub const CASES: u32 = 40;

/// Decodes a message and encodes it again.
pub type Again<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

/// Where and to what a byte is changed.
pub type Change = (prop::sample::Index, u8);

pub fn change() -> impl Strategy<Value = Change> {
    (
        any::<prop::sample::Index>(),
        prop_oneof![any::<u8>(), Just(0xff), Just(0x7f), Just(0x80)],
    )
}

/// The message encodes to the same bytes; every prefix is an error; a changed byte gives another
/// message or an error, never a panic.
pub fn check(bytes: &[u8], (place, byte): Change, again: Again<'_>) {
    assert_eq!(again(bytes).unwrap(), bytes);
    for len in 0..bytes.len() {
        assert!(
            again(&bytes[..len]).is_err(),
            "cut at {len} of {}",
            bytes.len()
        );
    }
    if !bytes.is_empty() {
        let mut changed = bytes.to_vec();
        changed[place.index(bytes.len())] = byte;
        let _ = again(&changed);
    }
}

pub fn name() -> impl Strategy<Value = String> {
    "[a-z._ü-]{0,12}"
}

pub fn id() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![Just([0; 16]), any::<[u8; 16]>()]
}

pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(vec![0x5a; 300])
    ]
}

pub fn error() -> impl Strategy<Value = ErrorCode> {
    any::<i16>().prop_map(ErrorCode)
}

pub fn some<T: std::fmt::Debug>(
    element: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(element, 0..4)
}

pub fn leader() -> impl Strategy<Value = CurrentLeader> {
    (any::<i32>(), any::<i32>()).prop_map(|(leader_id, leader_epoch)| CurrentLeader {
        leader_id,
        leader_epoch,
    })
}

/// An endpoint that owns its texts.
pub type Endpoint = (i32, String, i32, Option<String>);

pub fn endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
    some((any::<i32>(), name(), any::<i32>(), prop::option::of(name())))
}

pub fn borrow(endpoints: &[Endpoint]) -> Vec<NodeEndpoint<'_>> {
    endpoints
        .iter()
        .map(|(node_id, host, port, rack)| NodeEndpoint {
            node_id: *node_id,
            host,
            port: *port,
            rack: rack.as_deref(),
        })
        .collect()
}
