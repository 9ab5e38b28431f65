//! Values of a scan as typed columns: JSON that fits, that does not, and that is damaged.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields};
use pyrklog_scan::testing::{How, decode_columns};
use pyrklog_scan::{Column, Columns, Decoding, ErrorKind, OnBad, ScanError};
use pyrklog_wire::builder::BatchBuilder;

use crate::script::Script;
use crate::{Verdict, expect, memory};

/// Gives all of a batch up for one bad value, ignores what is behind a value, replaces what is not
/// UTF-8, builds elements without a bound, keeps the first of two fields, numbers rows anew.
pub const PLANTED: &[&str] = &[
    "batch-given-up",
    "trailing-ignored",
    "utf8-replaced",
    "elements-unbounded",
    "first-field-kept",
    "rows-renumbered",
];

const MEMORY_FACTOR: usize = 4096;
/// Of up to seven batches, however small: each has some 40 columns.
const COLUMNS_BYTES: usize = 256 << 10;
/// A value's columns; about 28 elements.
const VALUE_BYTES_MAX: usize = 8192;
const ELEMENT_FIELDS: usize = 32;
/// Surely more than a value may have.
const ELEMENTS_MANY: usize = 40;
const ELEMENTS_FEW: usize = 10;
const NOW_MS: i64 = 1_700_000_000_000;

/// A value's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fitting {
    id: Option<i64>,
    text: Option<String>,
    /// The first field of each element.
    items: Option<Vec<Option<i64>>>,
}

/// What a value is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Value(Fitting),
    Tombstone,
    Bad,
    /// It was damaged: its neighbours tell.
    Anything,
}

type Sent = (Option<Vec<u8>>, Expected);
/// Offset and value.
type Row = (i64, Option<Fitting>);

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let mut sent = vec![value(script)];
    sent.extend(script.list(6, value));
    let on_bad = script.pick(&[OnBad::Null, OnBad::Drop, OnBad::Fail]);
    let how = How {
        batch_rows: 1 + script.below(5),
        batch_bytes: 1 + script.below(2000),
        large_bytes: match planted {
            Some("elements-unbounded") => 1 << 30,
            _ => VALUE_BYTES_MAX,
        },
        ..How::default()
    };
    let bytes: usize = sent.iter().flat_map(|one| &one.0).map(Vec::len).sum();
    let budget = bytes + COLUMNS_BYTES / MEMORY_FACTOR;
    let read = memory::bounded(budget, MEMORY_FACTOR, || read(how, &sent, on_bad, planted))?;
    check(&sent, on_bad, read)
}

fn check(sent: &[Sent], on_bad: OnBad, read: Result<Vec<Row>, ScanError>) -> Verdict {
    let is_unknown = sent.iter().any(|one| one.1 == Expected::Anything);
    let has_bad = sent.iter().any(|one| one.1 == Expected::Bad);
    let rows = match read {
        Ok(rows) => rows,
        Err(error) => {
            let is_due = on_bad == OnBad::Fail && (has_bad || is_unknown);
            return expect(is_due && error.kind == ErrorKind::BadValue, || {
                format!("{sent:?} with {on_bad:?}: {error}")
            });
        }
    };
    expect(on_bad != OnBad::Fail || !has_bad, || {
        format!("{sent:?} did not fail")
    })?;
    let mut found = rows.iter().peekable();
    for (offset, one) in sent.iter().enumerate() {
        let row = found.next_if(|row| row.0 == offset as i64);
        let holds = match (&one.1, row, on_bad) {
            (Expected::Anything, None, OnBad::Drop) => true,
            (Expected::Anything, Some(_), _) => true,
            (Expected::Bad, None, OnBad::Drop) => true,
            (Expected::Bad, Some((_, None)), OnBad::Null) => true,
            (Expected::Tombstone, Some((_, None)), _) => true,
            (Expected::Value(value), Some((_, Some(row))), _) => row == value,
            _ => false,
        };
        expect(holds, || {
            format!("offset {offset} of {sent:?} with {on_bad:?} is {row:?}")
        })?;
    }
    expect(found.next().is_none(), || format!("{rows:?} has more rows"))
}

fn value(script: &mut Script<'_>) -> Sent {
    let (mut text, fitting) = object(script);
    let bad = |text: String| (Some(text.into_bytes()), Expected::Bad);
    match script.below(10) {
        0 => (None, Expected::Tombstone),
        1 => {
            let end = 1 + script.below(text.len() - 1);
            let mut bytes = text.into_bytes();
            bytes.truncate(end);
            (Some(bytes), Expected::Bad)
        }
        2 => {
            text.push(script.pick(&['}', ',', '1', '{', '\0']));
            bad(text)
        }
        3 => {
            let wrong = script.pick(&["\"x\"", "1.5", "9223372036854775808", "[]", "true", "1 2"]);
            text.insert_str(text.len() - 1, &format!(",\"id\":{wrong}"));
            bad(text)
        }
        4 => {
            let wrong = script.pick(&["[1]", "{}", "[{\"f0\":\"x\"}]", "\"\""]);
            text.insert_str(text.len() - 1, &format!(",\"items\":{wrong}"));
            bad(text)
        }
        5 => {
            let many = vec!["{}"; ELEMENTS_MANY + script.below(20)].join(",");
            text.insert_str(text.len() - 1, &format!(",\"items\":[{many}]"));
            bad(text)
        }
        6 => {
            let mut bytes = text.into_bytes();
            bytes.splice(1..1, *b"\"unknown\":\"\xff\",");
            (Some(bytes), Expected::Bad)
        }
        7 => {
            let mut bytes = text.into_bytes();
            script.damage(&mut bytes);
            (Some(bytes), Expected::Anything)
        }
        _ => (Some(text.into_bytes()), Expected::Value(fitting)),
    }
}

