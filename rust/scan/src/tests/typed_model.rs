//! Random values beside what serde_json makes of them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::avro_plain::cell;
use super::typed::decoded;
use crate::testing::How;
use crate::typed::OnBad;

fn schema() -> Fields {
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let inner = Fields::from(vec![
        Field::new("x", DataType::Int64, false),
        Field::new("y", DataType::Utf8, true),
    ]);
    let list_of_structs = DataType::List(item(DataType::Struct(inner.clone())));
    let entries = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Float64, true),
    ]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(entries), false));
    Fields::from(vec![
        Field::new("i", DataType::Int64, true),
        Field::new("u", DataType::UInt8, true),
        Field::new("f", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("l", DataType::List(item(DataType::Int32)), true),
        Field::new("o", DataType::Struct(inner), true),
        Field::new("a", list_of_structs, true),
        Field::new("m", DataType::Map(entries, false), true),
        Field::new("must", DataType::Boolean, false),
    ])
}

/// What the value is in a column of this type; `None` if it does not fit.
fn fitted(value: &Value, field: &Field) -> Option<Value> {
    if value.is_null() {
        return field.is_nullable().then_some(Value::Null);
    }
    let within = |min, max| {
        let found = value.as_i64().filter(|found| (min..=max).contains(found));
        let is_zero = value.as_f64() == Some(0.0) && value.to_string().starts_with('-');
        found.or(is_zero.then_some(0)).map(Value::from)
    };
    match field.data_type() {
        DataType::Int64 => within(i64::MIN, i64::MAX),
        DataType::Int32 => within(i32::MIN.into(), i32::MAX.into()),
        DataType::UInt8 => within(0, 255),
        DataType::Float64 => value.as_f64().map(Value::from),
        DataType::Utf8 => Some(match value {
            Value::String(_) => value.clone(),
            other => Value::from(other.to_string()),
        }),
        DataType::Boolean => value.as_bool().map(Value::from),
        DataType::List(item) => {
            let all = value.as_array()?.iter().map(|one| fitted(one, item));
            all.collect::<Option<Vec<_>>>().map(Value::from)
        }
        DataType::Struct(fields) => {
            let object = value.as_object()?;
            let of = |one: &Arc<Field>| {
                let value = object.get(one.name()).unwrap_or(&Value::Null);
                Some((one.name().clone(), fitted(value, one)?))
            };
            let all = fields.iter().map(of);
            all.collect::<Option<Map<_, _>>>().map(Value::from)
        }
        DataType::Map(..) => {
            let one = Field::new("", DataType::Float64, true);
            let entries = value.as_object()?.iter();
            let all = entries.map(|(key, value)| Some((key.clone(), fitted(value, &one)?)));
            all.collect::<Option<Map<_, _>>>().map(Value::from)
        }
        other => panic!("{other}"),
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-300_i64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        let objects = prop::collection::btree_map("[xyk\"\\\\ä]{0,2}", inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            objects.prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

/// Mostly what fits a field.
fn likely(name: &'static str) -> BoxedStrategy<Value> {
    let int = || any::<i64>().prop_map(Value::from);
    let inner = || (int(), leaf()).prop_map(|(x, y)| json!({"x": x, "y": y, "z": [y]}));
    let fit = match name {
        "i" => int().boxed(),
        "u" => any::<u8>().prop_map(Value::from).boxed(),
        "f" => any::<f64>().prop_map(Value::from).boxed(),
        "s" => ".{0,9}".prop_map(Value::from).boxed(),
        "l" => prop::collection::vec(any::<i32>(), 0..4)
            .prop_map(Value::from)
            .boxed(),
        "o" => inner().boxed(),
        "a" => prop::collection::vec(inner(), 0..3)
            .prop_map(Value::from)
            .boxed(),
        "m" => prop::collection::btree_map(".{0,3}", any::<f64>(), 0..3)
            .prop_map(|all| json!(all))
            .boxed(),
        _ => any::<bool>().prop_map(Value::from).boxed(),
    };
    prop_oneof![30 => fit, 1 => anything()].boxed()
}

fn object() -> impl Strategy<Value = Value> {
    let names = ["i", "u", "f", "s", "b", "l", "o", "a", "m"];
    let field = |name| prop::option::weighted(0.7, likely(name)).prop_map(move |one| (name, one));
    let fields: Vec<_> = names.into_iter().map(field).collect();
    let must = prop::option::weighted(0.95, likely("must"));
    (fields, must, prop::option::of(anything())).prop_map(|(fields, must, unknown)| {
        let extra = [("must", must), ("unknown", unknown)];
        let all = fields.into_iter().chain(extra);
        let all = all.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(all.collect())
    })
}

/// A value's bytes: mostly an object, perhaps cut, or with a character too many.
fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let text = prop_oneof![
        10 => object().prop_map(|one| one.to_string().into_bytes()),
        1 => anything().prop_map(|one| one.to_string().into_bytes()),
    ];
    let cut = (
        text.boxed(),
        any::<prop::sample::Index>(),
        0..20,
        0..8_usize,
    );
    let bytes = cut.prop_map(|(mut text, at, what, which)| {
        let at = at.index(text.len() + 1);
        match what {
            0 => text.truncate(at),
            1 => text.insert(at, b"{}[],:\"x"[which]),
            _ => {}
        }
        text
    });
    prop::option::weighted(0.95, bytes)
}

/// What a value becomes.
fn expected(value: Option<&[u8]>) -> Option<Value> {
    let Some(value) = value else {
        return Some(Value::Null);
    };
    let value: Value = serde_json::from_slice(value).ok()?;
    fitted(
        &value,
        &Field::new("value", DataType::Struct(schema()), true),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn values_are_what_serde_json_makes_of_them(
        values in prop::collection::vec(value(), 1..20),
        batch_rows in 1..8_usize,
    ) {
        let how = How { batch_rows, ..How::default() };
        let all: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
        let models: Vec<_> = all.iter().map(|value| expected(*value)).collect();
        let bad = models.iter().filter(|one| one.is_none()).count();
        for on_bad in [OnBad::Null, OnBad::Drop] {
            let (batches, figures) = decoded(how, &schema(), on_bad, &all).unwrap();
            let cells = batches.iter().flat_map(|batch| {
                (0..batch.num_rows()).map(|row| cell(batch.column(1), row))
            });
            let wanted: Vec<_> = models
                .iter()
                .filter(|one| one.is_some() || on_bad == OnBad::Null)
                .map(|one| one.clone().unwrap_or(Value::Null))
                .collect();
            prop_assert_eq!(cells.collect::<Vec<_>>(), wanted);
            prop_assert_eq!(figures.bad, bad as u64);
        }
        let failed = decoded(how, &schema(), OnBad::Fail, &all);
        prop_assert_eq!(failed.is_err(), bad > 0);
    }
}
