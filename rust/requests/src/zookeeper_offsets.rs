//! OffsetCommit 0 and OffsetFetch 0, which keep offsets in ZooKeeper: refused on each partition, as
//! by Kafka without ZooKeeper.
//!
//! ```text
//! OffsetFetch 0   group, [topic, [partition i32]]
//! its answer      [topic, [partition i32, offset i64, metadata, error i16]]
//! ```

use pyrklog_wire::api::key;
use pyrklog_wire::offset_commit::OffsetCommitRequest;
use pyrklog_wire::{ErrorCode, Reader, Writer};

use crate::admission;
use crate::context::Context;
use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::request::Request;

/// Whether a request asks for offsets in ZooKeeper.
pub fn is_meant(api_key: i16, api_version: i16) -> bool {
    api_version == 0 && matches!(api_key, key::OFFSET_COMMIT | key::OFFSET_FETCH)
}

/// Answers each partition with UNSUPPORTED_VERSION.
pub fn refuse(cx: &mut Context, request: Request<'_>, out: &mut OutQueue) -> Handled {
    let each_bytes = admission::OTHER_PARTITION_BYTES;
    let error = ErrorCode::UNSUPPORTED_VERSION;
    if request.header.api_key == key::OFFSET_COMMIT {
        let asked = request.decode(OffsetCommitRequest::decode)?;
        let partitions = asked.partitions().count();
        admission::admit_partitions(cx, request.client, partitions, each_bytes)?;
        request.reply(out, |reply| {
            asked.encode_answer(request.body(), 0, error, reply)
        })?;
        return Ok(Outcome::Replied);
    }
    let topics = request.decode(|body, _| decode_fetch(body))?;
    let partitions = topics.iter().map(|(_, partitions)| partitions.len());
    admission::admit_partitions(cx, request.client, partitions.sum(), each_bytes)?;
    request.reply(out, |reply| {
        let mut writer = Writer::new(reply, false);
        writer.array(&topics, |writer, (name, partitions)| {
            writer.string(name);
            writer.array(partitions, |writer, index| {
                writer.i32(*index);
                writer.i64(-1);
                writer.string("");
                writer.error_code(error);
            });
        });
    })?;
    Ok(Outcome::Replied)
}

type Topics<'a> = Vec<(&'a str, Vec<i32>)>;

fn decode_fetch(body: &[u8]) -> pyrklog_wire::Result<Topics<'_>> {
    let mut reader = Reader::of_request(body, 0, false);
    reader.string()?;
    reader.array(6, |reader| {
        let name = reader.string()?;
        Ok((name, reader.array(4, |reader| reader.i32())?))
    })
}
