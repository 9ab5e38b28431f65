//! Frames from real clients, decoded completely and encoded to the same bytes.
//! `tests/corpus/README.md` explains their names.

use std::path::{Path, PathBuf};

use pyrklog_wire::api;
use pyrklog_wire::api_versions::ApiVersionsRequest;
use pyrklog_wire::batch::Batches;
use pyrklog_wire::fetch::{
    FetchRequest, FetchRequestToWrite, FetchTopicToWrite, ForgottenTopicToWrite,
};
use pyrklog_wire::header::RequestHeader;
use pyrklog_wire::list_offsets::ListOffsetsRequest;
use pyrklog_wire::metadata::MetadataRequest;
use pyrklog_wire::offset_for_leader_epoch::EpochRequest;
use pyrklog_wire::produce::{self, ProduceRequest, TopicToProduce};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus folder")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "bin"))
        .collect();
    files.sort();
    files
}

/// API name and version out of a file name.
fn parse_name(path: &Path) -> (String, i16) {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let parts: Vec<_> = stem.split('_').collect();
    let [_, api, version, number] = parts[..] else {
        panic!("{stem}: four parts")
    };
    assert!(number.parse::<u32>().is_ok(), "{stem}: number");
    let version = version.strip_prefix('v').and_then(|text| text.parse().ok());
    (
        api.to_owned(),
        version.unwrap_or_else(|| panic!("{stem}: version")),
    )
}

#[test]
fn every_frame_decodes_fully_and_encodes_to_the_same_bytes() {
    let files = files();
    assert!(!files.is_empty(), "the corpus is empty");
    for path in files {
        let shown = path.display();
        let frame = std::fs::read(&path).unwrap();
        let (name, version) = parse_name(&path);
        let (header, body_start) =
            RequestHeader::parse(&frame).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let row = api::lookup(header.api_key).unwrap_or_else(|| panic!("{shown}: not served"));
        assert_eq!((row.name, header.api_version), (&*name, version), "{shown}");
        assert!(row.advertises(version), "{shown}: version not served");
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, frame[..body_start], "{shown}: header");
        encode_again(&frame, body_start, header.api_key, version, &mut again)
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(again, frame, "{shown}");
    }
}

fn encode_again(
    frame: &[u8],
    body_start: usize,
    api_key: i16,
    version: i16,
    out: &mut Vec<u8>,
) -> pyrklog_wire::Result<()> {
    let body = &frame[body_start..];
    match api_key {
        api::key::PRODUCE => produce_again(frame, body_start, version, out)?,
        api::key::FETCH => fetch_again(frame, body_start, version, out)?,
        api::key::LIST_OFFSETS => ListOffsetsRequest::decode(body, version)?.encode(out, version),
        api::key::METADATA => MetadataRequest::decode(body, version)?.encode(out, version),
        api::key::API_VERSIONS => {
            let request = ApiVersionsRequest::decode(body, version)?;
            assert!(request.is_valid(version), "{request:?}");
            request.encode(out, version);
        }
        api::key::OFFSET_FOR_LEADER_EPOCH => {
            EpochRequest::decode(body, version)?.encode(out, version);
        }
        other => panic!("API {other} has no codec here"),
    }
    Ok(())
}

fn produce_again(
    frame: &[u8],
    body_start: usize,
    version: i16,
    out: &mut Vec<u8>,
) -> pyrklog_wire::Result<()> {
    let mut request = ProduceRequest::default();
    request.decode(frame, body_start, version)?;
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let list: Vec<_> = request
            .partitions_of(topic)
            .iter()
            .map(|part| (part.index, part.records.map(|records| records.of(frame))))
            .collect();
        for records in list.iter().filter_map(|(_, records)| *records) {
            let mut batches = Batches::new(records);
            for batch in batches.by_ref() {
                pyrklog_wire::batch::verify_crc(batch?.bytes)?;
            }
            assert_eq!(batches.trailing(), []);
        }
        partitions.push(list);
    }
    let topics: Vec<_> = request
        .topics
        .iter()
        .zip(&partitions)
        .map(|(topic, partitions)| TopicToProduce {
            name: topic.name.text(frame),
            partitions,
        })
        .collect();
    let transactional_id = request.transactional_id.map(|id| id.text(frame));
    let (acks, timeout_ms) = (request.acks, request.timeout_ms);
    produce::encode_request(out, version, transactional_id, acks, timeout_ms, &topics);
    Ok(())
}

fn fetch_again(
    frame: &[u8],
    body_start: usize,
    version: i16,
    out: &mut Vec<u8>,
) -> pyrklog_wire::Result<()> {
    let mut request = FetchRequest::default();
    request.decode(frame, body_start, version)?;
    let topics: Vec<_> = request
        .topics
        .iter()
        .map(|topic| FetchTopicToWrite {
            name: topic.name.text(frame),
            id: topic.id,
            partitions: request.partitions_of(topic),
        })
        .collect();
    let forgotten: Vec<_> = request
        .forgotten
        .iter()
        .map(|topic| ForgottenTopicToWrite {
            name: topic.name.text(frame),
            id: topic.id,
            partitions: request.forgotten_of(topic),
        })
        .collect();
    FetchRequestToWrite {
        cluster_id: request.cluster_id.map(|id| id.text(frame)),
        replica_id: request.replica_id,
        replica_epoch: request.replica_epoch,
        max_wait_ms: request.max_wait_ms,
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        isolation_level: request.isolation_level,
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        topics: &topics,
        forgotten: &forgotten,
        rack_id: request.rack_id.text(frame),
    }
    .encode(out, version);
    Ok(())
}
