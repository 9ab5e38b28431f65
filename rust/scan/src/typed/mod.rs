//! Values as typed columns: a struct column, whose fields are decoded as rows come.
//!
//! What is promised: `docs/understanding/scan.md`, *Typed values*.

pub(crate) mod avro;
mod budget;
mod infer;
mod input;
mod json;
mod node;
mod numbers;
mod protobuf;
mod unfit;
mod words;

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field, Fields};

pub use infer::infer;

use budget::Budget;
use node::{LEVELS_MAX, Node, no_field};
pub(crate) use unfit::Unfit;

use crate::registry::Registry;

/// What becomes of a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBad {
    /// Its row has a null.
    Null,
    /// The scan fails.
    Fail,
    /// It has no row.
    Drop,
}

/// How a scan is asked to decode values.
#[derive(Clone, Debug)]
pub struct Decode {
    /// Of the values.
    pub format: Format,
    /// Names of the schema's fields to decode, in order; `None` for all.
    pub fields: Option<Vec<String>>,
    /// Values that do not fit.
    pub on_bad: OnBad,
}

/// What values are.
#[derive(Clone, Debug)]
pub enum Format {
    /// One JSON object each.
    Json {
        /// Fields of all objects; `None`: from a sample.
        schema: Option<Fields>,
    },
    /// One Avro datum each, written with one schema.
    Avro {
        /// The columns, as Avro's JSON.
        schema: String,
        /// How the values were written, if not with `schema`.
        writer: Option<String>,
    },
    /// One Avro datum each, behind the id of its schema.
    Registered {
        /// The columns, as Avro's JSON; `None`: from a sample.
        schema: Option<String>,
        /// `http://HOST:PORT`.
        registry: String,
    },
    /// One message each.
    Protobuf {
        /// A set of file descriptors.
        descriptors: Vec<u8>,
        /// The message's full name.
        message: String,
        /// Whether the id of a schema and the message's place are before it.
        is_framed: bool,
    },
}

/// Which fields are decoded.
#[derive(Clone, Debug)]
pub struct Decoding {
    fields: Fields,
    on_bad: OnBad,
    source: Source,
}

/// What values are made of.
#[derive(Clone, Debug)]
enum Source {
    Json,
    Avro(Arc<avro::Source>),
    Protobuf(Arc<protobuf::Messages>),
}

/// What a worker reads values with.
#[derive(Debug)]
enum Values {
    Json,
    Avro(avro::Values),
    Protobuf(Arc<protobuf::Messages>),
}

impl Decoding {
    /// Chooses the fields named, each once, of a schema for JSON.
    ///
    /// # Errors
    /// A sentence: no such field, a type that JSON has nothing for, too many fields or levels.
    pub fn new(
        schema: &Fields,
        names: Option<&[String]>,
        on_bad: OnBad,
    ) -> Result<Decoding, String> {
        let fields = match names {
            None => schema.clone(),
            Some(names) => chosen(schema, names)?,
        };
        let decoding = Decoding::checked(fields, on_bad, Source::Json)?;
        json::check(&decoding.field("value"))?;
        Ok(decoding)
    }

    /// Chooses the fields named of a record, `schema`; all values were written with `writer`, or
    /// with `schema` as well.
    ///
    /// # Errors
    /// A sentence: no such field, a schema that cannot be used, two that do not match.
    pub fn avro(
        schema: &str,
        writer: Option<&str>,
        names: Option<&[String]>,
        on_bad: OnBad,
    ) -> Result<Decoding, String> {
        let reader = avro::Reader::new(schema, names)?;
        // First: its sentences are about a field.
        let fields = reader.fields()?;
        let plan = reader.plan(writer.unwrap_or(schema))?;
        let source = Arc::new(avro::Source::Given(plan));
        Decoding::checked(fields, on_bad, Source::Avro(source))
    }

