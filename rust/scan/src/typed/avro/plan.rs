//! How values of a writer's schema come into a reader's columns: Avro's rules of resolution.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::typed::avro::defaults::{Parts, encode};
use crate::typed::avro::schema::{Enum, Kind, Logical, Record, Schema};
use crate::typed::words::within;

/// What to read next, for one column.
#[derive(Debug)]
pub(crate) enum Read {
    Null,
    Bool,
    /// An int, or a long.
    Whole {
        is_int: bool,
    },
    Float,
    Double,
    /// A length, and so many bytes.
    Bytes,
    Fixed(usize),
    /// A length, and so many bytes of a number.
    Decimal,
    DecimalFixed(usize),
    UuidFixed,
    /// Texts of the writer's symbols; `None` for one that the reader has not.
    Enum(Vec<Option<Arc<str>>>),
    Array(Box<Read>),
    Map(Box<Read>),
    Record(Vec<Step>, Vec<Absent>),
    /// The writer's branches; those that do not match have the reason.
    Union(Vec<Result<Read, String>>),
}

/// A field of the writer's.
#[derive(Debug)]
pub(crate) enum Step {
    /// Into the reader's field of this place.
    Read(usize, Read),
    Skip(Skip),
}

/// A field that the writer has not.
#[derive(Debug)]
pub(crate) struct Absent {
    pub field: usize,
    /// As if it had been written.
    pub bytes: Vec<u8>,
    pub read: Read,
}

/// What nobody asked for. Each part takes a byte of a value at least, but for `Bytes(0)`, which is
/// never one of `All`: what is passed over costs no more than its bytes.
#[derive(Debug)]
pub(crate) enum Skip {
    Bytes(usize),
    Number,
    Prefixed,
    Array(Box<Skip>),
    Map(Box<Skip>),
    All(Vec<Skip>),
    One(Vec<Skip>),
}

impl Skip {
    /// Several, one after the other.
    fn all(parts: Vec<Skip>) -> Skip {
        let mut found: Vec<Skip> = Vec::with_capacity(parts.len());
        for part in parts {
            match (part, found.last_mut()) {
                (Skip::Bytes(0), _) => {}
                (Skip::Bytes(more), Some(Skip::Bytes(len))) => *len += more,
                (other, _) => found.push(other),
            }
        }
        match found.len() {
            0 => Skip::Bytes(0),
            1 => found.remove(0),
            _ => Skip::All(found),
        }
    }
}

/// How to read values of `writer` as `reader`; and how many parts that has.
///
/// # Errors
/// A sentence: they do not match.
pub(crate) fn plan(writer: &Schema, reader: &Schema) -> Result<(Read, usize), String> {
    let parts = Parts::new();
    let mut planner = Planner { parts };
    let read = planner.read(writer, reader)?;
    Ok((read, planner.parts.used()))
}

struct Planner {
    parts: Parts,
}

impl Planner {
    fn read(&mut self, writer: &Schema, reader: &Schema) -> Result<Read, String> {
        self.parts.count()?;
        if let Kind::Union(branches) = &writer.kind {
            return self.branches(branches, reader);
        }
        let (reader, is_nullable) = reader
            .optional()
            .ok_or_else(|| format!("{} is not read as a union", writer.title()))?;
        if writer.is_null() {
            let read = is_nullable.then_some(Read::Null);
            return read.ok_or_else(|| "it is null, which the schema does not allow".to_owned());
        }
        if let (Some(one), Some(other)) = (writer.logical, reader.logical)
            && one != other
        {
            return Err(format!("{one} is not read as {other}"));
        }
        Ok(match (&writer.kind, &reader.kind) {
            (Kind::Boolean, Kind::Boolean) => Read::Bool,
            (Kind::Int, Kind::Int | Kind::Long | Kind::Float | Kind::Double) => {
                Read::Whole { is_int: true }
            }
            (Kind::Long, Kind::Long | Kind::Float | Kind::Double) => Read::Whole { is_int: false },
            (Kind::Float, Kind::Float | Kind::Double) => Read::Float,
            (Kind::Double, Kind::Double) => Read::Double,
            (Kind::Bytes | Kind::String, Kind::Bytes | Kind::String) => match reader.logical {
                Some(Logical::Decimal { .. }) => Read::Decimal,
                _ => Read::Bytes,
            },
            (Kind::Fixed(one), Kind::Fixed(other))
                if one.size == other.size && other.name.reads(&one.name) =>
            {
                match reader.logical {
                    Some(Logical::Decimal { .. }) => Read::DecimalFixed(one.size),
                    Some(Logical::Uuid) => Read::UuidFixed,
                    _ => Read::Fixed(one.size),
                }
            }
            (Kind::Enum(one), Kind::Enum(other)) if other.name.reads(&one.name) => {
                self.parts.add(one.symbols.len())?;
                Read::Enum(symbols(one, other))
            }
            (Kind::Array(one), Kind::Array(other)) => Read::Array(Box::new(self.read(one, other)?)),
            (Kind::Map(one), Kind::Map(other)) => Read::Map(Box::new(self.read(one, other)?)),
            (Kind::Record(one), Kind::Record(other)) if other.name.reads(&one.name) => {
                self.record(one, other)?
            }
            _ => {
                return Err(format!(
                    "{} is not read as {}",
                    writer.title(),
                    reader.title()
                ));
            }
        })
    }

