//! Values of a scan as typed columns: JSON that fits, that does not, and that is damaged.

use std::fmt::Write;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use pyrklog_scan::Decoding;

use crate::Verdict;
use crate::decoded::{self, ELEMENT_FIELDS, ELEMENTS_FEW, ELEMENTS_MANY, Expected, Fitting, Sent};
use crate::script::Script;

/// Gives all of a batch up for one bad value, ignores what is behind a value, replaces what is not
/// UTF-8, builds elements without a bound, keeps the first of two fields, numbers rows anew.
pub const PLANTED: &[&str] = &[
    "batch-given-up",
    "trailing-ignored",
    "utf8-replaced",
    "elements-unbounded",
    "first-field-kept",
    "rows-renumbered",
];

const MISTAKES: [&str; 3] = ["trailing-ignored", "utf8-replaced", "first-field-kept"];

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    decoded::run(script, planted, value, |on_bad| {
        Decoding::new(&schema(), None, on_bad)
    })
}

fn value(script: &mut Script<'_>) -> Sent {
    let sent = written(script);
    let of = |mistake| {
        sent.value
            .as_ref()
            .map(|value| (mistake, mistaken(mistake, value)))
    };
    Sent {
        mistaken: MISTAKES.into_iter().filter_map(of).collect(),
        ..sent
    }
}

fn written(script: &mut Script<'_>) -> Sent {
    let (mut text, fitting) = object(script);
    match script.below(10) {
        0 => Sent::new(None, Expected::Tombstone),
        1 => {
            let end = 1 + script.below(text.len() - 1);
            let mut bytes = text.into_bytes();
            bytes.truncate(end);
            Sent::bad(bytes)
        }
        2 => {
            text.push(script.pick(&['}', ',', '1', '{', '\0']));
            Sent::bad(text)
        }
        3 => {
            let wrong = script.pick(&["\"x\"", "1.5", "9223372036854775808", "[]", "true", "1 2"]);
            text.insert_str(text.len() - 1, &format!(",\"id\":{wrong}"));
            Sent::bad(text)
        }
        4 => {
            let wrong = script.pick(&["[1]", "{}", "[{\"f0\":\"x\"}]", "\"\""]);
            text.insert_str(text.len() - 1, &format!(",\"items\":{wrong}"));
            Sent::bad(text)
        }
        5 => {
            let many = vec!["{}"; ELEMENTS_MANY + script.below(20)].join(",");
            text.insert_str(text.len() - 1, &format!(",\"items\":[{many}]"));
            Sent::bad(text)
        }
        6 => {
            let mut bytes = text.into_bytes();
            bytes.splice(1..1, *b"\"unknown\":\"\xff\",");
            Sent::bad(bytes)
        }
        7 => {
            let mut bytes = text.into_bytes();
            script.damage(&mut bytes);
            Sent::new(Some(bytes), Expected::Anything)
        }
        _ => Sent::new(Some(text.into_bytes()), Expected::Value(fitting)),
    }
}

/// A value that fits; it has a field at least.
fn object(script: &mut Script<'_>) -> (String, Fitting) {
    let mut fitting = Fitting::default();
    let mut parts = vec![format!("\"unknown\":{}", nested(script))];
    if script.bool() {
        parts.push(format!("\"id\":{}", script.i64()));
        fitting.id = Some(script.i64());
        parts.push(format!("\"id\" : {}", fitting.id.unwrap_or_default()));
    }
    if script.bool() {
        let text = script.text();
        parts.push(format!("\"text\":\"{}\"", escaped(&text)));
        fitting.text = Some(text);
    }
    if script.bool() {
        let items = script.list(ELEMENTS_FEW, |script| script.option(Script::i64));
        let element = |one: &Option<i64>| match one {
            Some(number) => format!("{{\"f0\":{number},\"more\":null}}"),
            None => "{}".into(),
        };
        let all: Vec<_> = items.iter().map(element).collect();
        parts.push(format!("\"items\":[{}]", all.join(" , ")));
        fitting.items = Some(items);
    }
    (format!("{{{}}}", parts.join(",")), fitting)
}

/// JSON that nobody asked for, at times very deep.
fn nested(script: &mut Script<'_>) -> String {
    let depth = script.pick(&[0, 1, 3, 200, 2000]);
    match script.bool() {
        true => format!("{}{}", "[".repeat(depth + 1), "]".repeat(depth + 1)),
        false => format!(
            "{}1e999{}",
            "{\"id\":".repeat(depth / 4),
            "}".repeat(depth / 4)
        ),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for one in text.chars() {
        match one {
            '\0' => out.push_str("\\u0000"),
            '\u{1f4a9}' => out.push_str("\\uD83D\\udca9"),
            '.' => write!(out, "\\u{:04x}", u32::from(one)).unwrap_or_default(),
            other => out.push(other),
        }
    }
    out
}

fn schema() -> Fields {
    let wide: Fields = (0..ELEMENT_FIELDS)
        .map(|number| Field::new(format!("f{number}"), DataType::Int64, true))
        .collect();
    let item = Field::new("item", DataType::Struct(wide), false);
    Fields::from(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("items", DataType::List(Arc::new(item)), true),
    ])
}

/// What a typical mistake would take a value for.
fn mistaken(mistake: &str, value: &[u8]) -> Vec<u8> {
    match mistake {
        "trailing-ignored" => {
            let end = value.iter().rposition(|byte| *byte == b'}');
            value[..end.map_or(0, |end| end + 1)].to_vec()
        }
        "first-field-kept" => {
            let text = String::from_utf8_lossy(value);
            text.replace("\"id\" :", "\"ie\" :").into_bytes()
        }
        _ => String::from_utf8_lossy(value).into_owned().into_bytes(),
    }
}
