//! Avro: data of a writer's schema into the columns of a reader's.
//!
//! ```text
//! schema    Avro's JSON as types
//! columns   which columns a reader's schema has
//! plan      how a writer's values come into them, by Avro's rules of resolution
//! defaults  what stands in for fields that the writer has not
//! read      one datum into the nodes, by a plan
//! ```

mod columns;
mod defaults;
mod plan;
mod read;
mod schema;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow_schema::Fields;
use parking_lot::Mutex;

use crate::error::{Result as ScanResult, ScanError};
use crate::registry::{Answer, Registry};
use crate::typed::budget::Budget;
use crate::typed::node::{Node, no_field};
use crate::typed::unfit::Unfit;

use plan::Read;
use schema::Schema;

/// A byte and an id are before a datum.
const MAGIC: u8 = 0;
/// Schemas that a scan keeps, and parts of their plans.
const SCHEMAS_MAX: usize = 1000;
const PARTS_MAX: usize = 1_000_000;
/// Ids that a scan keeps which the registry has not.
const UNKNOWN_MAX: usize = 100_000;
/// Schemas that a worker keeps.
const OWN_MAX: usize = 16;

/// A reader's schema: the columns wanted.
#[derive(Debug)]
pub(crate) struct Reader {
    schema: Schema,
}

impl Reader {
    /// Chooses the fields named of a record.
    ///
    /// # Errors
    /// A sentence: no schema, no record, no such field.
    pub fn new(text: &str, names: Option<&[String]>) -> Result<Reader, String> {
        let schema = Schema::parse(text)?;
        let Some(record) = schema.record() else {
            let title = schema.title();
            return Err(format!(
                "the schema is {title}; columns are a record's fields"
            ));
        };
        let Some(names) = names else {
            return Ok(Reader { schema });
        };
        let mut fields: Vec<schema::RecordField> = Vec::with_capacity(names.len());
        for name in names {
            let Some(field) = record.fields.iter().find(|one| one.name == *name) else {
                let known = record.fields.iter().map(|one| one.name.as_str());
                return Err(no_field(name, known));
            };
            if !fields.iter().any(|one| one.name == *name) {
                fields.push(field.clone());
            }
        }
        let schema = Schema::with_fields(record, fields);
        Ok(Reader { schema })
    }

    /// The columns.
    ///
    /// # Errors
    /// A sentence: a type that no column has.
    pub fn fields(&self) -> Result<Fields, String> {
        self.schema
            .record()
            .map_or(Ok(Fields::empty()), columns::fields)
    }

    /// How values of a writer's schema are read.
    ///
    /// # Errors
    /// A sentence: no schema, or it does not match.
    pub fn plan(&self, writer: &str) -> Result<Plan, String> {
        let writer = Schema::parse(writer)?;
        let (read, parts) = plan::plan(&writer, &self.schema)?;
        Ok(Plan { read, parts })
    }
}

/// How values of a schema are read.
#[derive(Debug)]
pub(crate) struct Plan {
    read: Read,
    parts: usize,
}

/// Where the writer's schemas are.
#[derive(Debug)]
pub(crate) enum Source {
    Given(Plan),
    Registry(Box<Registered>),
}

/// A plan, or why values of the id are bad.
type Known = Arc<Result<Plan, String>>;

/// Plans for the ids that values name.
#[derive(Debug)]
pub(crate) struct Registered {
    reader: Reader,
    registry: Registry,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    plans: HashMap<u32, Known>,
    /// The oldest first.
    order: VecDeque<u32>,
    parts: usize,
    unknown: HashSet<u32>,
    /// Nobody asks again.
    failed: Option<ScanError>,
}

impl Registered {
    pub fn new(reader: Reader, registry: Registry) -> Registered {
        Registered {
            reader,
            registry,
            cache: Mutex::default(),
        }
    }

