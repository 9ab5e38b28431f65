//! One datum into nodes. Nothing that its bytes say of lengths is believed before it is there.

use std::fmt;
use std::sync::Arc;

use crate::typed::avro::plan::{Read, Skip, Step};
use crate::typed::budget::{Budget, ELEMENT_BYTES};
use crate::typed::input::{Input, NUMBER_BYTES_MAX, no_number};
use crate::typed::node::{Children, Kind, Node, Text};
use crate::typed::words::within;

const UUID_BYTES: usize = 16;
const UUID_CHARS: usize = 36;
/// Bytes of the largest decimal.
const DECIMAL_BYTES_MAX: usize = 16;

/// Appends a datum.
///
/// # Errors
/// A sentence: it does not fit; what was begun of it is to be taken back.
pub(crate) fn append(
    read: &Read,
    node: &mut Node,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<(), String> {
    let mut input = Input { rest: bytes };
    value(read, node, &mut input, budget)?;
    match input.rest.len() {
        0 => Ok(()),
        left => Err(format!("{left} bytes are left behind it")),
    }
}

impl<'a> Input<'a> {
    /// Zigzag, seven bits a byte.
    #[inline]
    fn long(&mut self) -> Result<i64, String> {
        let mut found = 0_u64;
        for (at, byte) in self.rest.iter().take(NUMBER_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // One bit is left for the last byte.
            if at == NUMBER_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            found |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok((found >> 1) as i64 ^ -((found & 1) as i64));
            }
        }
        Err(no_number(self.rest.len()))
    }

    /// A length, and so many bytes.
    #[inline]
    fn sized(&mut self) -> Result<&'a [u8], String> {
        let len = self.long()?;
        match usize::try_from(len) {
            Ok(len) => self.take(len),
            Err(_) => Err(wrong("a length", len)),
        }
    }

    /// How many elements the next block has, and perhaps its bytes; 0 at the end.
    #[inline]
    fn block(&mut self) -> Result<(u64, Option<i64>), String> {
        let count = self.long()?;
        if count >= 0 {
            return Ok((count as u64, None));
        }
        let bytes = self.long()?;
        Ok((count.unsigned_abs(), Some(bytes)))
    }
}

fn value(
    read: &Read,
    node: &mut Node,
    input: &mut Input<'_>,
    budget: &mut Budget,
) -> Result<(), String> {
    match read {
        Read::Null => {
            node.push_null();
            return Ok(());
        }
        Read::Union(branches) => {
            let read = branch(branches, input.long()?)?;
            let read = read.as_ref().map_err(String::clone)?;
            return value(read, node, input, budget);
        }
        Read::Whole { is_int } => whole(*is_int, node, input)?,
        Read::Bool => boolean(node, input)?,
        Read::Float => float(node, f32::from_le_bytes(input.array()?).into())?,
        Read::Double => float(node, f64::from_le_bytes(input.array()?))?,
        Read::Bytes => bytes(node, input.sized()?, budget)?,
        Read::Fixed(len) => bytes(node, input.take(*len)?, budget)?,
        Read::Decimal => decimal(node, input.sized()?)?,
        Read::DecimalFixed(len) => decimal(node, input.take(*len)?)?,
        Read::UuidFixed => uuid(node, input.array()?, budget)?,
        Read::Enum(symbols) => symbol(node, branch(symbols, input.long()?)?, budget)?,
        Read::Array(item) => array(item, node, input, budget)?,
        Read::Map(values) => map(values, node, input, budget)?,
        Read::Record(steps, defaults) => {
            let Kind::Struct(children) = &mut node.kind else {
                return Err(other_column(node));
            };
            fields(steps, children, input, budget)?;
            for default in defaults {
                let child = &mut children.nodes[default.field];
                let mut input = Input {
                    rest: &default.bytes,
                };
                value(&default.read, child, &mut input, budget)?;
            }
        }
    }
    node.nulls.append_non_null();
    Ok(())
}

fn fields(
    steps: &[Step],
    children: &mut Children,
    input: &mut Input<'_>,
    budget: &mut Budget,
) -> Result<(), String> {
    for step in steps {
        match step {
            Step::Skip(what) => skip(what, input)?,
            Step::Read(at, read) => value(read, &mut children.nodes[*at], input, budget)
                .map_err(|reason| within(children.fields[*at].name(), reason))?,
        }
    }
    Ok(())
}

#[inline]
fn whole(is_int: bool, node: &mut Node, input: &mut Input<'_>) -> Result<(), String> {
    let found = input.long()?;
    if is_int && i32::try_from(found).is_err() {
        return Err(wrong("an int", found));
    }
    match &mut node.kind {
        Kind::Int { values, range } if (range.0..=range.1).contains(&found) => values.push(found),
        Kind::Time { values, unit } if unit.is_some() || i32::try_from(found).is_ok() => {
            values.push(found);
        }
        // Once rounded, not twice.
        Kind::Float { values, is_single } if *is_single => values.push((found as f32).into()),
        Kind::Float { values, .. } => values.push(found as f64),
        _ => return Err(wrong(&node.data_type, found)),
    }
    Ok(())
}

fn boolean(node: &mut Node, input: &mut Input<'_>) -> Result<(), String> {
    let found = input.array::<1>()?[0];
    let Kind::Bool(values) = &mut node.kind else {
        return Err(other_column(node));
    };
    if found > 1 {
        return Err(wrong("a boolean", found.into()));
    }
    values.append(found == 1);
    Ok(())
}

