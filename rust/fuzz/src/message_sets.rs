//! Produced message sets of formats 0 and 1: built, perhaps damaged, given a right checksum, and
//! made a batch.

use pyrklog_log::compression::{CompressedStream, Lz4Header};
use pyrklog_log::validate::{Rules, validate_produce};
use pyrklog_wire::batch::Compression;
use pyrklog_wire::message_set::{
    MAGIC_0, MAGIC_1, begin_wrapper, crc32, end_wrapper, next_len, write_message,
};

use crate::batches::{NOW_MS, check_stored, records_of, rules};
use crate::script::{Damage, Script};
use crate::{Verdict, expect, memory};

/// Ignores checksums; believes a size.
pub const PLANTED: &[&str] = &["set-checksum-ignored", "set-size-believed"];

const PRODUCE_VERSION: i16 = 2;

/// As for record batches: codecs need fixed memory for windows and tables.
const MEMORY_FACTOR: usize = 4096;
const CODEC_BYTES: usize = 12 << 20;

const SIZE_AT: usize = 8;
const CRC_AT: usize = 12;
const CRC_FROM: usize = 16;
const MESSAGES_MAX: usize = 5;

/// Key and value.
type Message = (Option<Vec<u8>>, Option<Vec<u8>>);

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let magic = script.pick(&[MAGIC_0, MAGIC_1]);
    let codec = script.pick(&[
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
    ]);
    let messages = script.list(MESSAGES_MAX, |script| {
        (
            script.option(|script| script.bytes(8)),
            script.option(|script| script.bytes(40)),
        )
    });
    let is_nested = codec != Compression::None && script.one_in(8);
    let mut inner = plain(script, magic, &messages);
    if is_nested {
        inner = wrapped(magic, codec, &inner);
    }
    let mut bytes = match codec {
        Compression::None => inner,
        codec => wrapped(magic, codec, &inner),
    };
    let built = bytes.clone();
    let damage = match script.bool() {
        true => script.damage(&mut bytes),
        false => Damage::None,
    };
    let is_mended = script.bool() && mend(&mut bytes);
    let rules = Rules {
        produce_version: PRODUCE_VERSION,
        ..rules(script)
    };
    let budget = bytes.len() + CODEC_BYTES / MEMORY_FACTOR;
    let sent = bytes.clone();
    let result = memory::bounded(budget, MEMORY_FACTOR, || {
        validate(&mut bytes, &rules, planted)
    })?;
    let stored = match result {
        Ok(stored) => stored,
        Err(problem) if damage == Damage::None && !messages.is_empty() && !is_nested => {
            return Err(format!("a good set was refused: {problem}"));
        }
        Err(_) => return Ok(()),
    };
    check_stored(&stored, &rules)?;
    let found = records_of(&stored)?;
    let found: Vec<Message> = found.into_iter().map(|one| (one.0, one.1)).collect();
    if damage == Damage::None {
        expect(!is_nested, || "a nested set was accepted".into())?;
        return expect(found == messages, || {
            format!("sent {messages:?}, stored {found:?}")
        });
    }
    // What is behind whole messages does not count; within them a checksum covers all but offsets,
    // and each message that was kept is one that was sent.
    let is_prefix = messages.starts_with(&found);
    expect(is_mended || is_prefix, || {
        format!("{sent:02x?} of {built:02x?} was stored as {found:?}")
    })
}

fn plain(script: &mut Script<'_>, magic: i8, messages: &[Message]) -> Vec<u8> {
    let mut set = Vec::new();
    for (offset, (key, value)) in (0..).zip(messages) {
        let timestamp = NOW_MS - script.below(1000) as i64;
        let (key, value) = (key.as_deref(), value.as_deref());
        write_message(&mut set, (magic, 0), offset, timestamp, key, value);
    }
    set
}

fn wrapped(magic: i8, codec: Compression, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let wrapper = begin_wrapper(&mut out, (magic, codec as i8));
    let header = match magic {
        MAGIC_0 => Lz4Header::Format0,
        _ => Lz4Header::Standard,
    };
    let stream = CompressedStream::new(codec, header, out).and_then(|mut stream| {
        stream.write(inner)?;
        stream.finish()
    });
    let mut out = stream.unwrap_or_default();
    // An offset of zero says nothing, as some clients write it.
    end_wrapper(&mut out, wrapper, 0, NOW_MS);
    out
}

/// Sets the first message's size and checksum right, if there is room.
fn mend(bytes: &mut [u8]) -> bool {
    let Ok(Some(len)) = next_len(bytes) else {
        return false;
    };
    let Some(message) = bytes.get_mut(..len) else {
        return false;
    };
    let crc = crc32(&message[CRC_FROM..]);
    message[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    true
}

fn validate(bytes: &mut [u8], rules: &Rules, planted: Option<&str>) -> Result<Vec<u8>, String> {
    match planted {
        Some("set-checksum-ignored") => {
            mend(bytes);
        }
        Some("set-size-believed") => {
            if let Some(size) = bytes.get(SIZE_AT..CRC_AT) {
                let size = i32::from_be_bytes([size[0], size[1], size[2], size[3]]);
                let room: Vec<u8> = Vec::with_capacity(size.clamp(0, 1 << 28) as usize);
                std::hint::black_box(room);
            }
        }
        _ => {}
    }
    let validated = validate_produce(bytes, rules, NOW_MS).map_err(|error| error.to_string())?;
    let len = validated.info.total_len();
    Ok(validated.rewritten.unwrap_or_else(|| bytes[..len].to_vec()))
}
