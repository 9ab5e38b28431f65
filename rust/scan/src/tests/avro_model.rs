//! Random schemas and values beside a plain encoder.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::avro_plain::{cells, decoded, number, prefixed};
use crate::testing::How;
use crate::typed::{Decoding, OnBad};

#[derive(Clone, Debug)]
enum Type {
    Null,
    Bool,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum,
    Decimal,
    Uuid,
    Millis,
    Date,
    List(Box<Type>),
    Map(Box<Type>),
    Record(Vec<Type>),
    /// Whether null comes first.
    Optional(Box<Type>, bool),
}

/// A value's bytes, and its cell.
type Datum = (Vec<u8>, Value);

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        Just(Type::Null),
        Just(Type::Bool),
        Just(Type::Int),
        Just(Type::Long),
        Just(Type::Float),
        Just(Type::Double),
        Just(Type::Bytes),
        Just(Type::Text),
        (0..20_usize).prop_map(Type::Fixed),
        Just(Type::Enum),
        Just(Type::Decimal),
        Just(Type::Uuid),
        Just(Type::Millis),
        Just(Type::Date),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Type::List(Box::new(one))),
            inner.clone().prop_map(|one| Type::Map(Box::new(one))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Type::Record),
            (inner, any::<bool>()).prop_map(|(one, is_first)| match one {
                Type::Null | Type::Optional(..) => one,
                one => Type::Optional(Box::new(one), is_first),
            }),
        ]
    })
}

/// Avro's JSON; `next` numbers the named types.
fn schema(of: &Type, next: &mut usize) -> Value {
    *next += 1;
    let name = format!("T{next}");
    match of {
        Type::Null => json!("null"),
        Type::Bool => json!("boolean"),
        Type::Int => json!({"type": "int"}),
        Type::Long => json!("long"),
        Type::Float => json!("float"),
        Type::Double => json!("double"),
        Type::Bytes => json!("bytes"),
        Type::Text => json!("string"),
        Type::Fixed(size) => json!({"type": "fixed", "name": name, "size": size}),
        Type::Enum => json!({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}),
        Type::Decimal => {
            json!({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2})
        }
        Type::Uuid => json!({"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}),
        Type::Millis => json!({"type": "long", "logicalType": "timestamp-millis"}),
        Type::Date => json!({"type": "int", "logicalType": "date"}),
        Type::List(item) => json!({"type": "array", "items": schema(item, next)}),
        Type::Map(values) => json!({"type": "map", "values": schema(values, next)}),
        Type::Record(fields) => record(&name, fields, next),
        Type::Optional(inner, true) => json!(["null", schema(inner, next)]),
        Type::Optional(inner, false) => json!([schema(inner, next), "null"]),
    }
}

fn record(name: &str, fields: &[Type], next: &mut usize) -> Value {
    let fields = fields.iter().enumerate().map(|(at, one)| {
        let schema = schema(one, next);
        json!({"name": format!("f{at}"), "type": schema})
    });
    json!({"type": "record", "name": name, "fields": fields.collect::<Vec<_>>()})
}

/// Elements in blocks, some of which say how long they are.
fn blocks(all: &[Vec<u8>], sizes: &[bool]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, chunk) in all.chunks(2).enumerate() {
        let (count, bytes) = (chunk.len() as i64, chunk.concat());
        match sizes[at % sizes.len()] {
            true => {
                out.extend(number(-count));
                out.extend(number(bytes.len() as i64));
            }
            false => out.extend(number(count)),
        }
        out.extend(bytes);
    }
    out.push(0);
    out
}

fn flags() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(any::<bool>(), 1..3)
}

