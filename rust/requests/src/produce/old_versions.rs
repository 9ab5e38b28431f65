//! Produce versions 0 to 2: refused in their own form.
//!
//! ```text
//! request   acks i16, timeout ms i32, [topic, [partition i32, records bytes]]
//! response  [topic, [partition i32, error i16, base offset i64, v2: log append time i64]],
//!           v1: throttle ms i32
//! ```

use pyrklog_wire::header::{RequestHeader, encode_response_header};
use pyrklog_wire::{ErrorCode, Reader, Writer};

use crate::client::Client;
use crate::outcome::Close;
use crate::outcome::Step;

/// Answers each partition with UNSUPPORTED_VERSION; closes the connection where the client wants
/// no reply (acks=0).
pub fn refuse(
    client: &mut Client,
    header: RequestHeader<'_>,
    frame: &[u8],
    body_start: usize,
) -> Result<Step, Close> {
    let version = header.api_version;
    let (acks, topics) = decode(frame, body_start)
        .map_err(|error| Close::Protocol(format!("Produce v{version}: {error}")))?;
    if acks == 0 {
        return Err(Close::Silently);
    }
    let open = client.out.begin_frame();
    encode_response_header(
        client.out.memory(),
        header.api_key,
        version,
        header.correlation_id,
    );
    let mut writer = Writer::new(client.out.memory(), false);
    writer.array(&topics, |writer, (name, partitions)| {
        writer.string(name);
        writer.array(partitions, |writer, index| {
            writer.i32(*index);
            writer.i16(ErrorCode::UNSUPPORTED_VERSION.0);
            writer.i64(-1);
            if version >= 2 {
                writer.i64(-1);
            }
        });
    });
    if version >= 1 {
        writer.i32(0);
    }
    client.out.end_frame(open)?;
    Ok(Step::Taken)
}

type Topics<'a> = Vec<(&'a str, Vec<i32>)>;

fn decode(frame: &[u8], body_start: usize) -> pyrklog_wire::Result<(i16, Topics<'_>)> {
    let mut reader = Reader::of_request(frame, body_start, false);
    let acks = reader.i16()?;
    reader.i32()?;
    let topics = reader.array(6, |reader| {
        let name = reader.string()?;
        let partitions = reader.array(8, |reader| {
            let index = reader.i32()?;
            reader.nullable_bytes()?;
            Ok(index)
        })?;
        Ok((name, partitions))
    })?;
    Ok((acks, topics))
}
