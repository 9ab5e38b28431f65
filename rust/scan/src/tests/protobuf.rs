//! Protobuf: every type and label, messages that come in parts, and bytes that lie.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::avro_plain::{cells, decoded};
use crate::error::ErrorKind;
use crate::testing::How;
use crate::typed::{Decoding, OnBad};

fn number(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push((value % 128) as u8 + 128);
        value /= 128;
    }
    out.push(value as u8);
    out
}

fn tag(field: u32, wire: u64) -> Vec<u8> {
    number(u64::from(field) << 3 | wire)
}

fn int(field: u32, value: i64) -> Vec<u8> {
    [tag(field, 0), number(value as u64)].concat()
}

fn bytes(field: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [
        tag(field, 2),
        number(content.len() as u64),
        content.to_vec(),
    ]
    .concat()
}

/// A field's descriptor: name, number, label, type and more.
fn field(name: &str, place: i64, label: i64, kind: i64, more: &[Vec<u8>]) -> Vec<u8> {
    let own = [bytes(1, name), int(3, place), int(4, label), int(5, kind)].concat();
    bytes(2, [own, more.concat()].concat())
}

fn message(name: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    [bytes(1, name), parts.concat()].concat()
}

/// A set of one file of the package `p`.
fn file(syntax: &str, declarations: &[Vec<u8>]) -> Vec<u8> {
    let file = [bytes(2, "p"), declarations.concat(), bytes(12, syntax)].concat();
    bytes(1, file)
}

fn enumeration() -> Vec<u8> {
    let value = |name: &str, place| bytes(2, [bytes(1, name), int(2, place)].concat());
    bytes(
        5,
        [bytes(1, "E"), value("ZERO", 0), value("ONE", 1)].concat(),
    )
}

/// p.M of proto3.
fn descriptors() -> Vec<u8> {
    let point = message(
        "P",
        &[
            field("x", 1, 1, 5, &[]),
            field("y", 2, 1, 9, &[int(17, 1), int(9, 0)]),
        ],
    );
    let entry = message(
        "CountsEntry",
        &[
            field("key", 1, 1, 9, &[]),
            field("value", 2, 1, 3, &[]),
            bytes(7, int(7, 1)),
        ],
    );
    let pair = message(
        "PairsEntry",
        &[
            field("key", 1, 1, 5, &[]),
            field("value", 2, 1, 9, &[]),
            bytes(7, int(7, 1)),
        ],
    );
    let of = |name: &str| bytes(6, name);
    let root = message(
        "M",
        &[
            field("id", 1, 1, 3, &[]),
            field("name", 2, 1, 9, &[]),
            field("maybe", 3, 1, 17, &[int(17, 1), int(9, 1)]),
            field("kind", 4, 1, 14, &[of(".p.E")]),
            field("numbers", 5, 3, 13, &[]),
            field("tags", 6, 3, 9, &[]),
            field("at", 7, 1, 11, &[of(".p.M.P")]),
            field("more", 8, 3, 11, &[of(".p.M.P")]),
            field("counts", 9, 3, 11, &[of(".p.M.CountsEntry")]),
            field("pairs", 10, 3, 11, &[of(".p.M.PairsEntry")]),
            field("a", 11, 1, 5, &[int(9, 0)]),
            field("b", 12, 1, 9, &[int(9, 0)]),
            field("time", 13, 1, 11, &[of(".google.protobuf.Timestamp")]),
            field("ratio", 14, 1, 1, &[]),
            field("big", 15, 1, 6, &[]),
            field("raw", 16, 1, 12, &[]),
            bytes(3, entry),
            bytes(3, point),
            bytes(3, pair),
        ],
    );
    let other = message("Other", &[field("id", 1, 1, 5, &[])]);
    file("proto3", &[bytes(4, other), bytes(4, root), enumeration()])
}

fn zeros() -> Value {
    json!({"id": 0, "name": "", "maybe": null, "kind": "ZERO", "numbers": [], "tags": [],
        "at": null, "more": [], "counts": {}, "pairs": [], "a": null, "b": null, "time": null,
        "ratio": 0.0, "big": 0, "raw": []})
}

fn read_of(set: &[u8], name: &str, value: &[u8]) -> Result<Value, String> {
    let decoding = Decoding::protobuf(set, name, false, None, OnBad::Fail)?;
    match decoded(How::default(), decoding, &[Some(value)]) {
        Ok((batches, _)) => Ok(cells(&batches).remove(0)),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::BadValue);
            let place = "topic topic partition 3 offset 0: the value does not fit the schema: ";
            Err(error.text.strip_prefix(place).unwrap().to_owned())
        }
    }
}

