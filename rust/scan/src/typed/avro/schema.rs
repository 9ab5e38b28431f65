//! Schemas as Avro's JSON has them.
//!
//! A type knows how deep and how large it is with all named types in it written out, so that whatever
//! walks over one is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::TimeUnit;
use serde_json::{Map, Value};

use crate::typed::node::{FIELDS_MAX, LEVELS_MAX};
use crate::typed::words;

/// Of a schema's JSON.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a decimal whose digits are counted exactly; more hold any precision that Arrow has.
const DECIMAL_BYTES_EXACT: usize = 16;

/// A type.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    pub kind: Kind,
    pub logical: Option<Logical>,
    /// Records, arrays and maps in one another, this one included.
    levels: usize,
    /// Fields and types, this one included.
    size: usize,
}

/// What is on the wire.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(Arc<Fixed>),
    Enum(Arc<Enum>),
    Record(Arc<Record>),
    Array(Arc<Schema>),
    Map(Arc<Schema>),
    Union(Arc<[Schema]>),
}

/// What it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logical {
    Decimal {
        precision: u32,
        scale: u32,
    },
    Uuid,
    Date,
    TimeMillis,
    TimeMicros,
    /// Of UTC, or of any place's wall clock.
    Timestamp {
        unit: TimeUnit,
        is_local: bool,
    },
}

impl std::fmt::Display for Logical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (unit, is_local) = match self {
            Logical::Decimal { precision, scale } => {
                return write!(f, "decimal({precision}, {scale})");
            }
            Logical::Uuid => return f.write_str("uuid"),
            Logical::Date => return f.write_str("date"),
            Logical::TimeMillis => return f.write_str("time-millis"),
            Logical::TimeMicros => return f.write_str("time-micros"),
            Logical::Timestamp { unit, is_local } => (unit, is_local),
        };
        let unit = match unit {
            TimeUnit::Second => "seconds",
            TimeUnit::Millisecond => "millis",
            TimeUnit::Microsecond => "micros",
            TimeUnit::Nanosecond => "nanos",
        };
        write!(
            f,
            "{}timestamp-{unit}",
            if *is_local { "local-" } else { "" }
        )
    }
}

/// The names of a type.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    full: String,
    aliases: Vec<String>,
}

/// So many bytes.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub name: Name,
    pub size: usize,
}

/// One of some symbols.
#[derive(Debug)]
pub(crate) struct Enum {
    pub name: Name,
    pub symbols: Vec<Arc<str>>,
    pub default: Option<Arc<str>>,
}

/// Fields in their order.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub name: Name,
    pub fields: Vec<RecordField>,
}

/// A field of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordField {
    pub name: String,
    pub aliases: Vec<String>,
    pub schema: Schema,
    pub default: Option<Value>,
}

impl Name {
    /// Whether a reader's type of this name reads a writer's of the other one.
    pub fn reads(&self, writer: &Name) -> bool {
        short(&self.full) == short(&writer.full)
            || self
                .aliases
                .iter()
                .any(|one| *one == writer.full || one == short(&writer.full))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(words::short(&self.full))
    }
}

fn short(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, short)| short)
}

