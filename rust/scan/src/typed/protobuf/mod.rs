//! Protobuf: messages of a set of descriptors into columns.
//!
//! ```text
//! descriptor  the set's messages and enums
//! plan        which columns a message has, and how its fields come into them
//! wire        tags and what follows them
//! read        one message into the nodes, by a plan
//! ```

mod descriptor;
mod plan;
mod read;
mod wire;

use arrow_schema::Fields;

use crate::typed::budget::Budget;
use crate::typed::input::Input;
use crate::typed::node::Node;

use descriptor::Types;
use plan::Plan;
use wire::zigzag;

/// Before the id of a schema, in four bytes, and the place of the message in it.
const MAGIC: u8 = 0;
const ID_BYTES: usize = 4;

/// How messages are read.
#[derive(Debug)]
pub(crate) struct Messages {
    plan: Plan,
    /// The message's place in its file, if values are framed.
    path: Option<Vec<u64>>,
}

/// The columns of a message, and how it is read.
///
/// # Errors
/// A sentence: no descriptors, no such message or field, bounds.
pub(crate) fn messages(
    descriptors: &[u8],
    message: &str,
    is_framed: bool,
    names: Option<&[String]>,
) -> Result<(Fields, Messages), String> {
    let types = Types::parse(descriptors)?;
    let (fields, plan) = plan::plan(&types, message, names)?;
    let full = format!(".{}", message.trim_start_matches('.'));
    let path = types.messages.get(&full).map(|one| one.path.clone());
    let path = path.filter(|_| is_framed);
    Ok((fields, Messages { plan, path }))
}

impl Messages {
    /// Appends a value.
    ///
    /// # Errors
    /// A sentence: it does not fit; what was begun of it is to be taken back.
    pub fn append(&self, node: &mut Node, value: &[u8], budget: &mut Budget) -> Result<(), String> {
        let bytes = match &self.path {
            None => value,
            Some(path) => unframed(value, path)?,
        };
        read::append(&self.plan, node, bytes, budget)
    }
}

/// What is behind the frame of a registry's serializer.
///
/// # Errors
/// A sentence: there is none, or it is of another message.
fn unframed<'a>(value: &'a [u8], path: &[u64]) -> Result<&'a [u8], String> {
    let Some((MAGIC, rest)) = value.split_first().map(|(first, rest)| (*first, rest)) else {
        return Err("it does not begin with the id of a schema".into());
    };
    let (_, rest) = rest
        .split_at_checked(ID_BYTES)
        .ok_or("it is too short for the id of a schema")?;
    let mut input = Input { rest };
    let count = zigzag(input.number()?);
    // The first message of a file is written short.
    let mut found = vec![0];
    if count != 0 {
        found.clear();
        for _ in 0..count {
            if found.len() > path.len() {
                break;
            }
            found.push(zigzag(input.number()?) as u64);
        }
    }
    match found == path {
        true => Ok(input.rest),
        false => Err(format!(
            "it is the message {found:?} of its file, not {path:?}"
        )),
    }
}
