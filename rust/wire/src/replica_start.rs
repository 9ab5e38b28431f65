//! ReplicaStart, version 0, an API of ours: where a replica may start at its leader's end
//! (`expansion.md`, section 2).
#![allow(missing_docs)] // Docs say what the names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, TagSince, body, fields};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ReplicaStartRequest<'a> {
        /// The replica's broker.
        pub replica_id: i32,
        pub topic: &'a str,
        pub topic_id: Uuid,
        pub partition: i32,
        /// In which the replica follows.
        pub current_leader_epoch: i32,
        /// The replica back-fills compacted logs, too. Without it, it copies them.
        pub fills_compacted: bool [by TagSince<bool, 0>],
    }
}

body!(request REPLICA_START from 0: ReplicaStartRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReplicaStartResponse<'a> {
        pub error_code: ErrorCode,
        /// The leader's log end offset; -1 with an error.
        pub start_offset: i64,
        /// The leader's log start offset; -1 with an error.
        pub log_start_offset: i64,
        /// The leader's epochs with records, rising.
        pub epochs: Vec<StartEpoch>,
        /// The producers at the start offset, as the bytes of a snapshot; null with an error.
        pub producers: Option<&'a [u8]>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct StartEpoch {
        pub epoch: i32,
        /// First offset written in it.
        pub start_offset: i64,
    }
}

body!(response REPLICA_START from 0: ReplicaStartResponse<'a>);

impl ReplicaStartResponse<'_> {
    /// An error.
    pub fn failed(error_code: ErrorCode) -> Self {
        ReplicaStartResponse {
            error_code,
            start_offset: -1,
            log_start_offset: -1,
            epochs: Vec::new(),
            producers: None,
        }
    }
}
