//! Avro values of a scan: data that fit, that do not, and that are damaged, read by another schema
//! than they were written with.

use pyrklog_scan::Decoding;

use crate::Verdict;
use crate::decoded::{self, ELEMENT_FIELDS, ELEMENTS_FEW, ELEMENTS_MANY, Expected, Fitting, Sent};
use crate::script::Script;

/// Gives all of a batch up for one bad value, ignores what is behind a value, replaces what is not
/// UTF-8, takes an unknown branch for the last one, builds elements without a bound, numbers rows
/// anew.
pub const PLANTED: &[&str] = &[
    "batch-given-up",
    "trailing-ignored",
    "utf8-replaced",
    "branch-guessed",
    "elements-unbounded",
    "rows-renumbered",
];

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let (reader, writer) = schemas();
    decoded::run(script, planted, value, |on_bad| {
        Decoding::avro(&reader, Some(&writer), None, on_bad)
    })
}

fn value(script: &mut Script<'_>) -> Sent {
    let datum = Datum {
        id: script.option(Script::i64),
        text: script.text(),
        items: script.list(ELEMENTS_FEW, |script| script.option(Script::i64)),
        unknown: unknown(script),
    };
    let good = datum.written(datum.text.as_bytes(), 1);
    match script.below(10) {
        0 => Sent::new(None, Expected::Tombstone),
        1 => Sent::bad(&good[..script.below(good.len())]),
        2 => {
            let longer = [&good[..], &[script.pick(&[0, 1, 0xff])]].concat();
            taken_for(Sent::bad(longer), "trailing-ignored", good)
        }
        3 => {
            let text = [datum.text.as_bytes(), b"\xff"].concat();
            let replaced = String::from_utf8_lossy(&text).into_owned();
            let mistaken = datum.written(replaced.as_bytes(), 1);
            taken_for(
                Sent::bad(datum.written(&text, 1)),
                "utf8-replaced",
                mistaken,
            )
        }
        4 => {
            let id = Some(datum.id.unwrap_or(7));
            let datum = Datum { id, ..datum };
            let branch = script.pick(&[2, -1, i64::MAX, i64::MIN]);
            let value = datum.written(datum.text.as_bytes(), branch);
            let mistaken = datum.written(datum.text.as_bytes(), 1);
            taken_for(Sent::bad(value), "branch-guessed", mistaken)
        }
        5 => {
            let items = vec![None; ELEMENTS_MANY + script.below(20)];
            let datum = Datum { items, ..datum };
            Sent::bad(datum.written(datum.text.as_bytes(), 1))
        }
        6 => {
            // Without an end, however many it counts.
            let count = script.pick(&[1, 1 << 40, i64::MAX, i64::MIN, -1]);
            let mut value = [number(0), number(0), number(count)].concat();
            value.extend(number(script.pick(&[0, 1, -1, i64::MAX])));
            Sent::bad(value)
        }
        7 => {
            let mut value = good;
            script.damage(&mut value);
            Sent::new(Some(value), Expected::Anything)
        }
        _ => Sent::new(Some(good), Expected::Value(datum.fitting())),
    }
}

fn taken_for(sent: Sent, mistake: &'static str, value: Vec<u8>) -> Sent {
    Sent {
        mistaken: vec![(mistake, value)],
        ..sent
    }
}

/// What the writer's schema holds.
struct Datum {
    id: Option<i64>,
    text: String,
    items: Vec<Option<i64>>,
    /// The encoded field that nobody asks for.
    unknown: Vec<u8>,
}

impl Datum {
    fn fitting(self) -> Fitting {
        Fitting {
            id: self.id,
            text: Some(self.text),
            items: Some(self.items),
        }
    }

    /// Encoded with this text; an id that is there is said to be of `branch`.
    fn written(&self, text: &[u8], branch: i64) -> Vec<u8> {
        let mut out = match self.id {
            None => number(0),
            Some(id) => [number(branch), number(id)].concat(),
        };
        out.extend(prefixed(text));
        out.extend_from_slice(&self.unknown);
        for (at, item) in self.items.iter().enumerate() {
            let element = match item {
                None => number(0),
                Some(one) => [number(1), number(*one)].concat(),
            };
            match at % 2 {
                0 => out.extend(number(1)),
                _ => out.extend([number(-1), number(element.len() as i64)].concat()),
            }
            out.extend(element);
        }
        out.push(0);
        out
    }
}

/// A map of lists that nobody asks for.
fn unknown(script: &mut Script<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..script.below(3) {
        out.extend(number(1));
        out.extend(prefixed(script.text().as_bytes()));
        // Elements of no bytes: as many as can be counted.
        out.extend(number(script.pick(&[1, i64::MAX])));
        out.push(0);
    }
    out.push(0);
    out
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len() as i64), bytes.to_vec()].concat()
}

fn number(value: i64) -> Vec<u8> {
    let mut rest = (i128::from(value) * 2) as u64;
    if value < 0 {
        rest = !rest;
    }
    let mut out = Vec::new();
    while rest > 127 {
        out.push((rest % 128) as u8 + 128);
        rest /= 128;
    }
    out.push(rest as u8);
    out
}

/// The reader's and the writer's.
fn schemas() -> (String, String) {
    let optional = r#"["null","long"]"#;
    let wide: Vec<_> = (1..ELEMENT_FIELDS)
        .map(|at| format!(r#",{{"name":"f{at}","type":{optional},"default":null}}"#))
        .collect();
    let schema = |more: &str, unknown: &str| {
        format!(
            r#"{{"type":"record","name":"Value","fields":[
            {{"name":"id","type":{optional}}},{{"name":"text","type":"string"}},{unknown}
            {{"name":"items","type":{{"type":"array","items":{{"type":"record","name":"Item",
            "fields":[{{"name":"f0","type":{optional}}}{more}]}}}}}}]}}"#
        )
    };
    let unknown = r#"{"name":"unknown","type":{"type":"map","values":
        {"type":"array","items":"null"}}},"#;
    (schema(&wide.concat(), ""), schema("", unknown))
}