impl Schema {
    /// Reads Avro's JSON.
    ///
    /// # Errors
    /// A sentence: no JSON, no schema, bounds, a type that contains itself.
    pub fn parse(text: &str) -> Result<Schema, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("the schema has more than {TEXT_BYTES_MAX} bytes"));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("the schema is no JSON: {error}"))?;
        Parser::default().schema(&value, "")
    }

    /// A record with these of its fields.
    pub fn with_fields(record: &Record, fields: Vec<RecordField>) -> Schema {
        let name = record.name.clone();
        let (levels, size) = extent(fields.iter().map(|field| &field.schema));
        Schema {
            kind: Kind::Record(Arc::new(Record { name, fields })),
            logical: None,
            levels: levels + 1,
            size: size + 1,
        }
    }

    /// The record's fields, if it is one.
    pub fn record(&self) -> Option<&Record> {
        match &self.kind {
            Kind::Record(record) => Some(record),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// The type without null, and whether null is one of it; `None` for a union of several types.
    pub fn optional(&self) -> Option<(&Schema, bool)> {
        let Kind::Union(branches) = &self.kind else {
            return Some((self, self.is_null()));
        };
        match &branches[..] {
            [one] => Some((one, one.is_null())),
            [null, one] | [one, null] if null.is_null() => Some((one, true)),
            _ => None,
        }
    }

    /// For a sentence.
    pub fn title(&self) -> String {
        let name = match &self.kind {
            Kind::Null => "null",
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Bytes => "bytes",
            Kind::String => "string",
            Kind::Fixed(fixed) => {
                return format!("the fixed {} of {} bytes", fixed.name, fixed.size);
            }
            Kind::Enum(one) => return format!("the enum {}", one.name),
            Kind::Record(one) => return format!("the record {}", one.name),
            Kind::Array(_) => "an array",
            Kind::Map(_) => "a map",
            Kind::Union(_) => "a union",
        };
        name.to_owned()
    }
}

/// Levels and size of types beside each other.
fn extent<'a>(all: impl Iterator<Item = &'a Schema>) -> (usize, usize) {
    all.fold((0, 0), |(levels, size), one| {
        (levels.max(one.levels), size.saturating_add(one.size))
    })
}

/// Named types as far as they were read; `None` while one is being read.
#[derive(Default)]
struct Parser {
    named: HashMap<String, Option<Schema>>,
}

impl Parser {
    /// A type in a namespace, by its name or as an object or a union.
    fn schema(&mut self, value: &Value, space: &str) -> Result<Schema, String> {
        match value {
            Value::String(name) => self.by_name(name, space),
            Value::Array(branches) => self.union(branches, space),
            Value::Object(object) => self.object(object, space),
            other => Err(format!("{other} is no type")),
        }
    }

    fn by_name(&mut self, name: &str, space: &str) -> Result<Schema, String> {
        if let Some(kind) = primitive(name) {
            return sized(kind, None, (0, 0), 0);
        }
        let full = full_name(name, space);
        let found = self.named.get(&full).or_else(|| self.named.get(name));
        match found {
            Some(Some(schema)) => Ok(schema.clone()),
            Some(None) => Err(format!("the type {full} contains itself")),
            None => Err(format!("there is no type {full:?}")),
        }
    }

    fn union(&mut self, branches: &[Value], space: &str) -> Result<Schema, String> {
        let all: Result<Vec<Schema>, String> =
            branches.iter().map(|one| self.schema(one, space)).collect();
        let all = all?;
        if all.is_empty() {
            return Err("a union has no type".into());
        }
        if all.iter().any(|one| matches!(one.kind, Kind::Union(_))) {
            return Err("a union is in a union".into());
        }
        let inner = extent(all.iter());
        sized(Kind::Union(all.into()), None, inner, 0)
    }

    fn object(&mut self, object: &Map<String, Value>, space: &str) -> Result<Schema, String> {
        let Some(Value::String(name)) = object.get("type") else {
            // {"type": {...}} and {"type": [...]} are what they hold.
            let inner = object.get("type").ok_or("a type has no \"type\"")?;
            return self.schema(inner, space);
        };
        match name.as_str() {
            "array" | "map" => {
                let key = if name == "array" { "items" } else { "values" };
                let inner = object.get(key);
                let inner = inner.ok_or_else(|| format!("{name} has no {key:?}"))?;
                let inner = Arc::new(self.schema(inner, space)?);
                let extent = (inner.levels, inner.size);
                let kind = match name.as_str() {
                    "array" => Kind::Array(inner),
                    _ => Kind::Map(inner),
                };
                sized(kind, None, extent, 1)
            }
            "record" | "error" | "enum" | "fixed" => self.named_type(name, object, space),
            other => {
                let mut schema = self.by_name(other, space)?;
                if let Some(logical) = logical(object, &schema.kind) {
                    schema.logical = Some(logical);
                }
                Ok(schema)
            }
        }
    }