    /// The same for values that name the schemas that they were written with.
    ///
    /// # Errors
    /// As [`Decoding::avro`].
    pub(crate) fn registered(
        reader: avro::Reader,
        registry: Registry,
        on_bad: OnBad,
    ) -> Result<Decoding, String> {
        let fields = reader.fields()?;
        let source = avro::Source::Registry(Box::new(avro::Registered::new(reader, registry)));
        Decoding::checked(fields, on_bad, Source::Avro(Arc::new(source)))
    }

    /// Chooses the fields named of a message in a set of file descriptors.
    ///
    /// # Errors
    /// A sentence: no descriptors, no such message or field, bounds.
    pub fn protobuf(
        descriptors: &[u8],
        message: &str,
        is_framed: bool,
        names: Option<&[String]>,
        on_bad: OnBad,
    ) -> Result<Decoding, String> {
        let (fields, found) = protobuf::messages(descriptors, message, is_framed, names)?;
        Decoding::checked(fields, on_bad, Source::Protobuf(Arc::new(found)))
    }

    fn checked(fields: Fields, on_bad: OnBad, source: Source) -> Result<Decoding, String> {
        let decoding = Decoding {
            fields,
            on_bad,
            source,
        };
        Node::new(&decoding.field("value"), LEVELS_MAX, &mut 0)?;
        Ok(decoding)
    }

    /// The column of that name.
    pub fn field(&self, name: &str) -> Field {
        Field::new(name, DataType::Struct(self.fields.clone()), true)
    }
}

fn chosen(schema: &Fields, names: &[String]) -> Result<Fields, String> {
    let mut fields: Vec<arrow_schema::FieldRef> = Vec::with_capacity(names.len());
    for name in names {
        let Some((_, field)) = schema.find(name) else {
            return Err(no_field(name, schema.iter().map(|one| one.name().as_str())));
        };
        if !fields.iter().any(|one| one.name() == name) {
            fields.push(Arc::clone(field));
        }
    }
    Ok(fields.into())
}

/// The typed values of a batch.
#[derive(Debug)]
pub(crate) struct Typed {
    root: Node,
    values: Values,
    pub on_bad: OnBad,
    /// Of one value, in bytes.
    most: usize,
}

impl Typed {
    pub fn new(decoding: &Decoding, most: usize) -> Typed {
        let field = decoding.field("value");
        let root = Node::new(&field, LEVELS_MAX, &mut 0);
        Typed {
            root: root.expect("checked when the decoding was made"),
            values: match decoding.source.clone() {
                Source::Json => Values::Json,
                Source::Avro(source) => Values::Avro(avro::Values::new(source)),
                Source::Protobuf(messages) => Values::Protobuf(messages),
            },
            on_bad: decoding.on_bad,
            most,
        }
    }

    /// What each row takes besides texts and elements.
    pub fn width(&self) -> usize {
        self.root.width
    }

    /// Appends a value, and gives its bytes beyond the width.
    ///
    /// # Errors
    /// It does not fit, and has left nothing.
    #[inline]
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<usize, Unfit> {
        let Some(value) = value else {
            self.push_null();
            return Ok(0);
        };
        let row = self.root.len();
        let mut budget = Budget::new(self.most);
        match self.append(value, &mut budget) {
            Ok(()) => Ok(budget.used()),
            Err(unfit) => {
                self.root.truncate(row);
                Err(unfit)
            }
        }
    }

    #[inline]
    fn append(&mut self, value: &[u8], budget: &mut Budget) -> Result<(), Unfit> {
        match &mut self.values {
            Values::Avro(values) => values.append(&mut self.root, value, budget),
            Values::Protobuf(messages) => messages
                .append(&mut self.root, value, budget)
                .map_err(Unfit::Protobuf),
            Values::Json => {
                let text = std::str::from_utf8(value).map_err(Unfit::Utf8)?;
                json::append(&mut self.root, text, budget).map_err(Unfit::Json)
            }
        }
    }

    pub fn push_null(&mut self) {
        self.root.push_null();
    }

    /// The values, and an empty column.
    ///
    /// # Errors
    /// None that is expected: Arrow checks what was built.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.root.finish()
    }
}
