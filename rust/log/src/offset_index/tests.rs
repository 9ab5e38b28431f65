use super::*;
use crate::sparse_index::search;
use proptest::prelude::*;

const LOG_SIZE: u64 = 1 << 30;

fn filled() -> OffsetIndex {
    let mut index = OffsetIndex::new(100, 32);
    for (offset, position) in [(109, 4100), (119, 8300), (205, 12_400)] {
        index.append(offset, position).expect("rises");
    }
    index
}

#[test]
fn an_entry_is_relative_offset_then_position() {
    let mut index = OffsetIndex::new(100, 1024);
    assert_eq!(index.append(0x1234, 0x0102_0304), Ok(()));
    assert_eq!(index.as_bytes(), [0, 0, 0x11, 0xd0, 1, 2, 3, 4]);
}

#[test]
fn lookup_takes_the_last_entry_at_or_below() {
    let index = filled();
    for (target, offset, position) in [
        (0, 100, 0),
        (100, 100, 0),
        (108, 100, 0),
        (109, 109, 4100),
        (118, 109, 4100),
        (119, 119, 8300),
        (i64::MAX, 205, 12_400),
    ] {
        assert_eq!(
            index.lookup(target),
            OffsetEntry { offset, position },
            "{target}"
        );
    }
}

#[test]
fn an_upper_bound_is_the_first_entry_at_or_behind_a_position() {
    let index = filled();
    let bound = |position| index.view().upper_bound(position).map(|entry| entry.offset);
    assert_eq!(bound(0), Some(109));
    assert_eq!(bound(4100), Some(109));
    assert_eq!(bound(4101), Some(119));
    assert_eq!(bound(12_401), None);
}

#[test]
fn an_index_on_disk_is_searched_entry_by_entry() {
    let index = filled();
    let mut reads = 0;
    let found: Result<OffsetEntry, _> = search(index.len(), 100, 150, |i| {
        reads += 1;
        index.as_bytes()[i * ENTRY_BYTES..]
            .first_chunk::<ENTRY_BYTES>()
            .copied()
            .ok_or("out of range")
    });
    assert_eq!(
        found,
        Ok(OffsetEntry {
            offset: 119,
            position: 8300
        })
    );
    assert!(reads <= 2);
    let broken = search::<OffsetEntry, [u8; ENTRY_BYTES], _>(1, 100, 150, |_| Err("broken disk"));
    assert!(matches!(broken, Err("broken disk")));
}

#[test]
fn truncation_drops_the_offset_itself() {
    for (offset, kept) in [(99, 0), (109, 0), (110, 1), (119, 1), (205, 2), (206, 3)] {
        let mut index = filled();
        assert_eq!(index.truncate_to(offset), kept * ENTRY_BYTES, "{offset}");
        assert_eq!(index.len(), kept);
    }
}

#[test]
fn appending_obeys_order_range_and_size() {
    let mut index = filled();
    assert_eq!(
        index.append(205, 20_000),
        Err(IndexError::NotRising { entry: 3 })
    );
    assert_eq!(
        index.append(206, 12_400),
        Err(IndexError::NotRising { entry: 3 })
    );
    let overflow = 100 + i64::from(i32::MAX) + 1;
    assert_eq!(
        index.append(overflow, 20_000),
        Err(IndexError::OffsetOverflow)
    );
    assert!(index.append(99, 20_000).is_err());
    assert!(!index.is_full());
    index.append(206, 20_000).expect("the last slot");
    assert!(index.is_full());
    assert_eq!(index.append(300, 30_000), Err(IndexError::Full));
}

#[test]
fn a_preallocated_file_is_cut_to_its_entries() {
    let mut bytes = filled().as_bytes().to_vec();
    bytes.resize(1024, 0);
    let index = OffsetIndex::load(100, 1024, &bytes, LOG_SIZE).expect("zeros are no entries");
    assert_eq!(index.len(), 3);
    let empty = OffsetIndex::load(100, 1024, &[0; 1024], LOG_SIZE).expect("never written");
    assert!(empty.is_empty());
}

#[test]
fn damage_is_found() {
    let good = filled().as_bytes().to_vec();
    assert!(OffsetIndexView::checked(100, &good, 12_401).is_ok());
    assert_eq!(
        OffsetIndexView::checked(100, &good[..23], LOG_SIZE).err(),
        Some(IndexError::PartialEntry)
    );
    assert_eq!(
        OffsetIndexView::checked(100, &good, 12_400).err(),
        Some(IndexError::BeyondLog { entry: 2 })
    );
    let mut hole = good.clone();
    hole[8..16].fill(0);
    assert_eq!(
        OffsetIndexView::checked(100, &hole, LOG_SIZE).err(),
        Some(IndexError::NotRising { entry: 1 })
    );
    let mut negative = good;
    negative[0] = 0x80;
    assert!(matches!(
        OffsetIndexView::checked(100, &negative, LOG_SIZE),
        Err(IndexError::BelowBase { entry: 0 })
    ));
}

proptest! {
    #[test]
    fn lookups_agree_with_a_scan(
        steps in proptest::collection::vec((1_i64..1000, 1_u32..100_000), 0..200),
        targets in proptest::collection::vec(0_i64..200_000, 1..50),
    ) {
        let mut index = OffsetIndex::new(7, 1 << 20);
        let (mut offset, mut position) = (7, 0);
        let mut naive = vec![OffsetEntry { offset: 7, position: 0 }];
        for (offset_step, position_step) in steps {
            offset += offset_step;
            position += position_step;
            index.append(offset, position).expect("rises");
            naive.push(OffsetEntry { offset, position });
        }
        let loaded = OffsetIndex::load(7, 1 << 20, index.as_bytes(), u64::from(position) + 1)
            .expect("what was written is valid");
        prop_assert_eq!(loaded.as_bytes(), index.as_bytes());
        for target in targets {
            let expected = naive.iter().rev().find(|entry| entry.offset <= target);
            let expected = expected.copied().unwrap_or(naive[0]);
            prop_assert_eq!(index.lookup(target), expected);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(view) = OffsetIndexView::checked(0, &bytes, LOG_SIZE) {
            prop_assert!(view.lookup(i64::MAX).offset >= 0);
        }
    }
}
