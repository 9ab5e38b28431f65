//! Values that do not fit, wherever they are, and values that would cost more than they weigh.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use pyrklog_wire::builder::BatchBuilder;
use pyrklog_wire::message_set::{MAGIC_1, write_message};

use crate::columns::{Column, Columns};
use crate::error::{ErrorKind, Result};
use crate::progress::SplitProgress;
use crate::testing::{How, decode_columns};
use crate::typed::{Decoding, OnBad, infer};

/// Values as a broker sends them, and what becomes of them.
pub(super) fn decoded(
    how: How,
    schema: &Fields,
    on_bad: OnBad,
    values: &[Option<&[u8]>],
) -> Result<(Vec<RecordBatch>, SplitProgress)> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(7, None, *value);
    }
    let decoding = Decoding::new(schema, None, on_bad).unwrap();
    let columns = Columns::decoded(&[Column::Offset, Column::Value], decoding);
    decode_columns(how, columns, &builder.build(), &[])
}

fn structs(batches: &[RecordBatch]) -> Vec<(i64, Option<Option<i64>>)> {
    let mut rows = Vec::new();
    for batch in batches {
        let offsets = batch.column(0).as_primitive::<Int64Type>();
        let values = batch.column(1).as_struct();
        let ids = values.column(0).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let id = ids.is_valid(row).then(|| ids.value(row));
            rows.push((offsets.value(row), values.is_valid(row).then_some(id)));
        }
    }
    rows
}

/// The struct column of a single batch.
fn only(batches: &[RecordBatch]) -> &StructArray {
    assert_eq!(batches.len(), 1);
    batches[0].column(1).as_struct()
}

fn id_schema() -> Fields {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
    Fields::from(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("texts", list, true),
    ])
}

#[test]
fn a_bad_value_costs_its_own_row_wherever_it_is() {
    const COUNT: usize = 12;
    let bads: [&[u8]; 6] = [
        br#"{"texts":["a","b"],"id":"#,
        br#"{"texts":["a","b"],"id":"x"}"#,
        b"{\"texts\":[\"\xff\"]}",
        b"[1]",
        b"",
        br#"{"id":1} {"id":2}"#,
    ];
    for bad in bads {
        for at in 0..COUNT {
            for batch_rows in [1, 5, 100] {
                let texts: Vec<_> = (0..COUNT)
                    .map(|n| format!("{{\"id\": {n}, \"texts\": [\"{n}\"]}}").into_bytes())
                    .collect();
                let mut values: Vec<_> = texts.iter().map(|text| Some(&text[..])).collect();
                values[at] = Some(bad);
                let how = How {
                    batch_rows,
                    ..How::default()
                };
                let good = |n: usize| (n as i64, Some(Some(n as i64)));
                let (found, figures) = decoded(how, &id_schema(), OnBad::Null, &values).unwrap();
                let mut expected: Vec<_> = (0..COUNT).map(good).collect();
                expected[at].1 = None;
                assert_eq!(structs(&found), expected);
                assert_eq!((figures.records, figures.bad), (COUNT as u64, 1));
                let (found, figures) = decoded(how, &id_schema(), OnBad::Drop, &values).unwrap();
                expected.remove(at);
                assert_eq!(structs(&found), expected);
                assert_eq!((figures.records, figures.bad), (COUNT as u64 - 1, 1));
                assert_eq!(figures.position, COUNT as i64);
                let error = decoded(how, &id_schema(), OnBad::Fail, &values).unwrap_err();
                assert_eq!(error.kind, ErrorKind::BadValue);
                let place = format!("topic topic partition 3 offset {at}: the value does not fit");
                assert!(error.text.starts_with(&place), "{error}");
            }
        }
    }
}