    fn branches(&mut self, branches: &[Schema], reader: &Schema) -> Result<Read, String> {
        let all = branches.iter().map(|one| self.read(one, reader));
        let all: Vec<Result<Read, String>> = all.collect();
        self.parts.check()?;
        match all.last() {
            Some(Err(reason)) if all.iter().all(Result::is_err) => Err(reason.clone()),
            _ => Ok(Read::Union(all)),
        }
    }

    fn record(&mut self, writer: &Record, reader: &Record) -> Result<Read, String> {
        let places = writer.fields.iter().enumerate();
        let places: HashMap<&str, usize> = places
            .map(|(at, field)| (field.name.as_str(), at))
            .collect();
        // The reader's field of each of the writer's.
        let mut targets = vec![None; writer.fields.len()];
        let mut defaults = Vec::new();
        let mut others = Vec::new();
        for (at, field) in reader.fields.iter().enumerate() {
            match places.get(field.name.as_str()) {
                Some(place) => targets[*place] = Some(at),
                None => others.push((at, field)),
            }
        }
        for (at, field) in others {
            let mut aliases = field
                .aliases
                .iter()
                .filter_map(|one| places.get(one.as_str()));
            match aliases.find(|place| targets[**place].is_none()) {
                Some(place) => targets[*place] = Some(at),
                None => {
                    let read = self.default(at, reader);
                    defaults.push(read.map_err(|reason| within(&field.name, reason))?);
                }
            }
        }
        let mut steps = Vec::with_capacity(writer.fields.len());
        for (field, target) in writer.fields.iter().zip(targets) {
            let Some(at) = target else {
                match self.skip(&field.schema)? {
                    Skip::Bytes(0) => {}
                    skip => steps.push(Step::Skip(skip)),
                }
                continue;
            };
            let read = self.read(&field.schema, &reader.fields[at].schema);
            let read = read.map_err(|reason| within(&reader.fields[at].name, reason))?;
            steps.push(Step::Read(at, read));
        }
        Ok(Read::Record(steps, defaults))
    }

    fn default(&mut self, at: usize, reader: &Record) -> Result<Absent, String> {
        let field = &reader.fields[at];
        let Some(value) = &field.default else {
            return Err("the writer's schema does not have it, and it has no default".into());
        };
        let mut bytes = Vec::new();
        encode(&field.schema, value, &mut bytes, &mut self.parts)?;
        Ok(Absent {
            field: at,
            bytes,
            read: self.read(&field.schema, &field.schema)?,
        })
    }

    fn skip(&mut self, schema: &Schema) -> Result<Skip, String> {
        self.parts.count()?;
        Ok(match &schema.kind {
            Kind::Null => Skip::Bytes(0),
            Kind::Boolean => Skip::Bytes(1),
            Kind::Int | Kind::Long | Kind::Enum(_) => Skip::Number,
            Kind::Float => Skip::Bytes(4),
            Kind::Double => Skip::Bytes(8),
            Kind::Bytes | Kind::String => Skip::Prefixed,
            Kind::Fixed(fixed) => Skip::Bytes(fixed.size),
            Kind::Array(item) => Skip::Array(Box::new(self.skip(item)?)),
            Kind::Map(values) => Skip::Map(Box::new(self.skip(values)?)),
            Kind::Record(record) => {
                let fields = record.fields.iter().map(|field| self.skip(&field.schema));
                Skip::all(fields.collect::<Result<_, _>>()?)
            }
            Kind::Union(branches) => {
                let all = branches.iter().map(|one| self.skip(one));
                Skip::One(all.collect::<Result<_, _>>()?)
            }
        })
    }
}

fn symbols(writer: &Enum, reader: &Enum) -> Vec<Option<Arc<str>>> {
    let known: HashSet<&Arc<str>> = reader.symbols.iter().collect();
    let text = |symbol: &Arc<str>| match known.contains(symbol) {
        true => Some(Arc::clone(symbol)),
        false => reader.default.clone(),
    };
    writer.symbols.iter().map(text).collect()
}
