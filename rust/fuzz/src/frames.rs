//! Request frames: an undamaged one is decoded as written, fact by fact; a damaged one is decoded
//! or refused within memory bounds.

use pyrklog_wire::api::{self, TABLE, key};
use pyrklog_wire::api_versions::ApiVersionsRequest;
use pyrklog_wire::fetch::FetchRequest;
use pyrklog_wire::heartbeat;
use pyrklog_wire::list_offsets::ListOffsetsRequest;
use pyrklog_wire::metadata::MetadataRequest;
use pyrklog_wire::offset_commit::OffsetCommitRequest;
use pyrklog_wire::offset_for_leader_epoch::EpochRequest;
use pyrklog_wire::produce::ProduceRequest;
use pyrklog_wire::replica_segments::ReplicaSegmentsRequest;
use pyrklog_wire::replica_start::ReplicaStartRequest;
use pyrklog_wire::{Reader, RequestHeader};

use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

mod bodies;

/// Believes a list's count; expects a client id in every header.
pub const PLANTED: &[&str] = &["count-believed", "client-id-required"];

/// What a decoded request says, one text a fact.
type Facts = Vec<String>;

/// Memory limit of a decoded request per byte of its frame: the smallest element has 2 bytes on the
/// wire and some 40 in memory.
const MEMORY_FACTOR: usize = 64;

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let row = script.pick(TABLE);
    let (low, high) = (row.min_version, row.max_version);
    let version = low + script.below((high - low + 1) as usize) as i16;
    let client_id = script.bool().then(|| script.text());
    let header = RequestHeader {
        api_key: row.key,
        api_version: version,
        correlation_id: script.i32(),
        client_id: client_id.as_deref(),
    };
    let mut frame = Vec::new();
    header.encode(&mut frame);
    let body_start = frame.len();
    let facts = bodies::write(script, row.key, version, &mut frame);
    let damage = if script.bool() {
        script.damage(&mut frame)
    } else {
        Damage::None
    };
    let read = memory::bounded(frame.len(), MEMORY_FACTOR, || read(&frame, planted))?;
    if damage != Damage::None {
        return Ok(());
    }
    let wanted = Ok((row.key, version, body_start, facts));
    expect(read == wanted, || {
        format!("written as {wanted:?}, read as {read:?}")
    })
}

type Read = (i16, i16, usize, Facts);

fn read(frame: &[u8], planted: Option<&str>) -> Result<Read, String> {
    if planted == Some("client-id-required") {
        let mut reader = Reader::new(frame, false);
        let skipped = reader.take(8).and_then(|_| reader.string());
        skipped.map_err(|error| error.to_string())?;
    }
    let (header, start) = RequestHeader::parse(frame).map_err(|error| error.to_string())?;
    let (key, version) = (header.api_key, header.api_version);
    if !api::lookup(key).is_some_and(|row| row.advertises(version)) {
        return Err("not served".into());
    }
    let body = &frame[start..];
    if planted == Some("count-believed") && key == key::LIST_OFFSETS && version < 2 {
        believe_count(body)?;
    }
    let facts = facts(frame, start, key, version).map_err(|error| error.to_string())?;
    Ok((key, version, start, facts))
}

/// The planted bug: allocates for the announced number of topics.
fn believe_count(body: &[u8]) -> Result<(), String> {
    let mut reader = Reader::new(body, false);
    let _replica = reader.i32().map_err(|error| error.to_string())?;
    let count = reader.i32().map_err(|error| error.to_string())?;
    let room: Vec<[u64; 2]> = Vec::with_capacity((count.max(0) as usize).min(1 << 24));
    std::hint::black_box(room);
    Ok(())
}

fn facts(frame: &[u8], start: usize, key: i16, version: i16) -> pyrklog_wire::Result<Facts> {
    let body = &frame[start..];
    Ok(match key {
        key::PRODUCE => {
            let mut request = ProduceRequest::default();
            request.decode(frame, start, version)?;
            bodies::produce_facts(&request, frame)
        }
        key::PRODUCE_AT => {
            let mut request = ProduceRequest::default();
            request.decode_at(frame, start, version)?;
            bodies::produce_at_facts(&request, frame)
        }
        key::FETCH => {
            let mut request = FetchRequest::default();
            request.decode(frame, start, version)?;
            bodies::fetch_facts(&request, frame)
        }
        key::LIST_OFFSETS => vec![format!("{:?}", ListOffsetsRequest::decode(body, version)?)],
        key::METADATA => vec![format!("{:?}", MetadataRequest::decode(body, version)?)],
        key::OFFSET_FOR_LEADER_EPOCH => vec![format!("{:?}", EpochRequest::decode(body, version)?)],
        key::API_VERSIONS => vec![format!("{:?}", ApiVersionsRequest::decode(body, version)?)],
        key::OFFSET_COMMIT => {
            bodies::commit_facts(&OffsetCommitRequest::decode(body, version)?, body)
        }
        key::REPLICA_SEGMENTS => {
            vec![format!(
                "{:?}",
                ReplicaSegmentsRequest::decode(body, version)?
            )]
        }
        key::REPLICA_START => vec![format!("{:?}", ReplicaStartRequest::decode(body, version)?)],
        key::HEARTBEAT => bodies::heartbeat_facts(heartbeat::decode(body, version)?.of(body)),
        // Python decodes it; its bytes are as they were written.
        _ => vec![format!("{body:?}")],
    })
}
