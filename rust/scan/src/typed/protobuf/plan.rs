//! Which columns a message has, and how its fields come into them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field as Column, Fields, TimeUnit};

use crate::typed::node::{FIELDS_MAX, LEVELS_MAX};
use crate::typed::protobuf::descriptor::{Field, Label, Message, Types};

const TIMESTAMP: &str = ".google.protobuf.Timestamp";
const UTC: &str = "UTC";

/// Of fields of one oneof.
type Places = Arc<[usize]>;

/// How a message is read.
#[derive(Debug)]
pub(crate) struct Plan {
    pub fields: Vec<PlanField>,
    /// Numbers of the fields, in order, with their places.
    pub numbers: Vec<(u32, usize)>,
    /// Whether a message of it may come in parts: [`PlanField::is_merged`] of any.
    pub has_merged: bool,
    /// By numbers of fields that nobody asked for: others of their oneofs.
    pub clears: HashMap<u32, Places>,
}

#[derive(Debug)]
pub(crate) struct PlanField {
    pub kind: Kind,
    pub count: Count,
    /// The places of all fields of its oneof, if there are others.
    pub oneof: Option<Places>,
    /// A single message outside a oneof: parts of it are one.
    pub is_merged: bool,
}

/// What a value is.
#[derive(Debug)]
pub(crate) enum Kind {
    Double,
    Float,
    /// What does not fit is cut, as parsers do.
    Int32,
    Int64,
    UInt32,
    UInt64,
    SInt32,
    SInt64,
    Fixed32,
    Fixed64,
    SFixed32,
    SFixed64,
    Bool,
    Text,
    Bytes,
    Enum(Arc<HashMap<i32, String>>),
    Timestamp,
    Message(Plan),
}

/// How often a field is there.
#[derive(Debug)]
pub(crate) enum Count {
    /// Null if it is not there.
    Optional,
    /// Its zero if it is not there.
    Implicit,
    /// Bad if it is not there.
    Required,
    List,
    /// By texts; the kind is the values'.
    Map,
}

/// Columns and plan of a message, of its fields named or all.
///
/// # Errors
/// A sentence: no such message or field, bounds, a message that contains itself.
pub(crate) fn plan(
    types: &Types,
    message: &str,
    names: Option<&[String]>,
) -> Result<(Fields, Plan), String> {
    let full = format!(".{}", message.trim_start_matches('.'));
    let found = types.messages.get(&full).ok_or_else(|| {
        let mut known: Vec<_> = types.messages.keys().map(|one| &one[1..]).collect();
        known.sort_unstable();
        known.truncate(50);
        format!(
            "the schema has no message {message:?}; it has {}",
            known.join(", ")
        )
    })?;
    let fields = match names {
        None => found.fields.clone(),
        Some(names) => chosen(found, names)?,
    };
    let mut planner = Planner {
        types,
        open: vec![full],
        count: 0,
    };
    let (columns, mut plan) = planner.message(&fields, &found.fields)?;
    let asked: HashSet<u32> = fields.iter().map(|one| one.number).collect();
    let groups = oneofs(&fields);
    for other in &found.fields {
        let group = other.oneof.and_then(|oneof| groups.get(&oneof));
        if let (false, Some(places)) = (asked.contains(&other.number), group) {
            plan.clears.insert(other.number, Arc::clone(places));
        }
    }
    Ok((columns, plan))
}

fn chosen(message: &Message, names: &[String]) -> Result<Vec<Field>, String> {
    let mut fields: Vec<Field> = Vec::with_capacity(names.len());
    for name in names {
        let Some(field) = message.fields.iter().find(|one| one.name == *name) else {
            let known = message.fields.iter().map(|one| one.name.as_str());
            return Err(crate::typed::node::no_field(name, known));
        };
        if !fields.iter().any(|one| one.name == *name) {
            fields.push(field.clone());
        }
    }
    Ok(fields)
}

struct Planner<'a> {
    types: &'a Types,
    /// Messages around the present one.
    open: Vec<String>,
    count: usize,
}

