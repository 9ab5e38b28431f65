//! Avro's schemas and values that lie, or would cost more than they weigh.

use serde_json::{Value, json};

use super::avro::{one, read, read_as, refused};
use super::avro_plain::number;
use crate::typed::{Decoding, OnBad};

#[test]
fn schemas_that_cannot_be_used_are_refused() {
    let wide = json!({"type": "bytes", "logicalType": "decimal", "precision": 39});
    let within = |schema: Value| refused(&one(&schema));
    assert!(refused("{").starts_with("the schema is no JSON: "));
    assert_eq!(
        refused("\"int\""),
        "the schema is int; columns are a record's fields"
    );
    assert_eq!(refused("7"), "7 is no type");
    assert_eq!(refused("{}"), "a type has no \"type\"");
    assert_eq!(refused("[]"), "a union has no type");
    assert_eq!(within(json!("Int")), "a: there is no type \"Int\"");
    assert_eq!(within(json!("R")), "a: the type R contains itself");
    assert_eq!(within(json!([["int"]])), "a: a union is in a union");
    assert_eq!(
        within(json!({"type": "array"})),
        "a: array has no \"items\""
    );
    assert_eq!(
        within(json!({"type": "fixed", "name": "F"})),
        "a: the fixed F has no size"
    );
    assert_eq!(
        within(json!({"type": "enum", "name": "E", "symbols": []})),
        "a: the enum E has no symbols"
    );
    assert_eq!(
        within(json!({"type": "fixed", "name": "R", "size": 1})),
        "a: the type R is there twice"
    );
    assert_eq!(
        within(wide),
        "the field \"a\" cannot be a decimal of 39 digits, but of 38 at most"
    );
    assert_eq!(
        within(json!({"type": "array", "items": ["int", "string"]})),
        "the field \"item\" cannot be a union of several types (in \"a\")"
    );
    let twice = json!({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"}, {"name": "a", "type": "int"}]});
    assert_eq!(
        refused(&twice.to_string()),
        "the field \"a\" of the record R is there twice"
    );
    let list = json!({"type": "record", "name": "R", "fields": [
        {"name": "next", "type": ["null", "R"]}]});
    assert_eq!(
        refused(&list.to_string()),
        "next: the type R contains itself"
    );
}

/// On a small stack.
fn shallow(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn schemas_are_bounded_however_they_are_written() {
    shallow(|| {
        // Each type twice the one before: 2^40 fields written out.
        let mut laughs = vec![json!({"type": "record", "name": "T0", "fields": []})];
        // Each type around the one before: as deep as there are types.
        let mut chain = laughs.clone();
        for at in 1..5000 {
            let before = format!("T{}", at - 1);
            let field = |name: &str| json!({"name": name, "type": before});
            let own = format!("T{at}");
            if at < 40 {
                let fields = [field("a"), field("b")];
                laughs.push(json!({"type": "record", "name": own, "fields": fields}));
            }
            chain.push(json!({"type": "record", "name": own, "fields": [field("a")]}));
        }
        let text = refused(&Value::from(laughs).to_string());
        assert!(
            text.ends_with("a schema has at most 10000 fields and types"),
            "{text}"
        );
        let text = refused(&Value::from(chain).to_string());
        assert!(text.ends_with("a schema has at most 63 levels"), "{text}");
        let deep = |levels: usize| {
            let lists = "{\"type\":\"array\",\"items\":".repeat(levels);
            let inner = format!("{lists}\"int\"{}", "}".repeat(levels));
            format!(r#"{{"type":"record","name":"R","fields":[{{"name":"a","type":{inner}}}]}}"#)
        };
        Decoding::avro(&deep(61), None, None, OnBad::Null).unwrap();
        assert_eq!(refused(&deep(62)), "a schema has at most 63 levels");
        assert!(refused(&deep(10_000)).starts_with("the schema is no JSON: recursion limit"));
        assert!(refused(&"[".repeat(2 << 20)).contains("more than 1048576 bytes"));
        // The same type by many names: each pair is a plan of its own.
        let fields: Vec<_> = (0..900)
            .map(|at| json!({"name": format!("f{at}"), "type": "int", "default": 0}))
            .collect();
        let branch = |at: usize| json!({"type": "record", "name": "S", "namespace": format!("n{at}"), "fields": []});
        let branches: Vec<_> = (0..200).map(branch).collect();
        let reader = one(&json!({"type": "record", "name": "S", "fields": fields}));
        let reason = read_as(&one(&branches.into()), &reader, &[0]);
        let reason = reason.unwrap_err();
        assert!(
            reason.contains("a plan of more than 100000 parts"),
            "{reason}"
        );
    });
}

#[test]
fn lengths_and_counts_are_not_believed() {
    let list = |items: Value| json!({"type": "array", "items": items});
    let empty = json!({"type": "record", "name": "E", "fields": []});
    let many = number(i64::MAX);
    let huge = [many.clone(), many.clone()].concat();
    let fields: Vec<_> = (0..1000)
        .map(|at| json!({"name": format!("f{at}"), "type": ["null", "long"], "default": null}))
        .collect();
    let wide = json!({"type": "record", "name": "W", "fields": fields});
    let too_much = "a: it takes more than 8388608 bytes as columns";
    let cases: Vec<(Value, Vec<u8>, &str)> = vec![
        (json!("bytes"), many.clone(), "a: it ends where"),
        (list(json!("int")), many.clone(), "a: it ends in a number"),
        (list(json!("null")), many.clone(), too_much),
        (list(empty.clone()), many.clone(), too_much),
        (list(list(json!("null"))), huge.clone(), too_much),
        (
            list(json!("null")),
            [number(i64::MIN), vec![0]].concat(),
            too_much,
        ),
        (
            json!({"type": "map", "values": "null"}),
            huge,
            "a: it ends where",
        ),
        (
            list(wide),
            [number(100_000), vec![0; 2_000_000]].concat(),
            too_much,
        ),
    ];
    let thin = json!({"type": "record", "name": "R", "fields": [
        {"name": "b", "type": "int", "default": 1}]})
    .to_string();
    for (schema, value, reason) in cases {
        let found = read(&schema, &value).unwrap_err();
        assert!(found.starts_with(reason), "{schema}: {found}");
        // Nor when they are passed over.
        if reason != too_much {
            read_as(&one(&schema), &thin, &value).unwrap_err();
        }
    }
    for items in [json!("null"), empty] {
        let skipped = read_as(&one(&list(items)), &thin, &[many.clone(), vec![0]].concat());
        assert_eq!(skipped, Ok(json!({"b": 1})));
    }
    for bytes in [number(-1), number(i64::MAX), number(5)] {
        let value = [number(-1), bytes, vec![0]].concat();
        read_as(&one(&list(json!("int"))), &thin, &value).unwrap_err();
    }
}

#[test]
fn what_is_passed_over_costs_no_more_than_its_bytes() {
    // Were each of these nulls looked at, a value of a few MiB would take minutes.
    let nulls = |first: Value| {
        let field = |at| json!({"name": format!("n{at}"), "type": "null"});
        let fields: Vec<_> = std::iter::once(first).chain((0..9000).map(field)).collect();
        json!({"type": "record", "name": "N", "fields": fields})
    };
    let list = |items: Value| json!({"type": "array", "items": items});
    let bool = json!({"name": "b", "type": "boolean"});
    let null = json!({"name": "b", "type": "null"});
    let count = 3 << 20;
    let value = [number(count), vec![0; count as usize], vec![0]].concat();
    let thin = json!({"type": "record", "name": "R", "fields": [
        {"name": "b", "type": "int", "default": 1}]});
    for items in [nulls(bool), list(nulls(null))] {
        let found = read_as(&one(&list(items)), &thin.to_string(), &value);
        assert_eq!(found, Ok(json!({"b": 1})));
    }
    // Nor between fields that are read.
    let mut fields: Vec<_> = (0..4500)
        .map(|at| json!({"name": format!("n{at}"), "type": {"type": "fixed", "name": format!("F{at}"), "size": 0}}))
        .collect();
    fields.push(json!({"name": "x", "type": "boolean"}));
    let wide = json!({"type": "record", "name": "W", "fields": fields});
    let small =
        json!({"type": "record", "name": "W", "fields": [{"name": "x", "type": "boolean"}]});
    let count = 1 << 20;
    let value = [number(count), vec![1; count as usize], vec![0]].concat();
    let found = read_as(&one(&list(wide)), &one(&list(small)), &value).unwrap();
    assert_eq!(found["a"].as_array().map(Vec::len), Some(1 << 20));
}

#[test]
fn a_plan_is_bounded_with_its_texts() {
    let branches = |count: usize| -> Value {
        let branch = |at: usize| json!({"type": "record", "name": "S", "namespace": format!("n{at}"), "fields": []});
        (0..count).map(branch).collect::<Vec<_>>().into()
    };
    let reason = |field: Value| {
        let reader = one(&json!({"type": "record", "name": "S", "fields": [field]}));
        read_as(&one(&branches(2000)), &reader, &[0]).unwrap_err()
    };
    let symbols: Vec<_> = (0..9000).map(|at| format!("s{at}")).collect();
    let symbols = json!({"type": "enum", "name": "E", "symbols": symbols});
    let long = "x".repeat(100_000);
    for field in [
        json!({"name": "e", "type": symbols, "default": "s0"}),
        json!({"name": "e", "type": "string", "default": long}),
        json!({"name": "e", "type": "bytes", "default": long}),
        json!({"name": "e", "type": {"type": "map", "values": "int"}, "default": {&long: 1}}),
    ] {
        let found = reason(field);
        assert!(
            found.contains("a plan of more than 100000 parts"),
            "{found}"
        );
    }
    // The reason of each branch has names of a bounded length.
    let wide = json!({"type": "fixed", "name": long, "size": 1});
    let found = read_as(&one(&wide), &one(&json!("int")), &[0]).unwrap_err();
    assert!(found.contains(&"x".repeat(100)), "{found}");
    assert!(found.len() < 1000, "{}", found.len());
}