#[test]
fn texts_of_neighbours_stay_apart_from_a_value_taken_back() {
    let values: [Option<&[u8]>; 3] = [
        Some(br#"{"texts":["one"]}"#),
        Some(br#"{"texts":["lost","lost too"],"id":1.5}"#),
        Some(br#"{"texts":["two",{"a": [1 ]},null,"\u00e4\n"]}"#),
    ];
    let (found, _) = decoded(How::default(), &id_schema(), OnBad::Drop, &values).unwrap();
    let lists = only(&found).column(1).as_list::<i32>();
    let texts = |row| {
        let texts = lists.value(row);
        let texts = texts.as_string::<i32>();
        let all = texts.iter().map(|text| text.map(str::to_owned));
        all.collect::<Vec<_>>()
    };
    assert_eq!(texts(0), [Some("one".to_owned())]);
    let expected = [Some("two"), Some("{\"a\": [1 ]}"), None, Some("ä\n")];
    assert_eq!(texts(1), expected.map(|text| text.map(str::to_owned)));
}

#[test]
fn only_a_bad_value_is_bad() {
    let schema = Fields::from(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("small", DataType::Int8, true),
        Field::new("big", DataType::UInt64, true),
        Field::new("single", DataType::Float32, true),
        Field::new("day", DataType::Date32, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("price", DataType::Decimal128(5, 2), true),
    ]);
    let good: [&str; 11] = [
        r#"{"id":1}"#,
        r#" {"id" : -0 , "unknown": [{"a":[]}, 1e999, "\ud800"]} "#,
        r#"{"id":1,"id":2,"small":-128}"#,
        r#"{"id":9223372036854775807,"big":18446744073709551615}"#,
        r#"{"id":1,"single":3e38}"#,
        r#"{"id":1,"day":"2026-01-31"}"#,
        r#"{"id":1,"at":"2026-01-31T12:00:00+01:00"}"#,
        r#"{"id":1,"at":1700000000000,"day":20000}"#,
        r#"{"id":1,"price":"999.99"}"#,
        r#"{"id":1,"price":1.50000,"small":null}"#,
        "null",
    ];
    let bad: [&str; 19] = [
        "{}",
        r#"{"id":null}"#,
        r#"{"id":1.0}"#,
        r#"{"id":9223372036854775808}"#,
        r#"{"id":1,"small":128}"#,
        r#"{"id":1,"big":-1}"#,
        r#"{"id":1,"single":1e39}"#,
        r#"{"id":1,"day":"2026-02-31"}"#,
        r#"{"id":1,"day":3000000000}"#,
        r#"{"id":1,"at":"soon"}"#,
        r#"{"id":1,"at":1.5}"#,
        r#"{"id":1,"price":1000}"#,
        r#"{"id":1,"price":1.255}"#,
        r#"{"id":1,}"#,
        r#"{"id":1 "small":1}"#,
        r#"{"id":01}"#,
        r#"{"id":1}}"#,
        r#"{"id":"x","id":1}"#,
        "\u{feff}{\"id\":1}",
    ];
    for text in good {
        let values = [Some(text.as_bytes())];
        decoded(How::default(), &schema, OnBad::Fail, &values).unwrap();
    }
    for text in bad {
        let values = [Some(text.as_bytes())];
        let error = decoded(How::default(), &schema, OnBad::Fail, &values);
        assert_eq!(error.unwrap_err().kind, ErrorKind::BadValue, "{text}");
    }
}

#[test]
fn messages_of_old_formats_are_decoded() {
    let mut set = Vec::new();
    for (offset, value) in [(0, Some(&b"{\"id\":1}"[..])), (1, Some(b"x")), (2, None)] {
        write_message(&mut set, (MAGIC_1, 0), offset, 7, None, value);
    }
    for (on_bad, expected) in [
        (OnBad::Null, vec![(0, Some(Some(1))), (1, None), (2, None)]),
        (OnBad::Drop, vec![(0, Some(Some(1))), (2, None)]),
    ] {
        let decoding = Decoding::new(&id_schema(), None, on_bad).unwrap();
        let columns = Columns::decoded(&[Column::Offset, Column::Value], decoding);
        let (found, figures) = decode_columns(How::default(), columns, &set, &[]).unwrap();
        assert_eq!(structs(&found), expected);
        assert_eq!(figures.bad, 1);
    }
}

/// On a small stack.
fn shallow(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn brackets_cost_neither_stack_nor_rows() {
    shallow(|| {
        const DEEP: usize = 1_000_000;
        let (open, close) = ("[".repeat(DEEP), "]".repeat(DEEP));
        let nested = "{\"o\":".repeat(DEEP);
        let fields = Fields::from(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
        ]);
        let schema = Fields::from(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
            Field::new("o", DataType::Struct(fields), true),
        ]);
        let texts = [
            (format!("{{\"unknown\":{open}{close},\"id\":1}}"), true),
            (format!("{{\"text\":{open}{close},\"id\":1}}"), true),
            (format!("{{\"unknown\":{open}"), false),
            (format!("{{\"id\":{open}{close}}}"), false),
            (format!("{{\"o\":{open}{close}}}"), false),
            (nested, false),
            (open, false),
        ];
        for (text, is_good) in texts {
            let values = [Some(text.as_bytes()), Some(br#"{"id":5}"#)];
            let how = How::default();
            let (found, _) = decoded(how, &schema, OnBad::Null, &values).unwrap();
            let first = is_good.then_some(Some(1));
            assert_eq!(structs(&found), [(0, first), (1, Some(Some(5)))]);
            infer(values.into_iter().flatten()).unwrap();
        }
    });
}

#[test]
fn small_elements_with_many_fields_are_bounded() {
    let wide: Fields = (0..1000)
        .map(|n| Field::new(format!("f{n}"), DataType::Int64, true))
        .collect();
    let item = Arc::new(Field::new("item", DataType::Struct(wide.clone()), true));
    let schema = Fields::from(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("list", DataType::List(item), true),
    ]);
    // As columns 9 GB.
    let bomb = format!("{{\"list\":[{}{{}}]}}", "{},".repeat(1_000_000));
    let values = [Some(bomb.as_bytes())];
    let error = decoded(How::default(), &schema, OnBad::Fail, &values).unwrap_err();
    assert!(
        error
            .text
            .contains("it takes more than 8388608 bytes as columns"),
        "{error}"
    );
    // The same by rows: batches end.
    let values = vec![Some(&b"{}"[..]); 1000];
    let (found, _) = decoded(How::default(), &wide, OnBad::Fail, &values).unwrap();
    assert!(found.len() >= 8, "{}", found.len());
}

#[test]
fn a_schema_is_checked_when_it_is_given() {
    let fails = |fields: Vec<Field>, names: Option<&[String]>| {
        Decoding::new(&fields.into(), names, OnBad::Null).unwrap_err()
    };
    let one = |data_type| vec![Field::new("a", data_type, true)];
    let text = fails(one(DataType::Binary), None);
    assert_eq!(text, "the field \"a\" cannot be Binary");
    let twice = vec![one(DataType::Int8).remove(0), one(DataType::Int8).remove(0)];
    assert_eq!(fails(twice, None), "the field \"a\" is there twice");
    let text = fails(one(DataType::Int8), Some(&["b".to_owned()]));
    assert_eq!(text, "the schema has no field \"b\"; it has a");
    let mut deep = DataType::Int8;
    for _ in 0..63 {
        deep = DataType::Struct(one(deep).into());
    }
    assert_eq!(fails(one(deep), None), "a schema has at most 63 levels");
    let many = (0..10_000).map(|n| Field::new(n.to_string(), DataType::Int8, true));
    assert_eq!(
        fails(many.collect(), None),
        "a schema has at most 10000 fields"
    );
}

#[test]
fn a_schema_is_what_values_have_in_common() {
    let sample: [&[u8]; 6] = [
        br#"{"b":1,"a":null,"o":{"x":[1]},"mixed":1,"none":[]}"#,
        br#"{"a":true,"b":2.5,"o":{"x":[2.5,null],"y":"t"},"mixed":"1"}"#,
        br#"{"big":18446744073709551615,"mixed":{},"nul\u0000":1}"#,
        b"no JSON",
        b"[1]",
        b"\xff",
    ];
    let list = |data_type| DataType::List(Arc::new(Field::new("item", data_type, true)));
    let fields = |all: Vec<(&str, DataType)>| -> Fields {
        let field = |(name, data_type)| Field::new(name, data_type, true);
        all.into_iter().map(field).collect::<Vec<_>>().into()
    };
    let object = fields(vec![("x", list(DataType::Float64)), ("y", DataType::Utf8)]);
    let expected = fields(vec![
        ("b", DataType::Float64),
        ("a", DataType::Boolean),
        ("o", DataType::Struct(object)),
        ("mixed", DataType::Utf8),
        ("none", list(DataType::Utf8)),
        ("big", DataType::Float64),
    ]);
    assert_eq!(infer(sample), Ok(expected.clone()));
    Decoding::new(&expected, None, OnBad::Null).unwrap();
    let values: Vec<_> = sample.iter().map(|value| Some(*value)).collect();
    let (_, figures) = decoded(How::default(), &expected, OnBad::Null, &values).unwrap();
    assert_eq!(figures.bad, 3);
    let text = infer([&b"1"[..], b"null"]).unwrap_err();
    assert!(text.starts_with("none of the 2 values in the sample is a JSON object"));
    let many: Vec<_> = (0..2000).map(|n| format!("\"{n}\":1")).collect();
    let many = format!("{{{}}}", many.join(","));
    assert!(
        infer([many.as_bytes()])
            .unwrap_err()
            .contains("more than 1000 fields")
    );
    let dictionary = format!("{{\"m\":{many}}}");
    let found = infer([dictionary.as_bytes()]).unwrap();
    assert_eq!(found[0].data_type(), &DataType::Utf8);
}
