//! Wrong counts and lengths make decoders fail without large allocations.
//!
//! One test, alone in its file: it watches the allocations of the whole process.

use std::alloc::System;

use pyrklog_wire::api_versions::ApiVersionsResponse;
use pyrklog_wire::fetch::{FetchRequest, FetchResponse};
use pyrklog_wire::list_offsets::{ListOffsetsRequest, ListOffsetsResponse};
use pyrklog_wire::metadata::{MetadataRequest, MetadataResponse};
use pyrklog_wire::offset_for_leader_epoch::{EpochRequest, EpochResponse};
use pyrklog_wire::produce::{ProduceRequest, ProduceResponse};
use pyrklog_wire::records::{Records, walk_records};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Every decoder over the same bytes, in every version.
fn decode_all(bytes: &[u8]) {
    let mut produce = ProduceRequest::default();
    let mut fetch = FetchRequest::default();
    for version in 0..=17 {
        let _ = produce.decode(bytes, 0, version);
        let _ = fetch.decode(bytes, 0, version);
        let _ = ProduceResponse::decode(bytes, version);
        let _ = FetchResponse::decode(bytes, version);
        let _ = ListOffsetsRequest::decode(bytes, version);
        let _ = ListOffsetsResponse::decode(bytes, version);
        let _ = EpochRequest::decode(bytes, version);
        let _ = EpochResponse::decode(bytes, version);
        let _ = MetadataRequest::decode(bytes, version);
        let _ = MetadataResponse::decode(bytes, version);
        let _ = ApiVersionsResponse::decode(bytes, version);
    }
    let _ = walk_records(bytes, i32::MAX);
    let _ = Records::new(bytes).count();
}

#[test]
fn no_count_allocates_before_its_bytes_arrived() {
    // Counts of every width at every place of otherwise plausible bytes.
    let lies: [&[u8]; 5] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xfe, 0xff, 0xff, 0xff, 0x0f],
        &[0x00, 0xff, 0xff, 0xff],
        &[0x7f, 0xff],
    ];
    let mut most = 0;
    for background in [0u8, 1, 2] {
        for lie in lies {
            for at in 0..120 {
                let mut bytes = vec![background; 160];
                bytes[at..at + lie.len()].copy_from_slice(lie);
                let region = Region::new(ALLOCATOR);
                decode_all(&bytes);
                most = most.max(region.change().bytes_allocated);
            }
        }
    }
    // About two hundred decodings of 160 bytes each: some kilobytes, not gigabytes.
    assert!(most > 0, "nothing was measured");
    assert!(most < 1 << 20, "{most} bytes were allocated for 160");
}
