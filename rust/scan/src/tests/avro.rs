//! Avro: the specification's examples and rules, schemas and values that lie.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::{Value, json};

use super::avro_plain::{cells, decoded, number, prefixed};
use crate::error::ErrorKind;
use crate::testing::How;
use crate::typed::{Decoding, OnBad};

/// A record of one field, `a`.
pub(super) fn one(schema: &Value) -> String {
    json!({"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]}).to_string()
}

/// What a value of one field becomes; or the reason.
pub(super) fn read_as(writer: &str, reader: &str, value: &[u8]) -> Result<Value, String> {
    let decoding = Decoding::avro(reader, Some(writer), None, OnBad::Fail)?;
    match decoded(How::default(), decoding, &[Some(value)]) {
        Ok((batches, _)) => Ok(cells(&batches).remove(0)),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::BadValue);
            let place = "topic topic partition 3 offset 0: the value does not fit the schema: ";
            Err(error.text.strip_prefix(place).unwrap().to_owned())
        }
    }
}

pub(super) fn read(schema: &Value, value: &[u8]) -> Result<Value, String> {
    let text = one(schema);
    read_as(&text, &text, value).map(|found| found["a"].clone())
}

/// A field written as one type and read as another.
fn resolved(writer: &Value, reader: &Value, value: &[u8]) -> Result<Value, String> {
    read_as(&one(writer), &one(reader), value).map(|found| found["a"].clone())
}

pub(super) fn refused(schema: &str) -> String {
    Decoding::avro(schema, None, None, OnBad::Null).unwrap_err()
}

#[test]
fn the_examples_of_the_specification_are_read() {
    let numbers: [(i64, &[u8]); 8] = [
        (0, &[0]),
        (-1, &[1]),
        (1, &[2]),
        (-2, &[3]),
        (2, &[4]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (
            i64::MIN,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ),
    ];
    for (expected, bytes) in numbers {
        assert_eq!(read(&json!("long"), bytes), Ok(expected.into()));
        assert_eq!(number(expected), bytes);
    }
    let record = json!({"type": "record", "name": "test", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "string"}]})
    .to_string();
    let found = read_as(&record, &record, &[0x36, 0x06, 0x66, 0x6f, 0x6f]);
    assert_eq!(found, Ok(json!({"a": 27, "b": "foo"})));
    let list = json!({"type": "array", "items": "long"});
    assert_eq!(read(&list, &[0x04, 0x06, 0x36, 0x00]), Ok(json!([3, 27])));
    assert_eq!(
        read(&list, &[0x03, 0x04, 0x06, 0x36, 0x00]),
        Ok(json!([3, 27]))
    );
    let optional = json!(["null", "string"]);
    assert_eq!(read(&optional, &[0]), Ok(Value::Null));
    assert_eq!(read(&optional, &[2, 2, 0x61]), Ok("a".into()));
    let symbols = json!({"type": "enum", "name": "Foo", "symbols": ["A", "B", "C", "D"]});
    assert_eq!(read(&symbols, &[6]), Ok("D".into()));
}

/// A type's column, and what a value becomes in it.
fn has_column(schema: &Value, bytes: &[u8], data_type: DataType, expected: Value) {
    let decoding = Decoding::avro(&one(schema), None, None, OnBad::Null).unwrap();
    let fields = vec![Field::new("a", data_type, false)];
    let column = Field::new("value", DataType::Struct(fields.into()), true);
    assert_eq!(decoding.field("value"), column, "{schema}");
    assert_eq!(read(schema, bytes), Ok(expected), "{schema}");
}

fn logical(kind: &str, name: &str) -> Value {
    json!({"type": kind, "logicalType": name})
}

#[test]
fn times_have_columns_of_their_own() {
    let cases = [
        ("int", "date", number(-2), DataType::Date32),
        (
            "int",
            "time-millis",
            number(86_399_999),
            DataType::Time32(TimeUnit::Millisecond),
        ),
        (
            "long",
            "time-micros",
            number(1),
            DataType::Time64(TimeUnit::Microsecond),
        ),
    ];
    for (kind, name, bytes, data_type) in cases {
        let expected = match name {
            "date" => -2,
            "time-millis" => 86_399_999,
            _ => 1,
        };
        has_column(&logical(kind, name), &bytes, data_type, expected.into());
    }
    let units = [
        ("millis", TimeUnit::Millisecond),
        ("micros", TimeUnit::Microsecond),
        ("nanos", TimeUnit::Nanosecond),
    ];
    for (name, unit) in units {
        let utc = DataType::Timestamp(unit, Some(Arc::from("UTC")));
        let schema = logical("long", &format!("timestamp-{name}"));
        has_column(&schema, &number(-1), utc, (-1).into());
        let schema = logical("long", &format!("local-timestamp-{name}"));
        has_column(
            &schema,
            &number(i64::MAX),
            DataType::Timestamp(unit, None),
            i64::MAX.into(),
        );
    }
}

