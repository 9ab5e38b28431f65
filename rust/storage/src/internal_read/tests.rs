//! Walks over damaged slices: every intact batch is delivered, damaged ones are reported, and the
//! next read begins further on. The oracle must also catch planted bugs.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use pyrklog_wire::batch::{CRC_START, HEADER_LEN};
use pyrklog_wire::builder::BatchBuilder;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    /// A flipped bit that the checksum covers.
    Bit(usize),
    /// Another base offset, which no checksum covers.
    BaseOffset(i64),
    /// Another length: the next batch cannot be found.
    Length(i32),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => Just(Damage::None),
        2 => any::<usize>().prop_map(Damage::Bit),
        1 => any::<i64>().prop_map(Damage::BaseOffset),
        1 => (-3_i64..40).prop_map(Damage::BaseOffset),
        1 => prop_oneof![any::<i32>(), 0..400].prop_map(Damage::Length),
    ]
}

fn batches() -> impl Strategy<Value = Vec<(usize, Damage)>> {
    prop::collection::vec((1_usize..4, damage()), 1..8)
}

fn build(script: &[(usize, Damage)]) -> (Vec<u8>, Span) {
    let mut bytes = Vec::new();
    let mut offset = 0;
    for (records, damage) in script {
        let mut builder = BatchBuilder::new().base_offset(offset);
        for _ in 0..*records {
            builder.append(1_000, Some(b"key"), Some(&offset.to_be_bytes()));
            offset += 1;
        }
        let mut batch = builder.build();
        match *damage {
            Damage::None => {}
            Damage::Bit(bit) => {
                let bit = bit % ((batch.len() - CRC_START) * 8);
                batch[CRC_START + bit / 8] ^= 1 << (bit % 8);
            }
            Damage::BaseOffset(base) => batch[..8].copy_from_slice(&base.to_be_bytes()),
            Damage::Length(len) => batch[8..12].copy_from_slice(&len.to_be_bytes()),
        }
        bytes.extend(batch);
    }
    let span = Span {
        offset: 0,
        next_segment: offset,
        end: offset,
    };
    (bytes, span)
}

type Walk = fn(Span, &[u8]) -> InternalRead;

fn walk(span: Span, bytes: &[u8]) -> InternalRead {
    span.walk(bytes, usize::MAX)
}

fn check(script: &[(usize, Damage)], walk: Walk) -> Result<(), TestCaseError> {
    let (bytes, span) = build(script);
    let read = walk(span, &bytes);
    prop_assert!(read.next_offset > 0 && read.next_offset <= span.end);
    prop_assert!(!read.batches.is_empty());
    let sound: Vec<_> = read.batches.iter().filter(|b| b.damage.is_none()).collect();
    for pair in sound.windows(2) {
        prop_assert!(pair[0].last_offset < pair[1].base_offset, "{read:?}");
    }
    for batch in &sound {
        prop_assert!(batch.last_offset < span.end);
        prop_assert!(batch.records().count() > 0);
    }
    let followed = |(_, damage): &&(usize, Damage)| !matches!(damage, Damage::Length(_));
    let reached: Vec<_> = script.iter().take_while(followed).collect();
    let displaced = reached
        .iter()
        .any(|(_, damage)| matches!(damage, Damage::BaseOffset(_)));
    if displaced {
        // A displaced batch may overlap others, which then count as damaged.
        return Ok(());
    }
    let mut offset = 0;
    for (records, damage) in reached {
        let base_offset = offset;
        offset += *records as i64;
        let found = sound.iter().find(|batch| batch.base_offset == base_offset);
        let intact = matches!(damage, Damage::None);
        prop_assert_eq!(found.is_some(), intact, "{} in {:?}", base_offset, &read);
        let values = found.into_iter().flat_map(|batch| batch.records());
        for (at, key, value) in values {
            prop_assert_eq!(key, Some(&b"key"[..]));
            prop_assert_eq!(value, Some(&at.to_be_bytes()[..]));
        }
    }
    Ok(())
}

fn run(walk: Walk) -> Result<(), String> {
    let config = Config {
        cases: 3_000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let result = runner.run(&batches(), |script| check(&script, walk));
    result.map_err(|error| error.to_string())
}

#[test]
fn undamaged_batches_are_delivered() {
    assert_eq!(run(walk), Ok(()));
}

#[test]
fn injected_bugs_are_found() {
    let bugs: [(&str, Walk); 3] = [
        ("damage ends the read", |span, bytes| {
            let mut read = walk(span, bytes);
            if let Some(first) = read.batches.iter().position(|b| b.damage.is_some()) {
                read.batches.truncate(first + 1);
            }
            read
        }),
        ("no way forward", |span, bytes| {
            let mut read = walk(span, bytes);
            if read.batches.iter().all(|batch| batch.damage.is_some()) {
                read.next_offset = span.offset;
            }
            read
        }),
        ("the checksum is not looked at", |span, bytes| {
            let mut bytes = bytes.to_vec();
            let mut at = 0;
            while let Some(length) = bytes.get(at + 8..at + 12) {
                let length = i32::from_be_bytes(length.try_into().unwrap());
                let end = at.saturating_add(12).saturating_add(length.max(0) as usize);
                if end > bytes.len() || end - at < HEADER_LEN {
                    break;
                }
                batch::refresh_crc(&mut bytes[at..end]);
                at = end;
            }
            walk(span, &bytes)
        }),
    ];
    for (name, bug) in bugs {
        assert!(run(bug).is_err(), "not found: {name}");
    }
}
