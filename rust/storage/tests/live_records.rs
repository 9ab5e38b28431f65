//! Live records against a model that keeps the whole log: of each key the record with the highest
//! offset among those of no transaction and of committed ones.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pyrklog_control::live_records::{LiveRecords, LiveRecordsLoader};
use pyrklog_control::seam::InternalBatch;
use pyrklog_wire::batch::HEADER_LEN;
use pyrklog_wire::builder::BatchBuilder;

const KEYS: u8 = 5;
const PRODUCERS: i64 = 3;

/// (key, value or a tombstone).
type Pair = (u8, Option<u8>);

#[derive(Clone, Debug)]
enum Step {
    Plain(Vec<Pair>),
    Transactional(i64, Vec<Pair>),
    End(i64, bool),
    Damage,
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    prop::collection::vec((0..KEYS, prop::option::of(any::<u8>())), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => pairs().prop_map(Step::Plain),
        4 => (0..PRODUCERS, pairs()).prop_map(|(id, pairs)| Step::Transactional(id, pairs)),
        3 => (0..PRODUCERS, any::<bool>()).prop_map(|(id, commit)| Step::End(id, commit)),
        1 => Just(Step::Damage),
    ]
}

fn batch(base_offset: i64, producer_id: i64, records: &[(&[u8], Option<&[u8]>)]) -> InternalBatch {
    let mut builder = BatchBuilder::new();
    for (key, value) in records {
        builder.append(0, Some(key), *value);
    }
    InternalBatch {
        base_offset,
        last_offset: base_offset + records.len() as i64 - 1,
        producer_id,
        producer_epoch: 4,
        is_transactional: producer_id >= 0,
        is_control: false,
        body: builder.build()[HEADER_LEN..].to_vec(),
        damage: None,
    }
}

fn of_pairs(base_offset: i64, producer_id: i64, pairs: &[Pair]) -> InternalBatch {
    // Values of different lengths: some replace others in place.
    let values: Vec<Option<Vec<u8>>> = pairs
        .iter()
        .map(|(_, value)| value.map(|value| vec![value; usize::from(value % 3) + 1]))
        .collect();
    let keys: Vec<[u8; 1]> = pairs.iter().map(|(key, _)| [*key]).collect();
    let records: Vec<(&[u8], Option<&[u8]>)> = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| (&key[..], value.as_deref()))
        .collect();
    batch(base_offset, producer_id, &records)
}

fn marker(offset: i64, producer_id: i64, commit: bool) -> InternalBatch {
    let key = [0, 0, 0, u8::from(commit)];
    InternalBatch {
        is_control: true,
        ..batch(offset, producer_id, &[(&key, Some(&[0; 6]))])
    }
}

fn damaged(offset: i64) -> InternalBatch {
    InternalBatch {
        body: Vec::new(),
        damage: Some("checksum".into()),
        ..batch(offset, -1, &[(b"k", None)])
    }
}

/// Offset, key and value of each record that counts.
type Table = Vec<(i64, u8, Vec<u8>)>;

#[derive(Default)]
struct Model {
    /// Those that count by now, tombstones as well.
    counted: Vec<(i64, Pair)>,
    open: BTreeMap<i64, Vec<(i64, Pair)>>,
    end: i64,
    read: u64,
    damaged: u64,
}

impl Model {
    fn step(&mut self, step: &Step) -> InternalBatch {
        let base = self.end;
        let numbered = |pairs: &[Pair]| (base..).zip(pairs.iter().copied()).collect::<Vec<_>>();
        let batch = match step {
            Step::Plain(pairs) => {
                self.counted.extend(numbered(pairs));
                of_pairs(base, -1, pairs)
            }
            Step::Transactional(id, pairs) => {
                self.open.entry(*id).or_default().extend(numbered(pairs));
                of_pairs(base, *id, pairs)
            }
            Step::End(id, commit) => {
                let ended = self.open.remove(id).unwrap_or_default();
                if *commit {
                    self.counted.extend(ended);
                }
                marker(base, *id, *commit)
            }
            Step::Damage => {
                self.damaged += 1;
                damaged(base)
            }
        };
        self.end = batch.last_offset + 1;
        if let Step::Plain(pairs) | Step::Transactional(_, pairs) = step {
            self.read += pairs.len() as u64;
        }
        batch
    }

    /// Offset and value, or a tombstone, that count of each key.
    fn last(&self) -> BTreeMap<u8, (i64, Option<u8>)> {
        let mut counted = self.counted.clone();
        counted.sort_unstable();
        let counted = counted.into_iter();
        counted
            .map(|(offset, (key, value))| (key, (offset, value)))
            .collect()
    }

