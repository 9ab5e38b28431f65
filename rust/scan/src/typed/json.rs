//! JSON into nodes, by serde_json: a field that nobody asked for is passed over without recursion
//! and without a copy, and an error ends a value, not a batch.

use std::fmt;

use arrow_schema::{DataType, Field};
use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::value::RawValue;

use crate::typed::budget::{Budget, ELEMENT_BYTES, TooMuch};
use crate::typed::node::{Children, Kind, Node, Text};
use crate::typed::numbers::{decimal, time};

/// Of a value in a message.
const SHORT_CHARS: usize = 60;

/// Whether JSON has something for a field and all below it, which have columns.
///
/// # Errors
/// A sentence: it has nothing for one of them.
pub(crate) fn check(field: &Field) -> Result<(), String> {
    match field.data_type() {
        DataType::Binary | DataType::Time32(_) | DataType::Time64(_) => Err(format!(
            "the field {:?} cannot be {}",
            field.name(),
            field.data_type()
        )),
        DataType::List(item) => check(item),
        DataType::Map(entries, _) => check(entries),
        DataType::Struct(fields) => fields.iter().try_for_each(|one| check(one)),
        _ => Ok(()),
    }
}

/// Appends a value that is one JSON object or null.
///
/// # Errors
/// The value does not fit; what was begun of it is to be taken back.
pub(crate) fn append(
    node: &mut Node,
    value: &str,
    budget: &mut Budget,
) -> Result<(), serde_json::Error> {
    let mut source = serde_json::Deserializer::from_str(value);
    Seed { node, budget }.deserialize(&mut source)?;
    source.end()
}

struct Seed<'a> {
    node: &'a mut Node,
    budget: &'a mut Budget,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        let node = &mut *self.node;
        match &mut node.kind {
            Kind::Text(text) => {
                let raw = raw(source)?;
                if raw == "null" {
                    return self.null();
                }
                self.budget.charge(raw.len()).map_err(custom)?;
                push_text(text, raw)?;
                node.nulls.append_non_null();
                Ok(())
            }
            Kind::Decimal {
                values,
                precision,
                scale,
            } => {
                let raw = raw(source)?;
                if raw == "null" {
                    return self.null();
                }
                let inner = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
                let found = decimal(inner.unwrap_or(raw), *precision, *scale);
                values.push(found.ok_or_else(|| wrong(short(raw), &node.data_type))?);
                node.nulls.append_non_null();
                Ok(())
            }
            _ => source.deserialize_any(self),
        }
    }
}

impl Seed<'_> {
    fn null<E: Error>(self) -> Result<(), E> {
        if !self.node.is_nullable {
            return Err(E::custom("it is null, which the schema does not allow"));
        }
        self.node.push_null();
        Ok(())
    }

    #[inline]
    fn int<E: Error>(self, value: i64) -> Result<(), E> {
        let node = self.node;
        match &mut node.kind {
            Kind::Int { values, range } if (range.0..=range.1).contains(&value) => {
                values.push(value);
            }
            Kind::UInt64(values) if value >= 0 => values.push(value as u64),
            Kind::Time { values, unit } if unit.is_some() || i32::try_from(value).is_ok() => {
                values.push(value);
            }
            Kind::Float { values, .. } => values.push(value as f64),
            _ => return Err(wrong(value, &node.data_type)),
        }
        node.nulls.append_non_null();
        Ok(())
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node.kind {
            Kind::Struct(_) | Kind::Map { .. } => f.write_str("an object"),
            Kind::List { .. } => f.write_str("an array"),
            _ => write!(f, "{}", self.node.data_type),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.null()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        let Kind::Bool(values) = &mut self.node.kind else {
            return Err(E::invalid_type(Unexpected::Bool(value), &self));
        };
        values.append(value);
        self.node.nulls.append_non_null();
        Ok(())
    }

    #[inline]
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.int(value)
    }

    #[inline]
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        if let Ok(small) = i64::try_from(value) {
            return self.int(small);
        }
        let node = self.node;
        match &mut node.kind {
            Kind::UInt64(values) => values.push(value),
            Kind::Float { values, .. } => values.push(value as f64),
            _ => return Err(wrong(value, &node.data_type)),
        }
        node.nulls.append_non_null();
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let node = self.node;
        match &mut node.kind {
            Kind::Float { values, is_single } => {
                if *is_single && (value as f32).is_infinite() {
                    return Err(wrong(value, &node.data_type));
                }
                values.push(value);
            }
            // serde_json has no other form for "-0".
            Kind::Int { values, .. } if value == 0.0 && value.is_sign_negative() => values.push(0),
            _ => return Err(wrong(value, &node.data_type)),
        }
        node.nulls.append_non_null();
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let Kind::Time { values, unit } = &mut self.node.kind else {
            return Err(E::invalid_type(Unexpected::Str(short(value)), &self));
        };
        let Some(found) = time(value, *unit) else {
            return Err(wrong(
                format_args!("{:?}", short(value)),
                &self.node.data_type,
            ));
        };
        values.push(found);
        self.node.nulls.append_non_null();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let Kind::List { offsets, item, .. } = &mut self.node.kind else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        let budget = self.budget;
        loop {
            let node = &mut **item;
            let width = ELEMENT_BYTES + node.width;
            let next = all.next_element_seed(Seed { node, budget })?;
            if next.is_none() {
                break;
            }
            budget.charge(width).map_err(custom)?;
        }
        offsets.push(item.len() as i32);
        self.node.nulls.append_non_null();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, all: A) -> Result<(), A::Error> {
        let row = self.node.len();
        match &mut self.node.kind {
            Kind::Struct(children) => object(children, row, all, self.budget)?,
            Kind::Map {
                offsets,
                keys,
                values,
                ..
            } => {
                entries(keys, values, all, self.budget)?;
                offsets.push(values.len() as i32);
            }
            _ => return Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
        self.node.nulls.append_non_null();
        Ok(())
    }
}