#[test]
fn decimals_and_uuids_have_columns_of_their_own() {
    let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2});
    let column = DataType::Decimal128(4, 2);
    has_column(&decimal, &[4, 0xff, 0x01], column.clone(), "-255".into());
    has_column(&decimal, &[2, 0x7f], column, "127".into());
    let fixed = json!({"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal",
        "precision": 6});
    has_column(
        &fixed,
        &[0xff, 0xff, 0xfe],
        DataType::Decimal128(6, 0),
        "-2".into(),
    );
    let uuid = json!({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"});
    let hex: Vec<u8> = (0..16).collect();
    let text = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    has_column(&uuid, &hex, DataType::Utf8, text.into());
    has_column(
        &logical("string", "uuid"),
        &prefixed(b"x"),
        DataType::Utf8,
        "x".into(),
    );
    // What Avro does not know, or not for this type, is nothing.
    has_column(
        &logical("string", "date"),
        &prefixed(b"x"),
        DataType::Utf8,
        "x".into(),
    );
    has_column(
        &logical("bytes", "decimal"),
        &prefixed(b"x"),
        DataType::Binary,
        json!([120]),
    );
    has_column(&logical("long", "colour"), &[2], DataType::Int64, 1.into());
}

#[test]
fn a_value_of_no_meaning_is_bad() {
    let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2});
    let symbols = json!({"type": "enum", "name": "E", "symbols": ["A"]});
    let cases: Vec<(Value, Vec<u8>, &str)> = vec![
        (json!("boolean"), vec![2], "a: 2 is not a boolean"),
        (json!("int"), number(1 << 31), "a: 2147483648 is not an int"),
        (
            json!("long"),
            vec![0xff; 11],
            "a: a number has more than 64 bits",
        ),
        (
            json!("long"),
            [vec![0xff; 9], vec![2]].concat(),
            "a: a number has more than 64 bits",
        ),
        (json!("long"), vec![0xff], "a: it ends in a number"),
        (json!("long"), vec![2, 0, 0], "2 bytes are left behind it"),
        (
            json!("double"),
            vec![0; 7],
            "a: it ends where 8 bytes are to come, 7 are there",
        ),
        (
            json!("string"),
            vec![4, 0x61],
            "a: it ends where 2 bytes are to come, 1 are there",
        ),
        (json!("string"), vec![1], "a: -1 is not a length"),
        (json!("string"), vec![2, 0xff], "a: not UTF-8 at byte 0"),
        (json!(["null", "long"]), vec![4], "a: 2 is not one of 2"),
        (json!(["null", "long"]), vec![1], "a: -1 is not one of 2"),
        (symbols, vec![2], "a: 1 is not one of 1"),
        (decimal.clone(), vec![0], "a: a decimal without bytes"),
        (
            decimal.clone(),
            vec![4, 0x27, 0x10],
            "a: a decimal of more than 4 digits",
        ),
        (
            decimal,
            prefixed(&[&[1][..], &[0; 16]].concat()),
            "a: a decimal of more than 4 digits",
        ),
        (
            logical("int", "time-millis"),
            vec![1],
            "a: -1 is not Time32(ms)",
        ),
        (
            logical("long", "time-micros"),
            number(86_400_000_000),
            "a: 86400000000 is not Time64(µs)",
        ),
    ];
    for (schema, bytes, reason) in cases {
        assert_eq!(read(&schema, &bytes), Err(reason.into()), "{schema}");
    }
    let nested = json!({"type": "record", "name": "S", "fields": [{"name": "b", "type": "int"}]});
    assert_eq!(read(&nested, &[]), Err("a: b: it ends in a number".into()));
}