impl Planner<'_> {
    /// Of these fields of a message, which has all of those.
    fn message(&mut self, fields: &[Field], all: &[Field]) -> Result<(Fields, Plan), String> {
        let (groups, all) = (oneofs(fields), oneofs(all));
        let of = |groups: &HashMap<u64, Places>, field: &Field| {
            let group = groups.get(&field.oneof?)?;
            (group.len() > 1).then(|| Arc::clone(group))
        };
        let mut columns = Vec::with_capacity(fields.len());
        let mut found = Vec::with_capacity(fields.len());
        for field in fields {
            self.count += 1;
            if self.count > FIELDS_MAX {
                return Err(format!("a schema has at most {FIELDS_MAX} fields"));
            }
            let within = |reason: String| format!("{}: {reason}", field.name);
            let (column, mut planned) = self.field(field).map_err(within)?;
            planned.oneof = of(&groups, field);
            planned.is_merged = of(&all, field).is_none()
                && matches!(planned.kind, Kind::Message(_))
                && !matches!(planned.count, Count::List | Count::Map);
            columns.push(column);
            found.push(planned);
        }
        let numbers = fields.iter().enumerate().map(|(at, one)| (one.number, at));
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        let plan = Plan {
            has_merged: found.iter().any(|one| one.is_merged),
            fields: found,
            numbers,
            clears: HashMap::new(),
        };
        Ok((columns.into(), plan))
    }

    fn field(&mut self, field: &Field) -> Result<(Column, PlanField), String> {
        let made = |kind, count| PlanField {
            kind,
            count,
            oneof: None,
            is_merged: false,
        };
        if field.label == Label::Repeated {
            if let Some(values) = self.map_values(field) {
                let (data_type, kind, _) = self.single(&values)?;
                // An entry without a value has its zero.
                let is_nullable = matches!(kind, Kind::Message(_) | Kind::Timestamp);
                let entries = vec![
                    Column::new("key", DataType::Utf8, false),
                    Column::new("value", data_type, is_nullable),
                ];
                let entries = Column::new("entries", DataType::Struct(entries.into()), false);
                let data_type = DataType::Map(Arc::new(entries), false);
                let column = Column::new(&field.name, data_type, false);
                return Ok((column, made(kind, Count::Map)));
            }
            let (data_type, kind, _) = self.single(field)?;
            let item = Arc::new(Column::new("item", data_type, false));
            let column = Column::new(&field.name, DataType::List(item), false);
            return Ok((column, made(kind, Count::List)));
        }
        let (data_type, kind, count) = self.single(field)?;
        let is_nullable = matches!(count, Count::Optional);
        let column = Column::new(&field.name, data_type, is_nullable);
        Ok((column, made(kind, count)))
    }

    /// The field of the values of a map whose keys are texts.
    fn map_values(&self, field: &Field) -> Option<Field> {
        let entry = self.types.messages.get(&field.type_name);
        let entry = entry.filter(|entry| field.kind == 11 && entry.is_entry)?;
        let of = |number| entry.fields.iter().find(|one| one.number == number);
        (of(1)?.kind == 9).then(|| of(2).cloned())?
    }

    fn single(&mut self, field: &Field) -> Result<(DataType, Kind, Count), String> {
        let (data_type, kind) = match field.kind {
            1 => (DataType::Float64, Kind::Double),
            2 => (DataType::Float32, Kind::Float),
            3 => (DataType::Int64, Kind::Int64),
            4 => (DataType::UInt64, Kind::UInt64),
            5 => (DataType::Int32, Kind::Int32),
            6 => (DataType::UInt64, Kind::Fixed64),
            7 => (DataType::UInt32, Kind::Fixed32),
            8 => (DataType::Boolean, Kind::Bool),
            9 => (DataType::Utf8, Kind::Text),
            11 if field.type_name == TIMESTAMP => {
                let zone = Some(Arc::from(UTC));
                let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone);
                (data_type, Kind::Timestamp)
            }
            11 => self.nested(&field.type_name)?,
            12 => (DataType::Binary, Kind::Bytes),
            13 => (DataType::UInt32, Kind::UInt32),
            14 => {
                let found = self.types.enums.get(&field.type_name);
                let found = found.ok_or_else(|| format!("there is no enum {}", field.type_name))?;
                (DataType::Utf8, Kind::Enum(Arc::clone(found)))
            }
            15 => (DataType::Int32, Kind::SFixed32),
            16 => (DataType::Int64, Kind::SFixed64),
            17 => (DataType::Int32, Kind::SInt32),
            18 => (DataType::Int64, Kind::SInt64),
            10 => return Err("it cannot be a group".into()),
            other => return Err(format!("it has the type {other}")),
        };
        let is_message = matches!(kind, Kind::Message(_) | Kind::Timestamp);
        let count = match field.label {
            Label::Required => Count::Required,
            _ if field.has_presence || is_message => Count::Optional,
            _ => Count::Implicit,
        };
        Ok((data_type, kind, count))
    }

    fn nested(&mut self, name: &str) -> Result<(DataType, Kind), String> {
        let types = self.types;
        let message = types.messages.get(name);
        let message = message.ok_or_else(|| format!("there is no message {name}"))?;
        if self.open.iter().any(|one| one == name) {
            return Err(format!("the message {name} contains itself"));
        }
        if self.open.len() >= LEVELS_MAX {
            return Err(format!("a schema has at most {LEVELS_MAX} levels"));
        }
        self.open.push(name.to_owned());
        let found = self.message(&message.fields, &message.fields);
        self.open.pop();
        let (fields, plan) = found?;
        Ok((DataType::Struct(fields), Kind::Message(plan)))
    }
}

/// The places of the fields of each oneof.
fn oneofs(fields: &[Field]) -> HashMap<u64, Places> {
    let mut found: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, field) in fields.iter().enumerate() {
        if let Some(oneof) = field.oneof {
            found.entry(oneof).or_default().push(at);
        }
    }
    let shared = |(oneof, places): (u64, Vec<usize>)| (oneof, places.into());
    found.into_iter().map(shared).collect()
}