    /// Records of open transactions that were not deleted later.
    fn open(&self) -> BTreeMap<i64, Vec<(i64, Pair)>> {
        let last = self.last();
        let is_left = |(offset, (key, _)): &(i64, Pair)| match last.get(key) {
            Some((deleted_at, None)) => deleted_at < offset,
            _ => true,
        };
        let open = self.open.iter();
        open.map(|(id, all)| (*id, all.iter().copied().filter(is_left).collect()))
            .collect()
    }

    fn live(&self) -> Table {
        let live = self
            .last()
            .into_iter()
            .filter_map(|(key, (offset, value))| {
                let value = value?;
                Some((offset, key, vec![value; usize::from(value % 3) + 1]))
            });
        let mut live: Table = live.collect();
        live.sort_unstable();
        live
    }
}

fn taken(found: &LiveRecords, page: usize) -> Table {
    let mut all = Table::new();
    loop {
        let left = found.count();
        let records = found.take(page);
        assert_eq!(found.count(), left - records.len());
        if records.is_empty() {
            return all;
        }
        let records = records.into_iter();
        all.extend(records.map(|(offset, key, value)| (offset, key[0], value.into_vec())));
    }
}

proptest! {
    #[test]
    fn the_record_with_the_highest_offset_counts(
        steps in prop::collection::vec(step(), 0..40),
        page in 1_usize..5,
    ) {
        let (mut model, mut loader) = (Model::default(), LiveRecordsLoader::default());
        for step in &steps {
            loader.feed(&model.step(step));
        }
        let found = loader.finish(model.end);
        prop_assert_eq!(found.end_offset, model.end);
        prop_assert_eq!((found.read, found.damaged_count), (model.read, model.damaged));
        prop_assert_eq!(taken(&found, page), model.live());
        let left = model.open();
        let open: Vec<_> = left.iter().map(|(id, all)| (*id, 4, all.len())).collect();
        prop_assert_eq!(found.open_transactions(), open);
        for (id, expected) in &left {
            let records = found.take_open(*id, usize::MAX);
            let offsets: Vec<_> = records.iter().map(|(at, key, value)| {
                (*at, (key[0], value.as_ref().map(|value| value[0])))
            }).collect();
            prop_assert_eq!(&offsets, expected);
        }
    }
}

#[test]
fn a_tombstone_behind_an_open_record_outlives_its_commit() {
    let mut loader = LiveRecordsLoader::default();
    loader.feed(&of_pairs(0, 1, &[(3, Some(1))]));
    loader.feed(&of_pairs(1, -1, &[(3, None)]));
    loader.feed(&marker(2, 1, true));
    assert_eq!(loader.finish(3).count(), 0);
}

#[test]
fn a_tombstone_behind_an_open_record_deletes_it() {
    let mut loader = LiveRecordsLoader::default();
    loader.feed(&of_pairs(0, 1, &[(3, Some(1)), (4, Some(1)), (5, Some(1))]));
    loader.feed(&of_pairs(3, -1, &[(3, None), (4, None), (5, Some(2))]));
    loader.feed(&of_pairs(6, 1, &[(4, Some(3))]));
    let found = loader.finish(7);
    assert_eq!(found.open_transactions(), [(1, 4, 2)]);
    let offsets = found.take_open(1, 9).into_iter().map(|(offset, ..)| offset);
    assert_eq!(offsets.collect::<Vec<_>>(), [2, 6]);
    assert_eq!(taken(&found, 9), [(5, 5, vec![2; 3])]);
}

#[test]
fn markers_of_unknown_types_end_nothing_and_damage_is_told_within_bounds() {
    let mut loader = LiveRecordsLoader::default();
    loader.feed(&of_pairs(0, 1, &[(3, Some(1))]));
    let unknown: &[u8] = &[0, 0, 0, 7];
    let other = InternalBatch {
        is_control: true,
        ..batch(1, 1, &[(unknown, Some(&[0; 6]))])
    };
    loader.feed(&other);
    let short = InternalBatch {
        is_control: true,
        ..batch(2, 1, &[(&[0, 0], None)])
    };
    loader.feed(&short);
    for offset in 3..100 {
        loader.feed(&damaged(offset));
    }
    let found = loader.finish(100);
    assert_eq!(found.open_transactions(), [(1, 4, 1)]);
    assert_eq!((found.damaged.len(), found.damaged_count), (20, 98));
    assert_eq!(found.damaged[0].0, 2);
    assert!(found.take_open(9, 10).is_empty(), "an unknown producer");
}