#[test]
fn numbers_and_texts_widen_by_the_rules() {
    let two = [4];
    for reader in ["int", "long"] {
        assert_eq!(resolved(&json!("int"), &json!(reader), &two), Ok(2.into()));
    }
    for writer in ["int", "long"] {
        for reader in ["float", "double"] {
            assert_eq!(
                resolved(&json!(writer), &json!(reader), &two),
                Ok(json!(2.0))
            );
        }
    }
    // Not by way of a double, which rounds to 2^60.
    let large = (1_i64 << 60) + (1 << 36) + 1;
    let found = resolved(&json!("long"), &json!("float"), &number(large));
    assert_eq!(found, Ok(f64::from(large as f32).into()));
    let half = 0.5_f32.to_le_bytes();
    assert_eq!(
        resolved(&json!("float"), &json!("double"), &half),
        Ok(json!(0.5))
    );
    assert_eq!(
        resolved(&json!("string"), &json!("bytes"), &[2, 0x61]),
        Ok(json!([0x61]))
    );
    assert_eq!(
        resolved(&json!("bytes"), &json!("string"), &[2, 0x61]),
        Ok("a".into())
    );
    let bad = resolved(&json!("bytes"), &json!("string"), &[2, 0xff]);
    assert_eq!(bad, Err("a: not UTF-8 at byte 0".into()));
    let others = [
        ("long", "int"),
        ("double", "float"),
        ("float", "long"),
        ("int", "string"),
        ("boolean", "int"),
        ("null", "int"),
    ];
    for (writer, reader) in others {
        let reason = resolved(&json!(writer), &json!(reader), &[]).unwrap_err();
        let expected = match writer {
            "null" => "a: it is null, which the schema does not allow".to_owned(),
            _ => format!("a: {writer} is not read as {reader}"),
        };
        assert_eq!(reason, expected);
    }
    let millis = json!({"type": "long", "logicalType": "timestamp-millis"});
    let micros = json!({"type": "long", "logicalType": "timestamp-micros"});
    let reason = resolved(&millis, &micros, &[2]).unwrap_err();
    assert_eq!(
        reason,
        "a: timestamp-millis is not read as timestamp-micros"
    );
    assert_eq!(resolved(&json!("int"), &micros, &[2]), Ok(1.into()));
    assert_eq!(resolved(&millis, &json!("long"), &[2]), Ok(1.into()));
}

#[test]
fn unions_of_the_writer_are_read_by_their_branch() {
    let writer = json!(["string", "null", {"type": "array", "items": "int"}, "int"]);
    let optional = json!(["null", "long"]);
    assert_eq!(resolved(&writer, &optional, &[2]), Ok(Value::Null));
    assert_eq!(resolved(&writer, &optional, &[6, 2]), Ok(1.into()));
    let bad = resolved(&writer, &optional, &[0, 0]);
    assert_eq!(bad, Err("a: string is not read as long".into()));
    let bad = resolved(&writer, &json!("long"), &[2]);
    assert_eq!(
        bad,
        Err("a: it is null, which the schema does not allow".into())
    );
    assert_eq!(resolved(&json!("int"), &optional, &[2]), Ok(1.into()));
    assert_eq!(
        resolved(&json!(["int"]), &json!(["long"]), &[0, 2]),
        Ok(1.into())
    );
    let none = resolved(&json!(["null", "string"]), &json!("long"), &[0]);
    assert_eq!(none, Err("a: string is not read as long".into()));
    // Passed over.
    let both = |fields: Value| json!({"type": "record", "name": "R", "fields": fields}).to_string();
    let wide = both(json!([{"name": "u", "type": writer}, {"name": "a", "type": "int"}]));
    let thin = both(json!([{"name": "a", "type": "int"}]));
    for skipped in [
        vec![0_u8, 2, 0x61],
        vec![2],
        vec![4, 2, 8, 0],
        vec![4, 1, 2, 8, 0],
    ] {
        let value = [skipped, vec![10]].concat();
        assert_eq!(read_as(&wide, &thin, &value), Ok(json!({"a": 5})));
    }
}

#[test]
fn names_and_aliases_find_their_fields_and_types() {
    let symbols = |name: &str, all: Value| json!({"type": "enum", "name": name, "symbols": all});
    let writer = json!({"type": "record", "name": "old.R", "fields": [
        {"name": "x", "type": "int"},
        {"name": "e", "type": symbols("E", json!(["A", "B", "C"]))},
        {"name": "gone", "type": {"type": "map", "values": "double"}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}}]})
    .to_string();
    let mut kinds = symbols("G", json!(["B", "OTHER"]));
    kinds["aliases"] = json!(["old.E"]);
    kinds["default"] = json!("OTHER");
    let reader = json!({"type": "record", "name": "new.R", "fields": [
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}},
        {"name": "y", "aliases": ["x"], "type": "long"},
        {"name": "e", "type": kinds}]});
    let value = [&[2_u8, 4][..], &[2, 2, 0x6b], &[0; 8], &[0, 9]].concat();
    let found = read_as(&writer, &reader.to_string(), &value);
    assert_eq!(found, Ok(json!({"f": [9], "y": 1, "e": "OTHER"})));
    let found = read_as(&writer, &reader.to_string(), &[2, 2, 0, 9]);
    assert_eq!(found, Ok(json!({"f": [9], "y": 1, "e": "B"})));
    let mut without = reader.clone();
    without["fields"][2]["type"]
        .as_object_mut()
        .unwrap()
        .remove("default");
    let bad = read_as(&writer, &without.to_string(), &value);
    assert_eq!(bad, Err("e: a symbol that the schema has not".into()));
    let mut other = reader.clone();
    other["name"] = json!("S");
    let bad = read_as(&writer, &other.to_string(), &value);
    assert_eq!(
        bad,
        Err("the record old.R is not read as the record S".into())
    );
    other["aliases"] = json!(["R"]);
    assert!(read_as(&writer, &other.to_string(), &value).is_ok());
    let mut fixed = reader;
    fixed["fields"][0]["type"]["size"] = json!(2);
    let bad = read_as(&writer, &fixed.to_string(), &value);
    let reason = "f: the fixed old.F of 1 bytes is not read as the fixed new.F of 2 bytes";
    assert_eq!(bad, Err(reason.into()));
}