fn datum(of: &Type) -> BoxedStrategy<Datum> {
    match of {
        Type::Null => Just((Vec::new(), Value::Null)).boxed(),
        Type::Bool => any::<bool>()
            .prop_map(|one| (vec![one.into()], one.into()))
            .boxed(),
        Type::Int | Type::Date => any::<i32>()
            .prop_map(|one| (number(one.into()), one.into()))
            .boxed(),
        Type::Long | Type::Millis => any::<i64>()
            .prop_map(|one| (number(one), one.into()))
            .boxed(),
        Type::Float => any::<f32>()
            .prop_map(|one| (one.to_le_bytes().into(), one.into()))
            .boxed(),
        Type::Double => any::<f64>()
            .prop_map(|one| (one.to_le_bytes().into(), one.into()))
            .boxed(),
        Type::Bytes => {
            let bytes = prop::collection::vec(any::<u8>(), 0..9);
            bytes.prop_map(|one| (prefixed(&one), one.into())).boxed()
        }
        Type::Text => ".{0,9}"
            .prop_map(|one| (prefixed(one.as_bytes()), one.into()))
            .boxed(),
        Type::Fixed(size) => {
            let bytes = prop::collection::vec(any::<u8>(), *size);
            bytes.prop_map(|one| (one.clone(), one.into())).boxed()
        }
        Type::Enum => (0..3_usize)
            .prop_map(|one| (number(one as i64), ["A", "B", "C"][one].into()))
            .boxed(),
        Type::Decimal => decimal().boxed(),
        Type::Uuid => any::<u128>().prop_map(uuid).boxed(),
        Type::List(item) => list(item),
        Type::Map(values) => map(values),
        Type::Record(fields) => {
            let all: Vec<_> = fields.iter().map(datum).collect();
            all.prop_map(|all| object(&all)).boxed()
        }
        Type::Optional(inner, is_first) => {
            let (null, other) = if *is_first { (0, 1) } else { (1, 0) };
            prop::option::of(datum(inner))
                .prop_map(move |one| match one {
                    None => (number(null), Value::Null),
                    Some((bytes, cell)) => ([number(other), bytes].concat(), cell),
                })
                .boxed()
        }
    }
}

fn list(item: &Type) -> BoxedStrategy<Datum> {
    let all = prop::collection::vec(datum(item), 0..5);
    let made = |(all, sizes): (Vec<Datum>, Vec<bool>)| {
        let (bytes, cells): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        (blocks(&bytes, &sizes), cells.into())
    };
    (all, flags()).prop_map(made).boxed()
}

fn map(values: &Type) -> BoxedStrategy<Datum> {
    let all = prop::collection::btree_map(".{0,3}", datum(values), 0..5);
    let entry = |(key, (bytes, cell)): (String, Datum)| {
        let bytes = [prefixed(key.as_bytes()), bytes].concat();
        (bytes, (key, cell))
    };
    let made = move |(all, sizes): (BTreeMap<String, Datum>, Vec<bool>)| {
        let (bytes, cells): (Vec<_>, Vec<_>) = all.into_iter().map(entry).unzip();
        let cells = cells.into_iter().collect();
        (blocks(&bytes, &sizes), Value::Object(cells))
    };
    (all, flags()).prop_map(made).boxed()
}

fn object(all: &[Datum]) -> Datum {
    let bytes: Vec<u8> = all.iter().flat_map(|one| one.0.clone()).collect();
    let cells = all.iter().enumerate();
    let cells = cells.map(|(at, one)| (format!("f{at}"), one.1.clone()));
    (bytes, Value::Object(cells.collect()))
}

/// Twenty digits, with more bytes than it needs.
fn decimal() -> impl Strategy<Value = Datum> {
    let most = 10_i128.pow(20);
    (-most + 1..most, 0..12_usize).prop_map(|(value, spare)| {
        let sign = if value < 0 { 0xff } else { 0 };
        let bytes = [vec![sign; spare], value.to_be_bytes().to_vec()].concat();
        (prefixed(&bytes), value.to_string().into())
    })
}