fn read(value: &[Vec<u8>]) -> Result<Value, String> {
    read_of(&descriptors(), "p.M", &value.concat())
}

/// The zeros but for these fields.
fn with(fields: &[(&str, Value)]) -> Result<Value, String> {
    let mut all = zeros();
    for (name, value) in fields {
        all[*name] = value.clone();
    }
    Ok(all)
}

#[test]
fn every_field_has_its_column() {
    assert_eq!(read(&[]), with(&[]));
    let value = [
        int(1, -5),
        bytes(2, "ä"),
        int(3, 3),
        int(4, 1),
        bytes(5, [number(1), number(u32::MAX.into())].concat()),
        int(5, 3),
        bytes(6, "x"),
        bytes(6, ""),
        bytes(7, [int(1, 7), bytes(2, "")].concat()),
        bytes(8, ""),
        bytes(8, int(1, -1)),
        bytes(9, [bytes(1, "k"), int(2, 9)].concat()),
        bytes(9, ""),
        bytes(10, [int(1, 4), bytes(2, "v")].concat()),
        bytes(13, [int(1, -1), int(2, 999_999_999)].concat()),
        [tag(14, 1), 0.5_f64.to_le_bytes().to_vec()].concat(),
        [tag(15, 1), u64::MAX.to_le_bytes().to_vec()].concat(),
        bytes(16, [0_u8, 255]),
    ];
    let expected = with(&[
        ("id", json!(-5)),
        ("name", json!("ä")),
        ("maybe", json!(-2)),
        ("kind", json!("ONE")),
        ("numbers", json!([1, u32::MAX, 3])),
        ("tags", json!(["x", ""])),
        ("at", json!({"x": 7, "y": ""})),
        ("more", json!([{"x": 0, "y": null}, {"x": -1, "y": null}])),
        ("counts", json!({"": 0, "k": 9})),
        ("pairs", json!([{"key": 4, "value": "v"}])),
        ("time", json!(-1)),
        ("ratio", json!(0.5)),
        ("big", json!(u64::MAX)),
        ("raw", json!([0, 255])),
    ]);
    assert_eq!(read(&value), expected);
    // In any order: what is of another field is not touched.
    let mut turned = value.to_vec();
    turned.reverse();
    turned.swap(12, 13);
    let found = read(&turned).unwrap();
    assert_eq!(found["at"], json!({"x": 7, "y": ""}));
    assert_eq!(found["tags"], json!(["", "x"]));
}

#[test]
fn fields_that_come_twice_follow_the_rules_of_parsers() {
    assert_eq!(read(&[int(1, 1), int(1, 2)]), with(&[("id", json!(2))]));
    // Parts of a message are one.
    let parts = [bytes(7, int(1, 7)), int(1, 5), bytes(7, bytes(2, "y"))];
    let expected = with(&[("id", json!(5)), ("at", json!({"x": 7, "y": "y"}))]);
    assert_eq!(read(&parts), expected);
    let again = [bytes(7, int(1, 7)), bytes(7, int(1, 8))];
    assert_eq!(read(&again), with(&[("at", json!({"x": 8, "y": null}))]));
    // The last one of a oneof.
    assert_eq!(
        read(&[int(11, 1), bytes(12, "b")]),
        with(&[("b", json!("b"))])
    );
    let back = [int(11, 1), bytes(12, "b"), int(11, 2)];
    assert_eq!(read(&back), with(&[("a", json!(2))]));
    let only = ["a".to_owned()];
    for (value, expected) in [
        ([int(11, 1), bytes(12, "b")], json!({"a": null})),
        ([bytes(12, "b"), int(11, 1)], json!({"a": 1})),
    ] {
        let decoding =
            Decoding::protobuf(&descriptors(), "p.M", false, Some(&only), OnBad::Fail).unwrap();
        let (found, _) = decoded(How::default(), decoding, &[Some(&value.concat())]).unwrap();
        assert_eq!(cells(&found), [expected]);
    }
}

#[test]
fn what_is_not_known_is_passed_over() {
    let group = [
        tag(99, 3),
        int(1, 1),
        [tag(98, 3), tag(98, 4)].concat(),
        tag(99, 4),
    ]
    .concat();
    let unknown = [
        int(100, -1),
        bytes(101, "x"),
        [tag(102, 1), vec![0; 8]].concat(),
        [tag(103, 5), vec![0; 4]].concat(),
        group,
        // Other types on the wire than the schema's.
        bytes(1, "x"),
        int(2, 1),
        int(7, 1),
        [tag(5, 5), vec![0; 4]].concat(),
        int(4, 7),
    ];
    assert_eq!(read(&unknown), with(&[("kind", json!("7"))]));
}