    fn named_type(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        space: &str,
    ) -> Result<Schema, String> {
        let name = object.get("name").and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty() && !name.contains('\0'));
        let name = name.ok_or_else(|| format!("a type {kind} has no name"))?;
        let space = object.get("namespace").map_or(Ok(space), |own| {
            own.as_str()
                .ok_or_else(|| format!("{name} has no namespace"))
        })?;
        let full = full_name(name, space);
        let space = full.rsplit_once('.').map_or("", |(space, _)| space);
        let aliases = texts(object, "aliases")?;
        let aliases = aliases.iter().map(|one| full_name(one, space)).collect();
        if primitive(&full).is_some() || self.named.insert(full.clone(), None).is_some() {
            return Err(format!("the type {full} is there twice"));
        }
        let name = Name {
            full: full.clone(),
            aliases,
        };
        let schema = match kind {
            "fixed" => fixed(name, object)?,
            "enum" => enumeration(name, object)?,
            _ => self.record(name, object, space)?,
        };
        self.named.insert(full, Some(schema.clone()));
        Ok(schema)
    }

    fn record(
        &mut self,
        name: Name,
        object: &Map<String, Value>,
        space: &str,
    ) -> Result<Schema, String> {
        let given = object.get("fields").and_then(Value::as_array);
        let given = given.ok_or_else(|| format!("the record {name} has no fields"))?;
        let mut known = HashSet::with_capacity(given.len());
        let mut fields = Vec::with_capacity(given.len());
        for one in given {
            let field = one.as_object();
            let own = field.and_then(|field| field.get("name")?.as_str());
            let own = own.filter(|own| !own.is_empty() && !own.contains('\0'));
            let (Some(field), Some(own)) = (field, own) else {
                return Err(format!("a field of the record {name} has no name"));
            };
            if !known.insert(own) {
                return Err(format!(
                    "the field {own:?} of the record {name} is there twice"
                ));
            }
            let schema = field.get("type");
            let schema = schema.ok_or_else(|| format!("the field {own:?} has no type"))?;
            let schema = self.schema(schema, space).and_then(|schema| {
                // {"type": "long", "logicalType": ...} in the field itself is another mistake that
                // Avro ignores.
                Ok((schema, texts(field, "aliases")?))
            });
            let (schema, aliases) = schema.map_err(|reason| format!("{own}: {reason}"))?;
            fields.push(RecordField {
                name: own.to_owned(),
                aliases,
                schema,
                default: field.get("default").cloned(),
            });
        }
        let inner = extent(fields.iter().map(|field| &field.schema));
        let kind = Kind::Record(Arc::new(Record { name, fields }));
        sized(kind, None, inner, 1)
    }
}

/// A type with its extent.
///
/// # Errors
/// A sentence: too deep, too large.
fn sized(
    kind: Kind,
    logical: Option<Logical>,
    inner: (usize, usize),
    levels: usize,
) -> Result<Schema, String> {
    let (levels, size) = (inner.0 + levels, inner.1.saturating_add(1));
    if levels > LEVELS_MAX {
        return Err(format!("a schema has at most {LEVELS_MAX} levels"));
    }
    if size > FIELDS_MAX {
        return Err(format!(
            "a schema has at most {FIELDS_MAX} fields and types"
        ));
    }
    Ok(Schema {
        kind,
        logical,
        levels,
        size,
    })
}

