//! Messages as a set of file descriptors has them (`descriptor.proto`).

use std::collections::HashMap;
use std::sync::Arc;

use crate::typed::input::Input;
use crate::typed::protobuf::wire::Wire;

const BYTES_MAX: usize = 16 << 20;
const LEVELS_MAX: usize = 63;
/// Of the full names of all types and their places: a name has those of the messages around it.
const NAMES_BYTES_MAX: usize = 64 << 20;
const PLACE_BYTES: usize = 8;

/// A message's type.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub fields: Vec<Field>,
    /// An entry of a map.
    pub is_entry: bool,
    /// Its place in its file: of the outermost message, of one in it, and so on.
    pub path: Vec<u64>,
}

/// A field of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    pub name: String,
    pub number: u32,
    pub label: Label,
    /// `FieldDescriptorProto.Type`.
    pub kind: u64,
    /// Of a message or an enum, with a dot before it.
    pub type_name: String,
    /// The oneof that it is in.
    pub oneof: Option<u64>,
    /// Whether a value that was set is told from one that was not.
    pub has_presence: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Label {
    #[default]
    Optional,
    Required,
    Repeated,
}

/// All types of a set, by their full names with a dot before them.
#[derive(Debug, Default)]
pub(crate) struct Types {
    pub messages: HashMap<String, Message>,
    pub enums: HashMap<String, Arc<HashMap<i32, String>>>,
    names_bytes: usize,
}

/// Where types are declared.
struct Scope<'a> {
    name: &'a str,
    is_proto3: bool,
    path: &'a [u64],
}

impl Types {
    /// Reads a `FileDescriptorSet`.
    ///
    /// # Errors
    /// A sentence: no descriptors, bounds.
    pub fn parse(bytes: &[u8]) -> Result<Types, String> {
        if bytes.len() > BYTES_MAX {
            return Err(format!("the schema has more than {BYTES_MAX} bytes"));
        }
        let mut types = Types::default();
        let bad = |reason| format!("the schema is no set of descriptors: {reason}");
        let mut input = Input { rest: bytes };
        while let Some((number, wire)) = input.field().map_err(bad)? {
            if let (1, Wire::Bytes(file)) = (number, wire) {
                types.file(file).map_err(bad)?;
            }
        }
        match types.messages.is_empty() {
            true => Err(bad("there is no message in it".into())),
            false => Ok(types),
        }
    }

    fn file(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (mut package, mut is_proto3) = (String::new(), false);
        let mut input = Input { rest: bytes };
        while let Some(field) = input.field()? {
            match field {
                (2, Wire::Bytes(name)) => package = format!(".{}", text(name)?),
                (12, Wire::Bytes(syntax)) => is_proto3 = syntax == b"proto3",
                _ => {}
            }
        }
        let scope = Scope {
            name: &package,
            is_proto3,
            path: &[],
        };
        self.declarations(bytes, &scope, (4, 5))
    }

    /// The messages and enums of a file or a message, which have the numbers given.
    fn declarations(
        &mut self,
        bytes: &[u8],
        scope: &Scope<'_>,
        numbers: (u32, u32),
    ) -> Result<(), String> {
        if scope.path.len() > LEVELS_MAX {
            return Err(format!("more than {LEVELS_MAX} messages in one another"));
        }
        let mut input = Input { rest: bytes };
        let mut place = 0;
        while let Some((number, wire)) = input.field()? {
            let Wire::Bytes(inner) = wire else {
                continue;
            };
            if number == numbers.0 {
                let path = [scope.path, &[place]].concat();
                self.message(inner, scope, path)?;
                place += 1;
            } else if number == numbers.1 {
                self.enumeration(inner, scope)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, bytes: &[u8], scope: &Scope<'_>, path: Vec<u64>) -> Result<(), String> {
        let mut name = String::new();
        let mut message = Message::default();
        let mut input = Input { rest: bytes };
        while let Some(found) = input.field()? {
            match found {
                (1, Wire::Bytes(own)) => name = self.name(scope, own)?,
                (2, Wire::Bytes(one)) => message.fields.push(field(one, scope.is_proto3)?),
                (7, Wire::Bytes(options)) => message.is_entry = is_entry(options)?,
                _ => {}
            }
        }
        let inner = Scope {
            name: &name,
            is_proto3: scope.is_proto3,
            path: &path,
        };
        self.declarations(bytes, &inner, (3, 4))?;
        message.path = path;
        self.messages.insert(name, message);
        Ok(())
    }

    fn enumeration(&mut self, bytes: &[u8], scope: &Scope<'_>) -> Result<(), String> {
        let mut name = String::new();
        let mut values = HashMap::new();
        let mut input = Input { rest: bytes };
        while let Some(found) = input.field()? {
            match found {
                (1, Wire::Bytes(own)) => name = self.name(scope, own)?,
                (2, Wire::Bytes(one)) => {
                    let (number, own) = enum_value(one)?;
                    // Of aliases the first one.
                    values.entry(number).or_insert(own);
                }
                _ => {}
            }
        }
        self.enums.insert(name, Arc::new(values));
        Ok(())
    }

    /// The full name of a type.
    fn name(&mut self, scope: &Scope<'_>, own: &[u8]) -> Result<String, String> {
        let place = PLACE_BYTES * (scope.path.len() + 1);
        self.names_bytes += scope.name.len() + own.len() + place;
        match self.names_bytes <= NAMES_BYTES_MAX {
            true => Ok(format!("{}.{}", scope.name, text(own)?)),
            false => Err(format!(
                "the names of its types take more than {NAMES_BYTES_MAX} bytes"
            )),
        }
    }
}

fn enum_value(bytes: &[u8]) -> Result<(i32, String), String> {
    let (mut number, mut name) = (0, String::new());
    let mut input = Input { rest: bytes };
    while let Some(found) = input.field()? {
        match found {
            (1, Wire::Bytes(own)) => name = text(own)?,
            (2, Wire::Number(own)) => number = own as i32,
            _ => {}
        }
    }
    Ok((number, name))
}

fn is_entry(options: &[u8]) -> Result<bool, String> {
    let mut found = false;
    let mut input = Input { rest: options };
    while let Some(option) = input.field()? {
        if let (7, Wire::Number(value)) = option {
            found = value != 0;
        }
    }
    Ok(found)
}

fn field(bytes: &[u8], is_proto3: bool) -> Result<Field, String> {
    let mut field = Field::default();
    let mut is_optional = false;
    let mut input = Input { rest: bytes };
    while let Some(found) = input.field()? {
        match found {
            (1, Wire::Bytes(name)) => field.name = text(name)?,
            (3, Wire::Number(number)) => {
                field.number = u32::try_from(number).map_err(|_| "a field without a number")?;
            }
            (4, Wire::Number(2)) => field.label = Label::Required,
            (4, Wire::Number(3)) => field.label = Label::Repeated,
            (5, Wire::Number(kind)) => field.kind = kind,
            (6, Wire::Bytes(name)) => field.type_name = text(name)?,
            (9, Wire::Number(oneof)) => field.oneof = Some(oneof),
            (17, Wire::Number(value)) => is_optional = value != 0,
            _ => {}
        }
    }
    // The oneof of proto3's `optional` has no other field.
    field.has_presence = !is_proto3 || is_optional || field.oneof.is_some();
    Ok(field)
}

fn text(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err("a name that is no text".into()),
    }
}