    /// The plan for an id. Others wait while one asks, so that each id is asked for once.
    ///
    /// # Errors
    /// The registry gives no answer; the scan was closed.
    fn plan(&self, id: u32) -> ScanResult<Known> {
        let mut cache = self.cache.lock();
        if let Some(error) = &cache.failed {
            return Err(error.clone());
        }
        if let Some(known) = cache.plans.get(&id) {
            return Ok(Arc::clone(known));
        }
        let not_there = || Arc::new(Err(format!("the registry has no schema {id}")));
        if cache.unknown.contains(&id) {
            return Ok(not_there());
        }
        let known = match self.registry.schema(id) {
            Err(error) => {
                cache.failed = Some(error.clone());
                return Err(error);
            }
            Ok(Answer::Unknown) => {
                if cache.unknown.len() >= UNKNOWN_MAX {
                    cache.unknown.clear();
                }
                cache.unknown.insert(id);
                return Ok(not_there());
            }
            Ok(Answer::Other(format)) => Err(format!("schema {id} is {format}, not Avro")),
            Ok(Answer::Schema(text)) => self
                .reader
                .plan(&text)
                .map_err(|reason| format!("schema {id}: {reason}")),
        };
        let known = Arc::new(known);
        cache.keep(id, &known);
        Ok(known)
    }
}

impl Cache {
    fn keep(&mut self, id: u32, known: &Known) {
        self.parts += parts(known);
        self.plans.insert(id, Arc::clone(known));
        self.order.push_back(id);
        while self.order.len() > SCHEMAS_MAX || (self.parts > PARTS_MAX && self.order.len() > 1) {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            let gone = self.plans.remove(&oldest);
            self.parts -= gone.map_or(0, |gone| parts(&gone));
        }
    }
}

fn parts(known: &Known) -> usize {
    known.as_ref().as_ref().map_or(1, |plan| plan.parts)
}

/// A worker's values.
#[derive(Debug)]
pub(crate) struct Values {
    source: Arc<Source>,
    /// The last one used is the last one.
    own: Vec<(u32, Known)>,
}

impl Values {
    pub fn new(source: Arc<Source>) -> Values {
        let own = Vec::new();
        Values { source, own }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// It does not fit, and what was begun of it is to be taken back; the registry is away.
    #[inline]
    pub fn append(
        &mut self,
        node: &mut Node,
        value: &[u8],
        budget: &mut Budget,
    ) -> Result<(), Unfit> {
        match &*self.source {
            Source::Given(plan) => {
                read::append(&plan.read, node, value, budget).map_err(Unfit::Avro)
            }
            Source::Registry(registered) => {
                let (id, datum) = framed(value).map_err(Unfit::Avro)?;
                if self.own.last().is_none_or(|last| last.0 != id) {
                    find(&mut self.own, id, registered).map_err(Unfit::Registry)?;
                }
                match self.own.last().map(|last| &*last.1) {
                    Some(Ok(plan)) => {
                        read::append(&plan.read, node, datum, budget).map_err(Unfit::Avro)
                    }
                    Some(Err(reason)) => Err(Unfit::Avro(reason.clone())),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Brings the plan of an id to the end.
fn find(own: &mut Vec<(u32, Known)>, id: u32, registered: &Registered) -> ScanResult<()> {
    let found = match own.iter().position(|one| one.0 == id) {
        Some(at) => own.remove(at),
        None => (id, registered.plan(id)?),
    };
    if own.len() >= OWN_MAX {
        own.remove(0);
    }
    own.push(found);
    Ok(())
}

/// The id that a value names, and its datum.
///
/// # Errors
/// A sentence: it names none.
pub(crate) fn framed(value: &[u8]) -> Result<(u32, &[u8]), String> {
    match value {
        [MAGIC, a, b, c, d, datum @ ..] => Ok((u32::from_be_bytes([*a, *b, *c, *d]), datum)),
        [MAGIC, ..] | [] => Err(format!(
            "{} bytes are too few for the id of a schema",
            value.len()
        )),
        [other, ..] => Err(format!(
            "its first byte is {other}, not 0: it names no schema"
        )),
    }
}
