//! Avro values of a scan: data that fit, that do not, and that are damaged, read by another schema
//! than they were written with.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use pyrklog_scan::testing::{How, decode_columns};
use pyrklog_scan::{Column, Columns, Decoding, ErrorKind, OnBad, ScanError};
use pyrklog_wire::builder::BatchBuilder;

use crate::script::Script;
use crate::{Verdict, expect, memory};

/// Gives all of a batch up for one bad value, ignores what is behind a value, replaces what is not
/// UTF-8, takes an unknown branch for the last one, builds elements without a bound, numbers rows
/// anew.
pub const PLANTED: &[&str] = &[
    "batch-given-up",
    "trailing-ignored",
    "utf8-replaced",
    "branch-guessed",
    "elements-unbounded",
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
    text: String,
    /// The first field of each element.
    items: Vec<Option<i64>>,
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

#[derive(Clone, Debug)]
struct Sent {
    value: Option<Vec<u8>>,
    expected: Expected,
    /// The mistake that would take it for other bytes.
    mistaken: Option<(&'static str, Vec<u8>)>,
}

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
    let bytes: usize = sent.iter().flat_map(|one| &one.value).map(Vec::len).sum();
    let budget = bytes + COLUMNS_BYTES / MEMORY_FACTOR;
    let (reader, writer) = schemas();
    let decoding = Decoding::avro(&reader, Some(&writer), None, on_bad);
    let decoding = decoding.unwrap_or_else(|text| panic!("{text}"));
    let read = memory::bounded(budget, MEMORY_FACTOR, || {
        read(how, &sent, decoding, planted)
    })?;
    check(&sent, on_bad, read)
}

fn check(sent: &[Sent], on_bad: OnBad, read: Result<Vec<Row>, ScanError>) -> Verdict {
    let is_unknown = sent.iter().any(|one| one.expected == Expected::Anything);
    let has_bad = sent.iter().any(|one| one.expected == Expected::Bad);
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
        let holds = match (&one.expected, row, on_bad) {
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
    let fitting = Fitting {
        id: script.option(Script::i64),
        text: script.text(),
        items: script.list(ELEMENTS_FEW, |script| script.option(Script::i64)),
    };
    let unknown = unknown(script);
    let good = written(&fitting, fitting.text.as_bytes(), &unknown, 1);
    let bad = |value: Vec<u8>, mistaken| Sent {
        value: Some(value),
        expected: Expected::Bad,
        mistaken,
    };
    match script.below(10) {
        0 => Sent {
            value: None,
            expected: Expected::Tombstone,
            mistaken: None,
        },
        1 => bad(good[..script.below(good.len())].to_vec(), None),
        2 => {
            let longer = [&good[..], &[script.pick(&[0, 1, 0xff])]].concat();
            bad(longer, Some(("trailing-ignored", good)))
        }
        3 => {
            let text = [fitting.text.as_bytes(), b"\xff"].concat();
            let replaced = String::from_utf8_lossy(&text).into_owned();
            let mistaken = written(&fitting, replaced.as_bytes(), &unknown, 1);
            let value = written(&fitting, &text, &unknown, 1);
            bad(value, Some(("utf8-replaced", mistaken)))
        }
        4 => {
            let id = Some(fitting.id.unwrap_or(7));
            let fitting = Fitting { id, ..fitting };
            let branch = script.pick(&[2, -1, i64::MAX, i64::MIN]);
            let value = written(&fitting, fitting.text.as_bytes(), &unknown, branch);
            let mistaken = written(&fitting, fitting.text.as_bytes(), &unknown, 1);
            bad(value, Some(("branch-guessed", mistaken)))
        }
        5 => {
            let items = vec![None; ELEMENTS_MANY + script.below(20)];
            let fitting = Fitting { items, ..fitting };
            bad(
                written(&fitting, fitting.text.as_bytes(), &unknown, 1),
                None,
            )
        }
        6 => {
            // Without an end, whatever it counts.
            let count = script.pick(&[1, 1 << 40, i64::MAX, i64::MIN, -1]);
            let mut value = [number(0), number(0), number(count)].concat();
            value.extend(number(script.pick(&[0, 1, -1, i64::MAX])));
            bad(value, None)
        }
        7 => {
            let mut value = good;
            script.damage(&mut value);
            Sent {
                value: Some(value),
                expected: Expected::Anything,
                mistaken: None,
            }
        }
        _ => Sent {
            value: Some(good),
            expected: Expected::Value(fitting),
            mistaken: None,
        },
    }
}

/// A datum of the writer's schema; an id that is there is said to be of `branch`.
fn written(fitting: &Fitting, text: &[u8], unknown: &[u8], branch: i64) -> Vec<u8> {
    let mut out = match fitting.id {
        None => number(0),
        Some(id) => [number(branch), number(id)].concat(),
    };
    out.extend(prefixed(text));
    out.extend_from_slice(unknown);
    for (at, item) in fitting.items.iter().enumerate() {
        let element = match item {
            None => number(0),
            Some(one) => [number(1), number(*one)].concat(),
        };
        match at % 2 {
            0 => out.extend(number(1)),
            _ => out.extend([number(-1), number(element.len() as i64)].concat()),
        }
        out.extend(element);
    }
    out.push(0);
    out
}

/// A map of lists that nobody asks for.
fn unknown(script: &mut Script<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..script.below(3) {
        out.extend(number(1));
        out.extend(prefixed(script.text().as_bytes()));
        // Elements of no bytes: as many as can be counted.
        out.extend(number(script.pick(&[1, i64::MAX])));
        out.push(0);
    }
    out.push(0);
    out
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len() as i64), bytes.to_vec()].concat()
}

