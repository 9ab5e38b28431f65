//! ReplicaSegments, version 0, an API of ours: which older records another replica can have for its
//! back-fill (`expansion.md`, section 6).
#![allow(missing_docs)] // Docs say what the names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, TagSince, body, fields};
use crate::reader::{Reader, Uuid};
use crate::writer::Writer;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ReplicaSegmentsRequest<'a> {
        /// The broker of the replica that lacks records.
        pub replica_id: i32,
        pub topic: &'a str,
        pub topic_id: Uuid,
        pub partition: i32,
        /// In which the replica follows.
        pub current_leader_epoch: i32,
        /// Where the replica's log begins: the records right below are asked for.
        pub end_offset: i64,
        /// So many of the segment's aborted transactions are known: the next ones are wanted.
        pub aborted_known: i32 [by TagSince<i32, 0>],
    }
}

body!(request REPLICA_SEGMENTS from 0: ReplicaSegmentsRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub part ReplicaSegmentsResponse {
        pub error_code: ErrorCode,
        /// Log start offset of the one that answers; -1 with an error.
        pub log_start_offset: i64,
        /// First offset of its segment with the records right below the end; -1 with an error.
        pub begin_offset: i64,
        /// Bytes of that segment.
        pub size_bytes: i64,
        /// Time of its newest record (ms), by which retention goes; -1 with an error.
        pub newest_ms: i64,
        /// Some of the aborted transactions whose markers lie in it, below the end, by marker. They
        /// are all known once there are none.
        pub aborted: Vec<SegmentAborted>,
        /// Missing with an error, and from brokers of versions without it.
        pub origin: SegmentOrigin [by TagSince<SegmentOrigin, 0>],
    }
}

fields! {
    /// By which the replica tells whether records of a compacted log belong together.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SegmentOrigin {
        /// Another number when the log was opened again, or cut; 0 if it is not told.
        pub opening: i64,
        /// Another number when a cleaning has replaced the segment.
        pub segment: i64,
        /// The log has of each key the newest record below this offset at most.
        pub clean_below: i64,
    }
}

fields! {
    /// As in a transaction index.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SegmentAborted {
        pub producer_id: i64,
        pub first_offset: i64,
        /// Offset of the marker.
        pub last_offset: i64,
        pub last_stable_offset: i64,
    }
}

body!(response REPLICA_SEGMENTS from 0: ReplicaSegmentsResponse);

impl SegmentOrigin {
    /// Whether both tell of the same segment of the same log.
    pub fn is_segment_of(self, other: SegmentOrigin) -> bool {
        (self.opening, self.segment) == (other.opening, other.segment)
    }
}

impl ReplicaSegmentsResponse {
    /// An error.
    pub fn failed(error_code: ErrorCode) -> Self {
        ReplicaSegmentsResponse {
            error_code,
            log_start_offset: -1,
            begin_offset: -1,
            size_bytes: 0,
            newest_ms: -1,
            aborted: Vec::new(),
            origin: SegmentOrigin::default(),
        }
    }
}
