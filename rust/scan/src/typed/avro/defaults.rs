//! A field's default, as if it had been written.

use serde_json::Value;

use crate::typed::avro::schema::{Kind, Record, Schema};

/// Of a plan, for all branches of the writer's unions, and of defaults.
const PARTS_MAX: usize = 100_000;
/// Of a default's texts: so many are a part.
const PART_BYTES: usize = 64;

/// How many parts a plan may still get.
#[derive(Debug)]
pub(crate) struct Parts {
    left: usize,
}

impl Parts {
    pub fn new() -> Parts {
        Parts { left: PARTS_MAX }
    }

    /// Counts one.
    ///
    /// # Errors
    /// There are too many.
    pub fn count(&mut self) -> Result<(), String> {
        self.check()?;
        self.left -= 1;
        Ok(())
    }

    /// Counts some.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, count: usize) -> Result<(), String> {
        self.left = self.left.saturating_sub(count);
        self.check()
    }

    /// Whether there may be more.
    ///
    /// # Errors
    /// There are too many.
    pub fn check(&self) -> Result<(), String> {
        match self.left {
            0 => Err(format!(
                "the schemas make a plan of more than {PARTS_MAX} parts together"
            )),
            _ => Ok(()),
        }
    }

    pub fn used(&self) -> usize {
        PARTS_MAX - self.left
    }
}

/// Appends a default in Avro's binary encoding.
///
/// # Errors
/// A sentence: the default is not of the type. What was begun of it stays.
pub(crate) fn encode(
    schema: &Schema,
    value: &Value,
    out: &mut Vec<u8>,
    parts: &mut Parts,
) -> Result<(), String> {
    parts.count()?;
    let wrong = || format!("its default does not fit {}", schema.title());
    match &schema.kind {
        Kind::Null => value.is_null().then_some(()).ok_or_else(wrong)?,
        Kind::Boolean => out.push(value.as_bool().ok_or_else(wrong)?.into()),
        Kind::Int => {
            let number = value.as_i64().filter(|one| i32::try_from(*one).is_ok());
            write_number(out, number.ok_or_else(wrong)?);
        }
        Kind::Long => write_number(out, value.as_i64().ok_or_else(wrong)?),
        Kind::Float => {
            let number = value.as_f64().ok_or_else(wrong)? as f32;
            out.extend_from_slice(&number.to_le_bytes());
        }
        Kind::Double => {
            let number = value.as_f64().ok_or_else(wrong)?;
            out.extend_from_slice(&number.to_le_bytes());
        }
        Kind::String => {
            let text = value.as_str().ok_or_else(wrong)?;
            write_bytes(out, text.as_bytes(), parts)?;
        }
        Kind::Bytes => write_bytes(out, &bytes(value).ok_or_else(wrong)?, parts)?,
        Kind::Fixed(fixed) => {
            let bytes = bytes(value).filter(|bytes| bytes.len() == fixed.size);
            parts.add(fixed.size / PART_BYTES)?;
            out.extend_from_slice(&bytes.ok_or_else(wrong)?);
        }
        Kind::Enum(one) => {
            let symbol = value.as_str();
            let at = one
                .symbols
                .iter()
                .position(|known| Some(&**known) == symbol);
            write_number(out, at.ok_or_else(wrong)? as i64);
        }
        Kind::Array(item) => {
            let all = value.as_array().ok_or_else(wrong)?;
            block(out, all.len());
            for one in all {
                encode(item, one, out, parts)?;
            }
            out.push(0);
        }
        Kind::Map(values) => {
            let all = value.as_object().ok_or_else(wrong)?;
            block(out, all.len());
            for (key, one) in all {
                write_bytes(out, key.as_bytes(), parts)?;
                encode(values, one, out, parts)?;
            }
            out.push(0);
        }
        Kind::Record(record) => fields(record, value, out, parts)?,
        Kind::Union(branches) => {
            if !first_that_fits(branches, value, out, parts) {
                return Err(wrong());
            }
        }
    }
    Ok(())
}

/// Whether the default is of one of a union's types; the first one is written.
fn first_that_fits(
    branches: &[Schema],
    value: &Value,
    out: &mut Vec<u8>,
    parts: &mut Parts,
) -> bool {
    let start = out.len();
    for (at, branch) in branches.iter().enumerate() {
        write_number(out, at as i64);
        if encode(branch, value, out, parts).is_ok() {
            return true;
        }
        out.truncate(start);
    }
    false
}

fn fields(
    record: &Record,
    value: &Value,
    out: &mut Vec<u8>,
    parts: &mut Parts,
) -> Result<(), String> {
    let wrong = || format!("its default is not of the record {}", record.name);
    let given = value.as_object().ok_or_else(wrong)?;
    for field in &record.fields {
        let value = given.get(&field.name).or(field.default.as_ref());
        encode(&field.schema, value.ok_or_else(wrong)?, out, parts)?;
    }
    Ok(())
}

/// Bytes as a text of U+0000 to U+00FF.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    let chars = value.as_str()?.chars();
    chars.map(|one| u8::try_from(u32::from(one)).ok()).collect()
}

/// Begins a block; one of none is the end.
fn block(out: &mut Vec<u8>, len: usize) {
    if len > 0 {
        write_number(out, len as i64);
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8], parts: &mut Parts) -> Result<(), String> {
    parts.add(bytes.len() / PART_BYTES)?;
    write_number(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Zigzag, seven bits a byte.
fn write_number(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
