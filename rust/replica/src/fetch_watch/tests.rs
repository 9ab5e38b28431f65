//! Marks and waits.

use super::*;

const WOKEN_BY_BYTES: Change = Change {
    new_bytes: 10,
    wakes: true,
    ..Change::NEWS
};

fn session() -> FetchWatch {
    let terms = WatchTerms {
        isolation: Isolation::HighWatermark,
        notify_high_watermark: false,
        by_rack: false,
    };
    FetchWatch::new(WatchKey::Session(1), terms)
}

fn wait_for(missing_bytes: i64) -> WaitingFetch {
    WaitingFetch {
        place: Place {
            thread: 0,
            token: 7,
        },
        wait: 3,
        missing_bytes,
    }
}

fn marks(watch: &FetchWatch) -> Vec<(u32, bool)> {
    let marked = watch.take_marks();
    let pair = |mark: &Marked| (mark.number, mark.is_to_renew);
    marked.iter().map(pair).collect()
}

#[test]
fn each_partition_is_marked_once_and_marks_are_taken_once() {
    let watch = session();
    for number in [5, 2, 5] {
        watch.note(number, Change::NEWS, false);
    }
    watch.note(2, Change::RENEWAL, false);
    watch.note(2, Change::NEWS, false);
    assert_eq!(watch.marked(), 2);
    assert_eq!(marks(&watch), [(5, false), (2, true)]);
    assert_eq!(marks(&watch), []);
    watch.note(5, Change::NEWS, false);
    assert_eq!(marks(&watch), [(5, false)]);
}

#[test]
fn change_between_reading_and_waiting_is_not_lost() {
    let watch = session();
    watch.take_marks();
    assert_eq!(watch.note(4, WOKEN_BY_BYTES, false), None, "nobody waits");
    assert!(!watch.begin_wait(wait_for(1)));
    assert_eq!(marks(&watch), [(4, false)]);
    assert!(watch.begin_wait(wait_for(1)));
    // A change that wakes nobody does not prevent waiting, and is still reported.
    watch.end_wait();
    watch.note(4, Change::NEWS, false);
    assert!(watch.begin_wait(wait_for(1)));
    assert_eq!(marks(&watch), [(4, false)]);
}

#[test]
fn change_that_must_be_answered_counts_before_the_wait() {
    let asked = Change {
        wakes: true,
        must_answer: true,
        ..Change::RENEWAL
    };
    let watch = session();
    watch.note(4, Change::NEWS, false);
    watch.note(4, asked, false);
    assert!(!watch.begin_wait(wait_for(1)));
    assert!(watch.take_marks()[0].must_answer);
    assert!(watch.begin_wait(wait_for(1)));
    assert!(watch.note(4, asked, false).unwrap().must_answer);
    assert!(!watch.take_marks()[0].must_answer, "it was told");
}

#[test]
fn a_fetch_is_woken_once_when_it_has_enough_bytes() {
    let watch = session();
    assert!(watch.begin_wait(wait_for(15)));
    assert_eq!(watch.note(1, WOKEN_BY_BYTES, false), None, "10 of 15");
    let wake = watch.note(2, WOKEN_BY_BYTES, false).unwrap();
    assert_eq!((wake.wait, wake.must_answer), (3, false));
    assert!(!watch.is_waiting());
    assert_eq!(marks(&watch), [(1, false), (2, false)]);
    assert!(watch.begin_wait(wait_for(i64::MAX)));
    let woken = watch.note(1, WOKEN_BY_BYTES, true);
    assert!(woken.is_some(), "a later segment has some");
}

#[test]
fn a_single_fetch_keeps_no_marks() {
    let terms = session().terms();
    let watch = FetchWatch::new(WatchKey::Fetch(7), terms);
    watch.note(9, WOKEN_BY_BYTES, false);
    assert_eq!(watch.marked(), 0);
}