#[test]
fn bytes_that_lie_are_bad() {
    let deep = [
        vec![tag(99, 3); 101].concat(),
        vec![tag(99, 4); 101].concat(),
    ]
    .concat();
    let cases = [
        (vec![0x80], "it ends in a number"),
        (vec![0xff; 11], "a number has more than 64 bits"),
        (vec![0], "0 is not a tag"),
        (tag(1, 6), "the field 1 has the wire type 6"),
        (tag(1, 4), "the field 1 has the wire type 4"),
        (tag(99, 3), "it ends in a number"),
        (
            [tag(99, 3), tag(98, 4)].concat(),
            "the field 98 has the wire type 4",
        ),
        (deep, "the field 99 has the wire type 3"),
        ([tag(2, 2), number(u64::MAX)].concat(), "it ends where"),
        (bytes(2, [0xff_u8]), "name: not UTF-8 at byte 0"),
        (bytes(7, [0x08_u8]), "at: it ends in a number"),
        (bytes(13, int(2, -1)), "time: 0 s and -1 ns are no time"),
        (
            bytes(13, int(1, i64::MAX)),
            "time: 9223372036854775807 s and 0 ns are no time",
        ),
        (bytes(5, [0x80_u8]), "numbers: it ends in a number"),
        (
            bytes(5, vec![1_u8; 2 << 20]),
            "numbers: it takes more than 8388608 bytes as columns",
        ),
    ];
    for (value, reason) in cases {
        let found = read(&[value]).unwrap_err();
        assert!(found.starts_with(reason), "{found}");
    }
    let good = [int(1, 1), bytes(7, int(1, 2)), bytes(8, bytes(2, "y"))].concat();
    for end in 0..good.len() {
        let set = descriptors();
        let decoding = Decoding::protobuf(&set, "p.M", false, None, OnBad::Null).unwrap();
        let values = [Some(&good[..]), Some(&good[..end]), Some(&good[..])];
        let (batches, _) = decoded(How::default(), decoding, &values).unwrap();
        let found = cells(&batches);
        assert_eq!(found[0]["more"], json!([{"x": 0, "y": "y"}]));
        assert_eq!(found[0], found[2]);
    }
}

#[test]
fn parts_of_parts_cost_no_more_than_their_bytes() {
    // Each message is in the one before, twice: a parser that reads a message anew for each part
    // would read the last one 2^40 times.
    let names: Vec<String> = (0..41).map(|at| format!("M{at}")).collect();
    let mut declarations = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let id = field("id", 2, 1, 5, &[]);
        let inner = match names.get(at + 1) {
            Some(next) => field("in", 1, 1, 11, &[bytes(6, format!(".p.{next}"))]),
            None => Vec::new(),
        };
        declarations.push(bytes(4, message(name, &[id, inner])));
    }
    let mut value = int(2, 1);
    for _ in 0..40 {
        value = [bytes(1, &value), bytes(1, int(2, 1))].concat();
    }
    let mut found = read_of(&file("proto3", &declarations), "p.M0", &value).unwrap();
    for _ in 0..40 {
        found = found["in"].clone();
    }
    assert_eq!(found, json!({"id": 1}));
}

#[test]
fn proto2_tells_what_was_not_set() {
    let root = message(
        "M",
        &[field("must", 1, 2, 5, &[]), field("may", 2, 1, 9, &[])],
    );
    let set = file("proto2", &[bytes(4, root)]);
    assert_eq!(
        read_of(&set, "p.M", &int(1, 0)),
        Ok(json!({"must": 0, "may": null}))
    );
    let bad = read_of(&set, "p.M", &bytes(2, "x"));
    assert_eq!(bad, Err("must: it is missing".into()));
}

#[test]
fn a_frame_names_the_message() {
    let set = descriptors();
    let framed = |place: &[u8]| [&[0, 0, 0, 0, 7], place, &int(1, 5)].concat();
    let decoding = Decoding::protobuf(&set, "p.M", true, None, OnBad::Null).unwrap();
    let other = Decoding::protobuf(&set, "p.Other", true, None, OnBad::Null).unwrap();
    let values = [
        framed(&[2, 2]),
        framed(&[0]),
        framed(&[2, 0]),
        framed(&[4, 2, 0]),
        vec![0, 0],
    ];
    let values: Vec<_> = values.iter().map(|value| Some(&value[..])).collect();
    let (found, _) = decoded(How::default(), decoding, &values).unwrap();
    let five = with(&[("id", json!(5))]).unwrap();
    let expected = [five, Value::Null, Value::Null, Value::Null, Value::Null];
    assert_eq!(cells(&found), expected);
    let (found, _) = decoded(How::default(), other, &values).unwrap();
    let five = json!({"id": 5});
    assert_eq!(
        cells(&found),
        [Value::Null, five.clone(), five, Value::Null, Value::Null]
    );
}

