//! Produce versions 0 to 2: refused in their own form.
//!
//! ```text
//! request   acks i16, timeout ms i32, [topic, [partition i32, records bytes]]
//! response  [topic, [partition i32, error i16, base offset i64, v2: log append time i64]],
//!           v1: throttle ms i32
//! ```

use pyrklog_wire::{ErrorCode, Reader, Writer};

use crate::handled::{Handled, Outcome};
use crate::out_queue::OutQueue;
use crate::outcome::Close;
use crate::request::Request;

/// Answers each partition with UNSUPPORTED_VERSION; with acks=0 closes the connection.
pub fn refuse(request: Request<'_>, out: &mut OutQueue) -> Handled {
    let version = request.header.api_version;
    let (acks, topics) = request.decode(|_, _| decode(request.frame, request.body_start))?;
    if acks == 0 {
        return Err(Close::Silently.into());
    }
    request.reply(out, |body| {
        let mut writer = Writer::new(body, false);
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
    })?;
    Ok(Outcome::Replied)
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