fn uuid(value: u128) -> Datum {
    let hex = format!("{value:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    (value.to_be_bytes().into(), parts.join("-").into())
}

/// A record's fields, and some of its values.
fn sent() -> impl Strategy<Value = (Vec<Type>, Vec<Datum>)> {
    let fields = prop::collection::vec(any_type(), 1..6);
    fields.prop_flat_map(|fields| {
        let all: Vec<_> = fields.iter().map(datum).collect();
        let values = prop::collection::vec(all.prop_map(|all| object(&all)), 1..6);
        (Just(fields), values)
    })
}

fn some(values: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
    values.iter().map(|value| Some(&value[..])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn values_are_what_was_written((fields, sent) in sent(), batch_rows in 1..8_usize) {
        let text = record("Root", &fields, &mut 0).to_string();
        let decoding = Decoding::avro(&text, None, None, OnBad::Fail).unwrap();
        let how = How { batch_rows, ..How::default() };
        let (values, expected): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let (batches, figures) = decoded(how, decoding, &some(&values)).unwrap();
        prop_assert_eq!(cells(&batches), expected);
        prop_assert_eq!(figures.bad, 0);
    }

    #[test]
    fn only_the_whole_value_is_good((fields, sent) in sent(), at in any::<prop::sample::Index>()) {
        let text = record("Root", &fields, &mut 0).to_string();
        let decoding = Decoding::avro(&text, None, None, OnBad::Null).unwrap();
        let (whole, cell) = &sent[0];
        let mut values = vec![whole.clone()];
        if !whole.is_empty() {
            values.push(whole[..at.index(whole.len())].to_vec());
        }
        values.push([&whole[..], &[0]].concat());
        values.push(whole.clone());
        let mut expected = vec![Value::Null; values.len()];
        expected[0] = cell.clone();
        expected[values.len() - 1] = cell.clone();
        let (batches, figures) = decoded(How::default(), decoding, &some(&values)).unwrap();
        prop_assert_eq!(cells(&batches), expected);
        prop_assert_eq!(figures.bad, values.len() as u64 - 2);
    }

    #[test]
    fn damage_costs_its_own_row(
        (fields, sent) in sent(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let text = record("Root", &fields, &mut 0).to_string();
        let (whole, cell) = &sent[0];
        let mut damaged = whole.clone();
        for (at, byte) in damage.iter().filter(|_| !whole.is_empty()) {
            damaged[at.index(whole.len())] = *byte;
        }
        for names in [None, Some(&["f0".to_owned()][..])] {
            let decoding = Decoding::avro(&text, None, names, OnBad::Null).unwrap();
            let values = [whole.clone(), damaged.clone(), whole.clone()];
            let (batches, _) = decoded(How::default(), decoding, &some(&values)).unwrap();
            let found = cells(&batches);
            let expected = match names {
                None => cell.clone(),
                Some(_) => json!({"f0": cell["f0"]}),
            };
            prop_assert_eq!(&found[0], &expected);
            prop_assert_eq!(&found[2], &expected);
        }
    }

    #[test]
    fn fields_come_in_the_order_of_the_reader(
        (fields, sent) in sent(),
        turn in 0..6_usize,
        wanted in 0..6_usize,
    ) {
        let writer = record("Root", &fields, &mut 0);
        let mut places: Vec<usize> = (0..fields.len()).collect();
        places.rotate_left(turn % fields.len());
        places.reverse();
        places.truncate(wanted);
        let all = writer["fields"].as_array().unwrap();
        let mut chosen: Vec<Value> = places.iter().map(|at| all[*at].clone()).collect();
        chosen.push(json!({"name": "more", "type": ["null", "long"], "default": null}));
        chosen.push(json!({"name": "text", "type": "string", "default": "ä"}));
        let reader = json!({"type": "record", "name": "Root", "fields": chosen});
        let (reader, writer) = (reader.to_string(), writer.to_string());
        let decoding = Decoding::avro(&reader, Some(&writer), None, OnBad::Fail).unwrap();
        let (values, whole): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let (batches, _) = decoded(How::default(), decoding, &some(&values)).unwrap();
        let expected = whole.iter().map(|cell| {
            let mut kept = json!({"more": null, "text": "ä"});
            for at in &places {
                kept[format!("f{at}")] = cell[format!("f{at}")].clone();
            }
            kept
        });
        prop_assert_eq!(cells(&batches), expected.collect::<Vec<_>>());
        let wanted = places.iter().map(|at| format!("f{at}"));
        prop_assert_eq!(names_of(&batches[0]), wanted.chain(["more".into(), "text".into()]).collect::<Vec<_>>());
    }
}

fn names_of(batch: &RecordBatch) -> Vec<String> {
    let fields = batch.column(1).as_struct().fields();
    fields.iter().map(|field| field.name().clone()).collect()
}
