//! Values as typed columns: a struct column, whose fields are decoded as rows come.
//!
//! What is promised: `docs/understanding/scan.md`, *Typed values*.

mod infer;
mod json;
mod node;
mod numbers;

use std::fmt;
use std::str::Utf8Error;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field, Fields};

pub use infer::infer;

use node::{LEVELS_MAX, Node};

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

/// How a scan is asked to decode JSON.
#[derive(Clone, Debug)]
pub struct Decode {
    /// Fields of all objects; `None`: from a sample.
    pub schema: Option<Fields>,
    /// Names of those to decode, in order; `None` for all.
    pub fields: Option<Vec<String>>,
    /// Values that do not fit.
    pub on_bad: OnBad,
}

/// Which fields are decoded.
#[derive(Clone, Debug)]
pub struct Decoding {
    fields: Fields,
    on_bad: OnBad,
}

impl Decoding {
    /// Chooses the fields named, each once, of a schema.
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
        let decoding = Decoding { fields, on_bad };
        Node::new(&decoding.field("value"), LEVELS_MAX, &mut 0)?;
        Ok(decoding)
    }

    pub(crate) fn field(&self, name: &str) -> Field {
        Field::new(name, DataType::Struct(self.fields.clone()), true)
    }
}

fn chosen(schema: &Fields, names: &[String]) -> Result<Fields, String> {
    let mut fields: Vec<arrow_schema::FieldRef> = Vec::with_capacity(names.len());
    for name in names {
        let Some((_, field)) = schema.find(name) else {
            let known: Vec<_> = schema
                .iter()
                .take(50)
                .map(|one| one.name().as_str())
                .collect();
            let list = known.join(", ");
            return Err(format!("the schema has no field {name:?}; it has {list}"));
        };
        if !fields.iter().any(|one| one.name() == name) {
            fields.push(std::sync::Arc::clone(field));
        }
    }
    Ok(fields.into())
}

/// Why a value does not fit.
#[derive(Debug)]
pub(crate) enum Unfit {
    Utf8(Utf8Error),
    Json(serde_json::Error),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Utf8(error) => write!(f, "not UTF-8 at byte {}", error.valid_up_to()),
            Unfit::Json(error) => write!(f, "{error}"),
        }
    }
}

/// The typed values of a batch.
#[derive(Debug)]
pub(crate) struct Typed {
    root: Node,
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
        let text = std::str::from_utf8(value).map_err(Unfit::Utf8)?;
        let row = self.root.len();
        let mut budget = json::Budget {
            used: 0,
            most: self.most,
        };
        match json::append(&mut self.root, text, &mut budget) {
            Ok(()) => Ok(budget.used),
            Err(error) => {
                self.root.truncate(row);
                Err(Unfit::Json(error))
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
