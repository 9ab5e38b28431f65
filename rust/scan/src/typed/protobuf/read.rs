//! One message into nodes.

use std::collections::HashMap;

use crate::typed::budget::{Budget, ELEMENT_BYTES};
use crate::typed::input::Input;
use crate::typed::node::{Children, Kind as Column, Node, Text};
use crate::typed::protobuf::plan::{Count, Kind, Plan, PlanField};
use crate::typed::protobuf::wire::{Wire, zigzag};
use crate::typed::words;

const MICROS: i64 = 1_000_000;
const NANOS_A_MICRO: i64 = 1000;

/// Appends a message.
///
/// # Errors
/// A sentence: it does not fit; what was begun of it is to be taken back.
pub(crate) fn append(
    plan: &Plan,
    node: &mut Node,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<(), String> {
    let row = node.len();
    let Column::Struct(children) = &mut node.kind else {
        return Err(other_column(node));
    };
    let parts = match plan.has_merged {
        true => parts(plan, bytes, budget)?,
        false => HashMap::new(),
    };
    let mut guess = 0;
    let mut input = Input { rest: bytes };
    while let Some((number, wire)) = input.field()? {
        let Some(at) = find(plan, number, guess) else {
            if let Some(places) = plan.clears.get(&number) {
                clear(places.iter(), children, row, budget)?;
            }
            continue;
        };
        guess = at + 1;
        let field = &plan.fields[at];
        if parts.contains_key(&at) {
            continue;
        }
        let found = occurrence(field, &mut children.nodes[at], row, wire, budget);
        let is_known = found.map_err(|reason| within(children, at, reason))?;
        if let (true, Some(oneof)) = (is_known, &field.oneof) {
            let others = oneof.iter().filter(|other| **other != at);
            clear(others, children, row, budget)?;
        }
    }
    for (at, bytes) in parts {
        let (field, node) = (&plan.fields[at], &mut children.nodes[at]);
        let found = occurrence(field, node, row, Wire::Bytes(&bytes), budget);
        found.map_err(|reason| within(children, at, reason))?;
    }
    finish(plan, children, row, budget)?;
    node.nulls.append_non_null();
    Ok(())
}

/// The place of a field by its number. Producers write fields in order: `guess` is looked at first.
#[inline]
fn find(plan: &Plan, number: u32, guess: usize) -> Option<usize> {
    if let Some((known, at)) = plan.numbers.get(guess)
        && *known == number
        && *at == guess
    {
        return Some(guess);
    }
    let found = plan.numbers.binary_search_by_key(&number, |one| one.0);
    found.ok().map(|at| plan.numbers[at].1)
}

/// The messages that come in several parts, put together.
fn parts(
    plan: &Plan,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<HashMap<usize, Vec<u8>>, String> {
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let each = |run: &mut dyn FnMut(usize, &[u8])| -> Result<(), String> {
        let (mut input, mut guess) = (Input { rest: bytes }, 0);
        while let Some((number, wire)) = input.field()? {
            if let (Some(at), Wire::Bytes(part)) = (find(plan, number, guess), wire) {
                guess = at + 1;
                if plan.fields[at].is_merged {
                    run(at, part);
                }
            }
        }
        Ok(())
    };
    each(&mut |at, _| *seen.entry(at).or_default() += 1)?;
    seen.retain(|_, count| *count > 1);
    let mut found: HashMap<usize, Vec<u8>> = HashMap::new();
    if !seen.is_empty() {
        // They are copied, perhaps on each level.
        charge(budget, bytes.len())?;
        each(&mut |at, part| {
            if seen.contains_key(&at) {
                found.entry(at).or_default().extend_from_slice(part);
            }
        })?;
    }
    Ok(found)
}

/// Takes back what others of a oneof have got. A few bytes may ask for it again and again.
fn clear<'a>(
    places: impl Iterator<Item = &'a usize>,
    children: &mut Children,
    row: usize,
    budget: &mut Budget,
) -> Result<(), String> {
    for at in places {
        charge(budget, 1)?;
        take_back(&mut children.nodes[*at], row, budget)?;
    }
    Ok(())
}

/// Takes back what the row has got so far. It may be wide, and take few bytes in the message.
fn take_back(node: &mut Node, row: usize, budget: &mut Budget) -> Result<(), String> {
    if node.len() > row {
        charge(budget, node.width)?;
        node.truncate(row);
    }
    Ok(())
}

/// Nulls and zeros for what did not come, and ends of lists.
fn finish(
    plan: &Plan,
    children: &mut Children,
    row: usize,
    budget: &mut Budget,
) -> Result<(), String> {
    for (at, field) in plan.fields.iter().enumerate() {
        let node = &mut children.nodes[at];
        match field.count {
            Count::List | Count::Map => {
                match &mut node.kind {
                    Column::List { offsets, item, .. } => offsets.push(item.len() as i32),
                    Column::Map {
                        offsets, values, ..
                    } => offsets.push(values.len() as i32),
                    _ => return Err(other_column(node)),
                }
                node.nulls.append_non_null();
            }
            _ if node.len() > row => {}
            Count::Optional => node.push_null(),
            Count::Implicit => zero(&field.kind, node, budget)?,
            Count::Required => return Err(within(children, at, "it is missing".into())),
        }
    }
    Ok(())
}

/// A field that has come; false if it has another type on the wire, which parsers pass over.
fn occurrence(
    field: &PlanField,
    node: &mut Node,
    row: usize,
    wire: Wire<'_>,
    budget: &mut Budget,
) -> Result<bool, String> {
    match field.count {
        Count::List => items(&field.kind, node, wire, budget),
        Count::Map => entry(&field.kind, node, wire, budget),
        _ => {
            // There twice: the last one counts.
            if is_of(&field.kind, wire) {
                take_back(node, row, budget)?;
            }
            value(&field.kind, node, wire, budget)
        }
    }
}

fn items(
    kind: &Kind,
    node: &mut Node,
    wire: Wire<'_>,
    budget: &mut Budget,
) -> Result<bool, String> {
    let Column::List { item, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    let width = ELEMENT_BYTES + item.width;
    let packed = match wire {
        Wire::Bytes(bytes) if is_packable(kind) => bytes,
        _ if is_of(kind, wire) => {
            charge(budget, width)?;
            return value(kind, item, wire, budget);
        }
        _ => return Ok(false),
    };
    let mut input = Input { rest: packed };
    while !input.rest.is_empty() {
        let wire = match kind {
            Kind::Double | Kind::Fixed64 | Kind::SFixed64 => Wire::Eight(input.array()?),
            Kind::Float | Kind::Fixed32 | Kind::SFixed32 => Wire::Four(input.array()?),
            _ => Wire::Number(input.number()?),
        };
        charge(budget, width)?;
        value(kind, item, wire, budget)?;
    }
    Ok(true)
}

fn entry(
    kind: &Kind,
    node: &mut Node,
    wire: Wire<'_>,
    budget: &mut Budget,
) -> Result<bool, String> {
    let Wire::Bytes(bytes) = wire else {
        return Ok(false);
    };
    let Column::Map { keys, values, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    let (mut key, mut last): (&[u8], _) = (&[], None);
    let mut input = Input { rest: bytes };
    while let Some(found) = input.field()? {
        match found {
            (1, Wire::Bytes(own)) => key = own,
            (2, wire) if is_of(kind, wire) => last = Some(wire),
            _ => {}
        }
    }
    charge(budget, ELEMENT_BYTES + values.width + key.len())?;
    keys.push(utf8(key)?);
    match last {
        Some(wire) => value(kind, values, wire, budget)?,
        None if values.is_nullable => {
            values.push_null();
            true
        }
        None => {
            zero(kind, values, budget)?;
            true
        }
    };
    Ok(true)
}

fn is_packable(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Text | Kind::Bytes | Kind::Message(_) | Kind::Timestamp
    )
}

/// Whether a single value of the kind is written so.
fn is_of(kind: &Kind, wire: Wire<'_>) -> bool {
    match wire {
        Wire::Eight(_) => matches!(kind, Kind::Double | Kind::Fixed64 | Kind::SFixed64),
        Wire::Four(_) => matches!(kind, Kind::Float | Kind::Fixed32 | Kind::SFixed32),
        Wire::Bytes(_) => !is_packable(kind),
        Wire::Group => false,
        Wire::Number(_) => {
            let is_fixed = is_of(kind, Wire::Eight([0; 8])) || is_of(kind, Wire::Four([0; 4]));
            is_packable(kind) && !is_fixed
        }
    }
}

fn value(
    kind: &Kind,
    node: &mut Node,
    wire: Wire<'_>,
    budget: &mut Budget,
) -> Result<bool, String> {
    if let (Kind::Message(plan), Wire::Bytes(bytes)) = (kind, wire) {
        append(plan, node, bytes, budget)?;
        return Ok(true);
    }
    match (kind, wire) {
        (Kind::Double, Wire::Eight(bytes)) => float(node, f64::from_le_bytes(bytes))?,
        (Kind::Float, Wire::Four(bytes)) => float(node, f32::from_le_bytes(bytes).into())?,
        (Kind::Int32, Wire::Number(number)) => int(node, (number as i32).into())?,
        (Kind::Int64, Wire::Number(number)) => int(node, number as i64)?,
        (Kind::UInt32, Wire::Number(number)) => int(node, (number as u32).into())?,
        (Kind::UInt64, Wire::Number(number)) => unsigned(node, number)?,
        (Kind::SInt32, Wire::Number(number)) => int(node, (zigzag(number) as i32).into())?,
        (Kind::SInt64, Wire::Number(number)) => int(node, zigzag(number))?,
        (Kind::Fixed32, Wire::Four(bytes)) => int(node, u32::from_le_bytes(bytes).into())?,
        (Kind::Fixed64, Wire::Eight(bytes)) => unsigned(node, u64::from_le_bytes(bytes))?,
        (Kind::SFixed32, Wire::Four(bytes)) => int(node, i32::from_le_bytes(bytes).into())?,
        (Kind::SFixed64, Wire::Eight(bytes)) => int(node, i64::from_le_bytes(bytes))?,
        (Kind::Bool, Wire::Number(number)) => boolean(node, number != 0)?,
        (Kind::Text, Wire::Bytes(bytes)) => {
            charge(budget, bytes.len())?;
            text(node)?.push(utf8(bytes)?);
        }
        (Kind::Bytes, Wire::Bytes(bytes)) => {
            charge(budget, bytes.len())?;
            text(node)?.push_bytes(bytes);
        }
        (Kind::Enum(names), Wire::Number(number)) => {
            symbol(names, number as i32, node, budget)?;
        }
        (Kind::Timestamp, Wire::Bytes(bytes)) => timestamp(node, bytes)?,
        _ => return Ok(false),
    }
    node.nulls.append_non_null();
    Ok(true)
}

/// What a field without presence is when it did not come. An enum's has a name.
fn zero(kind: &Kind, node: &mut Node, budget: &mut Budget) -> Result<(), String> {
    if let Kind::Enum(names) = kind {
        symbol(names, 0, node, budget)?;
        node.nulls.append_non_null();
        return Ok(());
    }
    match &mut node.kind {
        Column::Bool(values) => values.append(false),
        Column::Int { values, .. } => values.push(0),
        Column::UInt64(values) => values.push(0),
        Column::Float { values, .. } => values.push(0.0),
        Column::Text(text) => text.push(""),
        _ => return Err(other_column(node)),
    }
    node.nulls.append_non_null();
    Ok(())
}

fn int(node: &mut Node, found: i64) -> Result<(), String> {
    let Column::Int { values, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    values.push(found);
    Ok(())
}

fn unsigned(node: &mut Node, found: u64) -> Result<(), String> {
    let Column::UInt64(values) = &mut node.kind else {
        return Err(other_column(node));
    };
    values.push(found);
    Ok(())
}

fn float(node: &mut Node, found: f64) -> Result<(), String> {
    let Column::Float { values, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    values.push(found);
    Ok(())
}

fn boolean(node: &mut Node, found: bool) -> Result<(), String> {
    let Column::Bool(values) = &mut node.kind else {
        return Err(other_column(node));
    };
    values.append(found);
    Ok(())
}

fn text(node: &mut Node) -> Result<&mut Text, String> {
    match &mut node.kind {
        Column::Text(text) => Ok(text),
        _ => Err("no value for a column of another type".into()),
    }
}

/// The value's name; a number that the schema has not, as a text.
fn symbol(
    names: &HashMap<i32, String>,
    number: i32,
    node: &mut Node,
    budget: &mut Budget,
) -> Result<(), String> {
    match names.get(&number) {
        Some(name) => {
            charge(budget, name.len())?;
            text(node)?.push(name);
        }
        None => {
            let name = number.to_string();
            charge(budget, name.len())?;
            text(node)?.push(&name);
        }
    }
    Ok(())
}

fn timestamp(node: &mut Node, bytes: &[u8]) -> Result<(), String> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut input = Input { rest: bytes };
    while let Some(found) = input.field()? {
        match found {
            (1, Wire::Number(number)) => seconds = number as i64,
            (2, Wire::Number(number)) => nanos = i64::from(number as i32),
            _ => {}
        }
    }
    let Column::Time { values, .. } = &mut node.kind else {
        return Err(other_column(node));
    };
    let is_nanos = (0..NANOS_A_MICRO * MICROS).contains(&nanos);
    let micros = seconds.checked_mul(MICROS);
    let micros = micros.and_then(|one: i64| one.checked_add(nanos / NANOS_A_MICRO));
    match micros.filter(|_| is_nanos) {
        Some(micros) => values.push(micros),
        None => return Err(format!("{seconds} s and {nanos} ns are no time")),
    }
    Ok(())
}

fn charge(budget: &mut Budget, bytes: usize) -> Result<(), String> {
    budget.charge(bytes).map_err(|error| error.to_string())
}

fn utf8(found: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(found).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))
}

/// A plan fits its columns: both are made of the same schema.
#[cold]
fn other_column(node: &Node) -> String {
    format!("no value for a column of {}", node.data_type)
}

#[cold]
fn within(children: &Children, at: usize, reason: String) -> String {
    words::within(children.fields[at].name(), reason)
}
