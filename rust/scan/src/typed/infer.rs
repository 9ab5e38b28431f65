//! A schema that a sample of values has in common.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::typed::node::FIELDS_MAX;

/// Deeper values are text.
const LEVELS_MAX: usize = 32;
/// An object of more fields is a dictionary rather than a row: text.
const OBJECT_FIELDS_MAX: usize = 1000;

/// What is known of a field.
#[derive(Debug)]
enum Seen {
    /// Only nulls.
    Nothing,
    Bool,
    Int,
    Float,
    /// Strings, or what has nothing else in common.
    Text,
    List(Box<Seen>),
    Object(Object),
}

/// Fields in the order in which they appear.
#[derive(Debug, Default)]
struct Object {
    fields: Vec<(String, Seen)>,
    index: HashMap<String, usize>,
}

impl Object {
    fn add(&mut self, name: String, seen: Seen) {
        match self.index.get(&name) {
            Some(at) => {
                let known = &mut self.fields[*at].1;
                *known = std::mem::replace(known, Seen::Nothing).with(seen);
            }
            None => {
                self.index.insert(name.clone(), self.fields.len());
                self.fields.push((name, seen));
            }
        }
    }
}

impl Seen {
    /// What fits both.
    fn with(self, other: Seen) -> Seen {
        match (self, other) {
            (Seen::Nothing, one) | (one, Seen::Nothing) => one,
            (Seen::Bool, Seen::Bool) => Seen::Bool,
            (Seen::Int, Seen::Int) => Seen::Int,
            (Seen::Int | Seen::Float, Seen::Int | Seen::Float) => Seen::Float,
            (Seen::List(one), Seen::List(other)) => Seen::List(Box::new(one.with(*other))),
            (Seen::Object(mut one), Seen::Object(other)) => {
                for (name, seen) in other.fields {
                    one.add(name, seen);
                }
                match one.fields.len() <= OBJECT_FIELDS_MAX {
                    true => Seen::Object(one),
                    false => Seen::Text,
                }
            }
            _ => Seen::Text,
        }
    }

    fn data_type(&self, count: &mut usize) -> DataType {
        match self {
            Seen::Nothing | Seen::Text => DataType::Utf8,
            Seen::Bool => DataType::Boolean,
            Seen::Int => DataType::Int64,
            Seen::Float => DataType::Float64,
            Seen::List(item) => {
                *count += 1;
                let item = Field::new("item", item.data_type(count), true);
                DataType::List(Arc::new(item))
            }
            Seen::Object(object) => DataType::Struct(object.fields(count)),
        }
    }
}

impl Object {
    fn fields(&self, count: &mut usize) -> Fields {
        let field = |(name, seen): &(String, Seen)| {
            *count += 1;
            Field::new(name, seen.data_type(count), true)
        };
        self.fields.iter().map(field).collect()
    }
}

/// The fields of those values that are objects.
///
/// # Errors
/// A sentence: none is an object, or they have too many fields.
pub fn infer<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<Fields, String> {
    let mut all = Seen::Nothing;
    let (mut read, mut has_many) = (0, false);
    for value in values {
        read += 1;
        let Ok(text) = std::str::from_utf8(value) else {
            continue;
        };
        let mut source = serde_json::Deserializer::from_str(text);
        let found = Look { level: 0 }.deserialize(&mut source);
        if let Ok(seen @ (Seen::Object(_) | Seen::Text)) = found
            && text.trim_start().starts_with('{')
            && source.end().is_ok()
        {
            all = all.with(seen);
            has_many |= matches!(all, Seen::Text);
        }
    }
    let mut count = 0;
    let fields = match &all {
        Seen::Object(object) => object.fields(&mut count),
        _ if has_many => {
            return Err(format!(
                "values with more than {OBJECT_FIELDS_MAX} fields: no schema is inferred, give one"
            ));
        }
        _ => {
            return Err(format!(
                "none of the {read} values in the sample is a JSON object: no schema is inferred, \
                 give one"
            ));
        }
    };
    match count < FIELDS_MAX {
        true => Ok(fields),
        false => Err(format!(
            "the values have more than {FIELDS_MAX} fields: no schema is inferred, give one"
        )),
    }
}

/// Looks at a value.
#[derive(Clone, Copy)]
struct Look {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Look {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Seen, D::Error> {
        if self.level > LEVELS_MAX {
            source.deserialize_ignored_any(IgnoredAny)?;
            return Ok(Seen::Text);
        }
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        Ok(Seen::Nothing)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::Bool)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Int)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Seen, E> {
        Ok(match i64::try_from(value) {
            Ok(_) => Seen::Int,
            Err(_) => Seen::Float,
        })
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Float)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Seen, E> {
        Ok(Seen::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Seen, A::Error> {
        let below = Look {
            level: self.level + 1,
        };
        let mut item = Seen::Nothing;
        while let Some(seen) = all.next_element_seed(below)? {
            item = item.with(seen);
        }
        Ok(Seen::List(Box::new(item)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Seen, A::Error> {
        let below = Look {
            level: self.level + 1,
        };
        let mut object = Object::default();
        while let Some(name) = all.next_key::<String>()? {
            // Arrow's C interface ends names with a NUL.
            if object.fields.len() > OBJECT_FIELDS_MAX || name.contains('\0') {
                all.next_value::<IgnoredAny>()?;
                continue;
            }
            let seen = all.next_value_seed(below)?;
            object.add(name, seen);
        }
        Ok(match object.fields.len() <= OBJECT_FIELDS_MAX {
            true => Seen::Object(object),
            false => Seen::Text,
        })
    }
}