#[test]
fn schemas_that_cannot_be_used_are_refused() {
    let refused = |set: &[u8], name: &str| {
        Decoding::protobuf(set, name, false, None, OnBad::Null).unwrap_err()
    };
    assert!(refused(b"no set", "p.M").starts_with("the schema is no set of descriptors: "));
    assert!(refused(b"", "p.M").ends_with("there is no message in it"));
    let text = refused(&descriptors(), "p.N");
    assert!(
        text.starts_with("the schema has no message \"p.N\"; it has p.M, p.M.Counts"),
        "{text}"
    );
    let of = |name: &str, kind| field("f", 1, 1, kind, &[bytes(6, name)]);
    let one = |field: Vec<u8>| file("proto3", &[bytes(4, message("M", &[field]))]);
    assert_eq!(
        refused(&one(of(".p.M", 11)), "p.M"),
        "f: the message .p.M contains itself"
    );
    assert_eq!(
        refused(&one(of(".p.N", 11)), "p.M"),
        "f: there is no message .p.N"
    );
    assert_eq!(
        refused(&one(of(".p.E", 14)), "p.M"),
        "f: there is no enum .p.E"
    );
    assert_eq!(refused(&one(of("", 10)), "p.M"), "f: it cannot be a group");
    assert_eq!(refused(&one(of("", 99)), "p.M"), "f: it has the type 99");
}

/// p.M with a oneof of two messages of many fields.
fn wide_oneof() -> Vec<u8> {
    let fields: Vec<_> = (1..=4000)
        .map(|at| field(&format!("f{at}"), at, 1, 5, &[]))
        .collect();
    let one = |name, place| field(name, place, 1, 11, &[bytes(6, ".p.W"), int(9, 0)]);
    let root = message("M", &[one("a", 1), one("b", 2), field("id", 3, 1, 5, &[])]);
    let wide = message("W", &fields);
    file("proto3", &[bytes(4, root), bytes(4, wide)])
}

#[test]
fn what_is_taken_back_again_and_again_is_bounded() {
    let turns = |parts: &[Vec<u8>]| parts.concat().repeat(1000);
    let only = |name: &str| Some(vec![name.to_owned()]);
    let cases = [
        (turns(&[bytes(1, ""), bytes(2, "")]), None),
        (turns(&[bytes(1, "")]), None),
        // The other one is not asked for.
        (turns(&[bytes(1, ""), bytes(2, "")]), only("a")),
        (turns(&[bytes(1, ""), bytes(1, "")]), only("a")),
    ];
    for (value, names) in cases {
        let set = wide_oneof();
        let made = Decoding::protobuf(&set, "p.M", false, names.as_deref(), OnBad::Fail);
        let error = decoded(How::default(), made.unwrap(), &[Some(&value)]).unwrap_err();
        assert!(
            error
                .text
                .ends_with("it takes more than 8388608 bytes as columns"),
            "{}",
            error.text
        );
    }
}

#[test]
fn names_of_enums_that_did_not_come_count() {
    // A message of two bytes has an enum whose zero has a long name.
    let zero = bytes(2, [bytes(1, "Z".repeat(10_000)), int(2, 0)].concat());
    let kinds = bytes(5, [bytes(1, "E"), zero].concat());
    let item = message("I", &[field("kind", 1, 1, 14, &[bytes(6, ".p.E")])]);
    let entry = message(
        "CountsEntry",
        &[
            field("key", 1, 1, 5, &[]),
            field("value", 2, 1, 14, &[bytes(6, ".p.E")]),
            bytes(7, int(7, 1)),
        ],
    );
    let root = message(
        "M",
        &[
            field("items", 1, 3, 11, &[bytes(6, ".p.I")]),
            field("counts", 2, 3, 11, &[bytes(6, ".p.M.CountsEntry")]),
            bytes(3, entry),
        ],
    );
    let set = file("proto3", &[bytes(4, root), bytes(4, item), kinds]);
    let few = read_of(&set, "p.M", &bytes(1, "").repeat(10)).unwrap();
    assert_eq!(few["items"][9]["kind"], json!("Z".repeat(10_000)));
    let pairs: Vec<_> = (0..1000).map(|key| bytes(2, int(1, key))).collect();
    for many in [bytes(1, "").repeat(1000), pairs.concat()] {
        let found = read_of(&set, "p.M", &many).unwrap_err();
        assert!(
            found.ends_with("it takes more than 8388608 bytes as columns"),
            "{found}"
        );
    }
}