fn number(value: i64) -> Vec<u8> {
    let mut rest = (i128::from(value) * 2) as u64;
    if value < 0 {
        rest = !rest;
    }
    let mut out = Vec::new();
    while rest > 127 {
        out.push((rest % 128) as u8 + 128);
        rest /= 128;
    }
    out.push(rest as u8);
    out
}

/// The reader's and the writer's.
fn schemas() -> (String, String) {
    let optional = r#"["null","long"]"#;
    let wide: Vec<_> = (1..ELEMENT_FIELDS)
        .map(|at| format!(r#",{{"name":"f{at}","type":{optional},"default":null}}"#))
        .collect();
    let schema = |more: &str, unknown: &str| {
        format!(
            r#"{{"type":"record","name":"Value","fields":[
            {{"name":"id","type":{optional}}},{{"name":"text","type":"string"}},{unknown}
            {{"name":"items","type":{{"type":"array","items":{{"type":"record","name":"Item",
            "fields":[{{"name":"f0","type":{optional}}}{more}]}}}}}}]}}"#
        )
    };
    let unknown = r#"{"name":"unknown","type":{"type":"map","values":
        {"type":"array","items":"null"}}},"#;
    (schema(&wide.concat(), ""), schema("", unknown))
}

fn read(
    how: How,
    sent: &[Sent],
    decoding: Decoding,
    planted: Option<&str>,
) -> Result<Vec<Row>, ScanError> {
    let mut builder = BatchBuilder::new();
    for one in sent {
        let mistaken = one.mistaken.as_ref();
        let mistaken = mistaken.filter(|(mistake, _)| planted == Some(*mistake));
        let value = mistaken.map(|(_, value)| value).or(one.value.as_ref());
        builder.append(NOW_MS, None, value.map(Vec::as_slice));
    }
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
        text: texts.value(row).to_owned(),
        items: items(row),
    };
    (0..batch.num_rows())
        .map(|row| {
            let value = values.is_valid(row).then(|| fitting(row));
            (offsets.value(row), value)
        })
        .collect()
}