#[inline]
fn float(node: &mut Node, found: f64) -> Result<(), String> {
    let Kind::Float { values, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    values.push(found);
    Ok(())
}

/// A text, or bytes.
#[inline]
fn bytes(node: &mut Node, found: &[u8], budget: &mut Budget) -> Result<(), String> {
    let Kind::Text(text) = &mut node.kind else {
        return Err(other_column(node));
    };
    charge(budget, found.len())?;
    match node.data_type {
        arrow_schema::DataType::Binary => text.push_bytes(found),
        _ => text.push(utf8(found)?),
    }
    Ok(())
}

fn uuid(node: &mut Node, found: [u8; UUID_BYTES], budget: &mut Budget) -> Result<(), String> {
    let mut text = String::with_capacity(UUID_CHARS);
    for (at, byte) in found.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    bytes(node, text.as_bytes(), budget)
}

fn symbol(node: &mut Node, found: &Option<Arc<str>>, budget: &mut Budget) -> Result<(), String> {
    match found {
        Some(text) => bytes(node, text.as_bytes(), budget),
        None => Err("a symbol that the schema has not".into()),
    }
}

/// A number in two's complement, the highest byte first, of any length.
fn decimal(node: &mut Node, found: &[u8]) -> Result<(), String> {
    let Kind::Decimal {
        values, precision, ..
    } = &mut node.kind
    else {
        return Err(other_column(node));
    };
    let first = *found.first().ok_or("a decimal without bytes")?;
    let sign = if first & 0x80 == 0 { 0 } else { 0xff };
    let spare = found.len().saturating_sub(DECIMAL_BYTES_MAX);
    let (head, tail) = found.split_at(spare);
    let mut number = [sign; DECIMAL_BYTES_MAX];
    number[DECIMAL_BYTES_MAX - tail.len()..].copy_from_slice(tail);
    let number = i128::from_be_bytes(number);
    let is_whole = head.iter().all(|byte| *byte == sign) && (number < 0) == (sign != 0);
    let most = 10_u128.pow((*precision).into());
    if !is_whole || number.unsigned_abs() >= most {
        return Err(format!("a decimal of more than {precision} digits"));
    }
    values.push(number);
    Ok(())
}

fn array(
    item: &Read,
    node: &mut Node,
    input: &mut Input<'_>,
    budget: &mut Budget,
) -> Result<(), String> {
    let Kind::List {
        offsets,
        item: column,
        ..
    } = &mut node.kind
    else {
        return Err(other_column(node));
    };
    let width = ELEMENT_BYTES + column.width;
    loop {
        let (count, _) = input.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            charge(budget, width)?;
            value(item, column, input, budget)?;
        }
    }
    offsets.push(column.len() as i32);
    Ok(())
}

fn map(
    read: &Read,
    node: &mut Node,
    input: &mut Input<'_>,
    budget: &mut Budget,
) -> Result<(), String> {
    let Kind::Map {
        offsets,
        keys,
        values,
        ..
    } = &mut node.kind
    else {
        return Err(other_column(node));
    };
    let width = ELEMENT_BYTES + values.width;
    loop {
        let (count, _) = input.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            key(keys, input.sized()?, width, budget)?;
            value(read, values, input, budget)?;
        }
    }
    offsets.push(values.len() as i32);
    Ok(())
}

fn key(keys: &mut Text, found: &[u8], width: usize, budget: &mut Budget) -> Result<(), String> {
    charge(budget, width + found.len())?;
    keys.push(utf8(found)?);
    Ok(())
}

fn skip(what: &Skip, input: &mut Input<'_>) -> Result<(), String> {
    match what {
        Skip::Bytes(len) => {
            input.take(*len)?;
        }
        Skip::Number => {
            input.long()?;
        }
        Skip::Prefixed => {
            input.sized()?;
        }
        Skip::Array(item) => {
            let is_empty = matches!(**item, Skip::Bytes(0));
            skip_blocks(input, is_empty, |input| skip(item, input))?;
        }
        Skip::Map(values) => skip_blocks(input, false, |input| {
            input.sized()?;
            skip(values, input)
        })?,
        Skip::All(all) => {
            for one in all {
                skip(one, input)?;
            }
        }
        Skip::One(branches) => skip(branch(branches, input.long()?)?, input)?,
    }
    Ok(())
}

/// Passes over the blocks of an array or a map: by their bytes, if they say so. Elements of no bytes
/// may be more than could be counted.
fn skip_blocks<'a>(
    input: &mut Input<'a>,
    is_empty: bool,
    mut one: impl FnMut(&mut Input<'a>) -> Result<(), String>,
) -> Result<(), String> {
    loop {
        match input.block()? {
            (0, _) => return Ok(()),
            (_, Some(bytes)) => {
                let len = usize::try_from(bytes).map_err(|_| wrong("a length", bytes))?;
                input.take(len)?;
            }
            _ if is_empty => {}
            (count, None) => {
                for _ in 0..count {
                    one(input)?;
                }
            }
        }
    }
}

#[inline]
fn branch<T>(all: &[T], at: i64) -> Result<&T, String> {
    let found = usize::try_from(at).ok().and_then(|at| all.get(at));
    found.ok_or_else(|| wrong(format_args!("one of {}", all.len()), at))
}

#[inline]
fn charge(budget: &mut Budget, bytes: usize) -> Result<(), String> {
    budget.charge(bytes).map_err(|error| error.to_string())
}

#[inline]
fn utf8(found: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(found).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))
}

#[cold]
fn wrong(what: impl fmt::Display, found: i64) -> String {
    format!("{found} is not {what}")
}

/// A plan fits its columns: both are made of the same schema.
#[cold]
fn other_column(node: &Node) -> String {
    format!("no value for a column of {}", node.data_type)
}