#[test]
fn a_oneof_of_messages_is_the_last_one_whatever_is_asked_for() {
    let first = bytes(1, int(1, 7));
    let cases = [
        (vec![first.clone(), first.clone(), bytes(2, "")], None),
        (vec![bytes(2, ""), first.clone()], Some((7, 0))),
        (vec![first.clone(), bytes(1, int(2, 8))], Some((0, 8))),
    ];
    for (value, expected) in cases {
        for names in [vec!["a"], vec!["a", "b"], vec!["id", "a"]] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let set = wide_oneof();
            let made = Decoding::protobuf(&set, "p.M", false, Some(&names), OnBad::Fail);
            let value = value.concat();
            let (found, _) = decoded(How::default(), made.unwrap(), &[Some(&value)]).unwrap();
            let found = &cells(&found)[0]["a"];
            let fields = found.as_object().map(|one| (&one["f1"], &one["f2"]));
            let expected = expected.map(|(one, other)| (json!(one), json!(other)));
            assert_eq!(fields, expected.as_ref().map(|(one, other)| (one, other)));
        }
    }
}

#[test]
fn descriptors_are_bounded_however_they_are_written() {
    // An outer message's name is in those of all messages in it.
    let inner: Vec<_> = (0..100).map(|_| bytes(3, message("x", &[]))).collect();
    let root = message(&"M".repeat(1 << 20), &inner);
    let refused = |set: &[u8], name: &str| {
        Decoding::protobuf(set, name, false, None, OnBad::Null).unwrap_err()
    };
    let text = refused(&file("proto3", &[bytes(4, root)]), "p.M");
    assert!(
        text.ends_with("the names of its types take more than 67108864 bytes"),
        "{text}"
    );
    // Messages in one another: in their declarations, and as fields.
    let mut deep = message("x", &[]);
    for _ in 0..70 {
        deep = message("x", &[bytes(3, deep)]);
    }
    let text = refused(&file("proto3", &[bytes(4, deep)]), "p.x");
    assert!(
        text.ends_with("more than 63 messages in one another"),
        "{text}"
    );
    let of = |at: usize| bytes(6, format!(".p.M{at}"));
    let chain = |twice: bool| {
        let mut declarations = vec![bytes(4, message("M70", &[]))];
        for at in 0..70 {
            let mut parts = vec![field("a", 1, 1, 11, &[of(at + 1)])];
            if twice {
                parts.push(field("b", 2, 1, 11, &[of(at + 1)]));
            }
            declarations.push(bytes(4, message(&format!("M{at}"), &parts)));
        }
        file("proto3", &declarations)
    };
    let text = refused(&chain(false), "p.M0");
    assert!(text.ends_with("a schema has at most 63 levels"), "{text}");
    let text = refused(&chain(true), "p.M8");
    assert!(
        text.ends_with("a schema has at most 10000 fields"),
        "{text}"
    );
    assert!(text.len() < 1000, "{}", text.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damage_costs_its_own_row(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let good = [
            int(1, 300),
            bytes(5, [1_u8, 2]),
            bytes(6, "x"),
            bytes(7, int(1, 7)),
            bytes(7, bytes(2, "y")),
            bytes(8, int(1, 8)),
            bytes(9, [bytes(1, "k"), int(2, 9)].concat()),
            bytes(10, int(1, 4)),
            int(11, 5),
            bytes(13, int(1, 6)),
        ]
        .concat();
        let mut damaged = good.clone();
        for (at, byte) in places {
            damaged[at.index(good.len())] = byte;
        }
        damaged.truncate(end.index(good.len() + 1));
        damaged.extend(noise);
        for names in [None, Some(&["at".to_owned(), "a".to_owned()][..])] {
            let set = descriptors();
            let decoding = Decoding::protobuf(&set, "p.M", false, names, OnBad::Null).unwrap();
            let values = [Some(&good[..]), Some(&damaged[..]), Some(&good[..])];
            let (batches, _) = decoded(How::default(), decoding, &values).unwrap();
            let found = cells(&batches);
            prop_assert_eq!(&found[0]["at"], &json!({"x": 7, "y": "y"}));
            prop_assert_eq!(&found[0]["a"], &json!(5));
            prop_assert_eq!(&found[0], &found[2]);
        }
    }
}