fn object<'de, A: MapAccess<'de>>(
    children: &mut Children,
    row: usize,
    mut all: A,
    budget: &mut Budget,
) -> Result<(), A::Error> {
    let mut guess = 0;
    while let Some(found) = all.next_key_seed(Find { children, guess })? {
        let Some(at) = found else {
            all.next_value::<IgnoredAny>()?;
            continue;
        };
        let node = &mut children.nodes[at];
        // Named twice: the last one counts.
        if node.len() > row {
            node.truncate(row);
        }
        all.next_value_seed(Seed { node, budget })
            .map_err(|error| within(children.fields[at].name(), &error))?;
        guess = at + 1;
    }
    for (node, field) in children.nodes.iter_mut().zip(&children.fields) {
        if node.len() > row {
            continue;
        }
        if !node.is_nullable {
            return Err(within(field.name(), &"it is missing"));
        }
        node.push_null();
    }
    Ok(())
}

fn entries<'de, A: MapAccess<'de>>(
    keys: &mut Text,
    values: &mut Node,
    mut all: A,
    budget: &mut Budget,
) -> Result<(), A::Error> {
    let width = ELEMENT_BYTES + values.width;
    while let Some(bytes) = all.next_key_seed(Key(keys))? {
        let node = &mut *values;
        all.next_value_seed(Seed { node, budget })?;
        budget.charge(bytes + width).map_err(custom)?;
    }
    Ok(())
}

/// Finds a field by its name.
struct Find<'a> {
    children: &'a Children,
    guess: usize,
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = Option<usize>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Option<usize>, D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for Find<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.children.find(name, self.guess))
    }
}

/// Appends a map's key; gives its bytes.
struct Key<'a>(&'a mut Text);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<usize, D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<usize, E> {
        self.0.push(key);
        Ok(key.len())
    }
}

/// A value as it is written.
fn raw<'de, D: Deserializer<'de>>(source: D) -> Result<&'de str, D::Error> {
    use serde_core::Deserialize;
    Ok(<&RawValue>::deserialize(source)?.get())
}

/// A string's content, or other JSON as it is written.
fn push_text<E: Error>(text: &mut Text, raw: &str) -> Result<(), E> {
    let Some(inner) = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')) else {
        text.push(raw);
        return Ok(());
    };
    if !inner.as_bytes().contains(&b'\\') {
        text.push(inner);
        return Ok(());
    }
    // Half of a surrogate pair is no text.
    let found: String = serde_json::from_str(raw).map_err(E::custom)?;
    text.push(&found);
    Ok(())
}

/// The beginning of a text, for a message.
fn short(text: &str) -> &str {
    let end = text.char_indices().nth(SHORT_CHARS);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

#[cold]
fn custom<E: Error>(error: TooMuch) -> E {
    E::custom(error)
}

#[cold]
fn wrong<E: Error>(value: impl fmt::Display, data_type: &DataType) -> E {
    E::custom(format_args!("{value} is no {data_type}"))
}

#[cold]
fn within<E: Error>(field: &str, error: &impl fmt::Display) -> E {
    E::custom(format_args!("{field}: {error}"))
}