fn fixed(name: Name, object: &Map<String, Value>) -> Result<Schema, String> {
    let size = object.get("size").and_then(Value::as_u64);
    let size = size.and_then(|size| u32::try_from(size).ok());
    let size = size.ok_or_else(|| format!("the fixed {name} has no size"))? as usize;
    let kind = Kind::Fixed(Arc::new(Fixed { name, size }));
    let logical = logical(object, &kind);
    sized(kind, logical, (0, 0), 0)
}

fn enumeration(name: Name, object: &Map<String, Value>) -> Result<Schema, String> {
    let symbols = texts(object, "symbols")?.into_iter();
    let symbols: Vec<Arc<str>> = symbols.map(Arc::from).collect();
    if symbols.is_empty() {
        return Err(format!("the enum {name} has no symbols"));
    }
    let default = object.get("default").and_then(Value::as_str);
    let default: Option<Arc<str>> = default.map(Arc::from);
    if let Some(default) = &default
        && !symbols.contains(default)
    {
        return Err(format!(
            "the default {default:?} of the enum {name} is no symbol of it"
        ));
    }
    let size = symbols.len();
    let kind = Kind::Enum(Arc::new(Enum {
        name,
        symbols,
        default,
    }));
    sized(kind, None, (0, size), 0)
}

/// A list of texts; none without it.
fn texts(object: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let Some(given) = object.get(key) else {
        return Ok(Vec::new());
    };
    let all = given.as_array().and_then(|all| {
        let texts = all.iter().map(|one| Some(one.as_str()?.to_owned()));
        texts.collect::<Option<Vec<String>>>()
    });
    all.ok_or_else(|| format!("{key:?} is no list of texts"))
}

fn full_name(name: &str, space: &str) -> String {
    match name.contains('.') || space.is_empty() {
        true => name.to_owned(),
        false => format!("{space}.{name}"),
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// What a type stands for; `None` as well for what is not for this type, as Avro has it.
fn logical(object: &Map<String, Value>, kind: &Kind) -> Option<Logical> {
    let timestamp = |unit, is_local| Some(Logical::Timestamp { unit, is_local });
    match (object.get("logicalType")?.as_str()?, kind) {
        ("decimal", Kind::Bytes | Kind::Fixed(_)) => decimal(object, kind),
        ("uuid", Kind::String) => Some(Logical::Uuid),
        ("uuid", Kind::Fixed(fixed)) if fixed.size == 16 => Some(Logical::Uuid),
        ("date", Kind::Int) => Some(Logical::Date),
        ("time-millis", Kind::Int) => Some(Logical::TimeMillis),
        ("time-micros", Kind::Long) => Some(Logical::TimeMicros),
        ("timestamp-millis", Kind::Long) => timestamp(TimeUnit::Millisecond, false),
        ("timestamp-micros", Kind::Long) => timestamp(TimeUnit::Microsecond, false),
        ("timestamp-nanos", Kind::Long) => timestamp(TimeUnit::Nanosecond, false),
        ("local-timestamp-millis", Kind::Long) => timestamp(TimeUnit::Millisecond, true),
        ("local-timestamp-micros", Kind::Long) => timestamp(TimeUnit::Microsecond, true),
        ("local-timestamp-nanos", Kind::Long) => timestamp(TimeUnit::Nanosecond, true),
        _ => None,
    }
}

/// A decimal whose numbers make sense.
fn decimal(object: &Map<String, Value>, kind: &Kind) -> Option<Logical> {
    let number = |key: &str| object.get(key).map(|one| u32::try_from(one.as_u64()?).ok());
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    if precision == 0 || scale > precision {
        return None;
    }
    if let Kind::Fixed(fixed) = kind
        && fixed.size <= DECIMAL_BYTES_EXACT
    {
        let bits = (8 * fixed.size).checked_sub(1)?;
        let most = (1_u128 << bits) - 1;
        // All numbers of so many digits are to fit.
        10_u128
            .checked_pow(precision)
            .filter(|one| one - 1 <= most)?;
    }
    Some(Logical::Decimal { precision, scale })
}