/// A value that fits; it has a field at least.
fn object(script: &mut Script<'_>) -> (String, Fitting) {
    let mut fitting = Fitting::default();
    let mut parts = vec![format!("\"unknown\":{}", nested(script))];
    if script.bool() {
        parts.push(format!("\"id\":{}", script.i64()));
        fitting.id = Some(script.i64());
        parts.push(format!("\"id\" : {}", fitting.id.unwrap_or_default()));
    }
    if script.bool() {
        let text = script.text();
        parts.push(format!("\"text\":\"{}\"", escaped(&text)));
        fitting.text = Some(text);
    }
    if script.bool() {
        let items = script.list(ELEMENTS_FEW, |script| script.option(Script::i64));
        let element = |one: &Option<i64>| match one {
            Some(number) => format!("{{\"f0\":{number},\"more\":null}}"),
            None => "{}".into(),
        };
        let all: Vec<_> = items.iter().map(element).collect();
        parts.push(format!("\"items\":[{}]", all.join(" , ")));
        fitting.items = Some(items);
    }
    (format!("{{{}}}", parts.join(",")), fitting)
}

/// JSON that nobody asked for, at times very deep.
fn nested(script: &mut Script<'_>) -> String {
    let depth = script.pick(&[0, 1, 3, 200, 2000]);
    match script.bool() {
        true => format!("{}{}", "[".repeat(depth + 1), "]".repeat(depth + 1)),
        false => format!(
            "{}1e999{}",
            "{\"id\":".repeat(depth / 4),
            "}".repeat(depth / 4)
        ),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for one in text.chars() {
        match one {
            '\0' => out.push_str("\\u0000"),
            '\u{1f4a9}' => out.push_str("\\uD83D\\udca9"),
            '.' => write!(out, "\\u{:04x}", u32::from(one)).unwrap_or_default(),
            other => out.push(other),
        }
    }
    out
}

fn schema() -> Fields {
    let wide: Fields = (0..ELEMENT_FIELDS)
        .map(|number| Field::new(format!("f{number}"), DataType::Int64, true))
        .collect();
    let item = Field::new("item", DataType::Struct(wide), false);
    Fields::from(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("items", DataType::List(Arc::new(item)), true),
    ])
}

fn read(
    how: How,
    sent: &[Sent],
    on_bad: OnBad,
    planted: Option<&str>,
) -> Result<Vec<Row>, ScanError> {
    let mut builder = BatchBuilder::new();
    for (value, _) in sent {
        let value = value.clone().map(|value| mistaken(value, planted));
        builder.append(NOW_MS, None, value.as_deref());
    }
    let decoding = Decoding::new(&schema(), None, on_bad).unwrap_or_else(|text| panic!("{text}"));
    let columns = Columns::decoded(&[Column::Offset, Column::Value], decoding);
    let (batches, figures) = decode_columns(how, columns, &builder.build(), &[])?;
    let mut rows: Vec<Row> = batches.iter().flat_map(rows_of).collect();
    match planted {
        Some("batch-given-up") if figures.bad > 0 => {
            rows.iter_mut().for_each(|row| row.1 = None);
        }
        Some("rows-renumbered") => {
            for (number, row) in rows.iter_mut().enumerate() {
                row.0 = number as i64;
            }
        }
        _ => {}
    }
    Ok(rows)
}

/// What a typical mistake would take a value for.
fn mistaken(mut value: Vec<u8>, planted: Option<&str>) -> Vec<u8> {
    match planted {
        Some("trailing-ignored") => {
            let end = value.iter().rposition(|byte| *byte == b'}');
            value.truncate(end.map_or(0, |end| end + 1));
            value
        }
        Some("utf8-replaced") => String::from_utf8_lossy(&value).into_owned().into_bytes(),
        Some("first-field-kept") => {
            let text = String::from_utf8_lossy(&value);
            text.replace("\"id\" :", "\"ie\" :").into_bytes()
        }
        _ => value,
    }
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let offsets = batch.column(0).as_primitive::<Int64Type>();
    let values = batch.column(1).as_struct();
    let ids = values.column(0).as_primitive::<Int64Type>();
    let texts = values.column(1).as_string::<i32>();
    let lists = values.column(2).as_list::<i32>();
    let items = |row: usize| {
        let items = lists.value(row);
        let first = items.as_struct().column(0).as_primitive::<Int64Type>();
        first.iter().collect::<Vec<_>>()
    };
    let fitting = |row: usize| Fitting {
        id: ids.is_valid(row).then(|| ids.value(row)),
        text: texts.is_valid(row).then(|| texts.value(row).to_owned()),
        items: lists.is_valid(row).then(|| items(row)),
    };
    (0..batch.num_rows())
        .map(|row| {
            let value = values.is_valid(row).then(|| fitting(row));
            (offsets.value(row), value)
        })
        .collect()
}
