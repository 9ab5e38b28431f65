//! What is common to targets of decoded values: what a scan is to make of each, and whether it does.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use pyrklog_scan::testing::{How, decode_columns};
use pyrklog_scan::{Column, Columns, Decoding, ErrorKind, OnBad, ScanError};
use pyrklog_wire::builder::BatchBuilder;

use crate::script::Script;
use crate::{Verdict, expect, memory};

/// Fields of an element of `items`.
pub(crate) const ELEMENT_FIELDS: usize = 32;
/// Surely more than a value may have.
pub(crate) const ELEMENTS_MANY: usize = 40;
pub(crate) const ELEMENTS_FEW: usize = 10;

const MEMORY_FACTOR: usize = 4096;
/// Of up to seven batches, however small: each has some 40 columns.
const COLUMNS_BYTES: usize = 256 << 10;
/// A value's columns; about 28 elements.
const VALUE_BYTES_MAX: usize = 8192;
const NOW_MS: i64 = 1_700_000_000_000;

/// A value's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitting {
    pub id: Option<i64>,
    pub text: Option<String>,
    /// The first field of each element.
    pub items: Option<Vec<Option<i64>>>,
}

/// What a value is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Value(Fitting),
    Tombstone,
    Bad,
    /// It was damaged: its neighbours tell.
    Anything,
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub value: Option<Vec<u8>>,
    pub expected: Expected,
    /// The mistakes that would take it for other bytes, and for which.
    pub mistaken: Vec<(&'static str, Vec<u8>)>,
}

impl Sent {
    pub fn new(value: Option<Vec<u8>>, expected: Expected) -> Sent {
        Sent {
            value,
            expected,
            mistaken: Vec::new(),
        }
    }

    pub fn bad(value: impl Into<Vec<u8>>) -> Sent {
        Sent::new(Some(value.into()), Expected::Bad)
    }

    /// What goes into the log.
    fn taken(&self, planted: Option<&str>) -> Option<&[u8]> {
        let mut mistaken = self.mistaken.iter();
        let found = mistaken.find(|(mistake, _)| planted == Some(*mistake));
        found
            .map(|(_, value)| value)
            .or(self.value.as_ref())
            .map(Vec::as_slice)
    }
}

/// Offset and value.
type Row = (i64, Option<Fitting>);

/// A scan of values, and whether each became what it was to become.
pub(crate) fn run(
    script: &mut Script<'_>,
    planted: Option<&str>,
    value: impl Fn(&mut Script<'_>) -> Sent,
    decoding: impl FnOnce(OnBad) -> Result<Decoding, String>,
) -> Verdict {
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
    let decoding = decoding(on_bad).unwrap_or_else(|text| panic!("{text}"));
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

fn read(
    how: How,
    sent: &[Sent],
    decoding: Decoding,
    planted: Option<&str>,
) -> Result<Vec<Row>, ScanError> {
    let mut builder = BatchBuilder::new();
    for one in sent {
        builder.append(NOW_MS, None, one.taken(planted));
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