#[test]
fn defaults_stand_in_for_what_was_not_written() {
    let inner = json!({"type": "record", "name": "I", "fields": [
        {"name": "n", "type": "int"}, {"name": "m", "type": "long", "default": 9}]});
    let cases: Vec<(Value, Value, Value)> = vec![
        (json!(["null", "int"]), Value::Null, Value::Null),
        (json!(["int", "null"]), 7.into(), 7.into()),
        (json!(["null", "int"]), 7.into(), 7.into()),
        (json!("boolean"), true.into(), true.into()),
        (json!("long"), (-5).into(), (-5).into()),
        (json!("float"), 1.into(), json!(1.0)),
        (json!("double"), json!(0.5), json!(0.5)),
        (json!("bytes"), "\u{0}\u{ff}".into(), json!([0, 255])),
        (json!("string"), "ä".into(), "ä".into()),
        (
            json!({"type": "fixed", "name": "F", "size": 1}),
            "\u{80}".into(),
            json!([128]),
        ),
        (
            json!({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            "B".into(),
            "B".into(),
        ),
        (
            json!({"type": "array", "items": "int"}),
            json!([1, 2]),
            json!([1, 2]),
        ),
        (
            json!({"type": "array", "items": "int"}),
            json!([]),
            json!([]),
        ),
        (
            json!({"type": "map", "values": "int"}),
            json!({"k": 1}),
            json!({"k": 1}),
        ),
        (inner, json!({"n": 1}), json!({"n": 1, "m": 9})),
    ];
    let writer = one(&json!("int"));
    let reader = |schema: &Value, default: Option<&Value>| {
        let mut field = json!({"name": "b", "type": schema});
        if let Some(default) = default {
            field["default"] = default.clone();
        }
        json!({"type": "record", "name": "R", "fields": [field]}).to_string()
    };
    for (schema, default, expected) in cases {
        let text = reader(&schema, Some(&default));
        assert_eq!(
            read_as(&writer, &text, &[2]),
            Ok(json!({"b": expected})),
            "{schema}"
        );
        let wrong = reader(&schema, Some(&json!([["x"]])));
        let reason = read_as(&writer, &wrong, &[2]).unwrap_err();
        assert!(reason.starts_with("b: its default "), "{reason}");
    }
    let reason = read_as(&writer, &reader(&json!(["null", "int"]), None), &[2]).unwrap_err();
    assert_eq!(
        reason,
        "b: the writer's schema does not have it, and it has no default"
    );
}

#[test]
fn only_the_named_fields_are_read() {
    let schema = json!({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"},
        {"name": "u", "type": ["int", "string"]},
        {"name": "b", "type": "string"}]})
    .to_string();
    let reason = "the field \"u\" cannot be a union of several types";
    assert_eq!(refused(&schema), reason);
    let names = ["b".to_owned(), "a".to_owned(), "b".to_owned()];
    let decoding = Decoding::avro(&schema, None, Some(&names), OnBad::Fail).unwrap();
    let value = [&[2, 2][..], &prefixed(b"u"), &prefixed(b"b")].concat();
    let (batches, _) = decoded(How::default(), decoding, &[Some(&value), None]).unwrap();
    assert_eq!(cells(&batches), [json!({"a": 1, "b": "b"}), Value::Null]);
    let unknown = ["c".to_owned()];
    let reason = Decoding::avro(&schema, None, Some(&unknown), OnBad::Fail).unwrap_err();
    assert_eq!(reason, "the schema has no field \"c\"; it has a, u, b");
}
