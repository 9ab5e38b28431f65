use super::*;
use crate::log_dir::Newest;

const ID: [u8; 16] = [7; 16];
const OTHER_ID: [u8; 16] = [8; 16];

fn log() -> PartitionFolder {
    PartitionFolder {
        topic: "t".to_owned(),
        partition: 0,
        topic_id: Some(ID),
    }
}

fn future(topic_id: [u8; 16]) -> FutureFolder {
    FutureFolder {
        name: format!("t-0.{:032x}-future", u128::from_be_bytes(topic_id)),
        topic: "t".to_owned(),
        partition: 0,
        topic_id: Some(topic_id),
    }
}

fn leaving(destination: &str) -> Leaving {
    Leaving {
        topic: "t".to_owned(),
        partition: 0,
        copy: future(ID).name,
        newest: Newest::default(),
        destination: destination.to_owned(),
    }
}

/// Directories `/0`, `/1`, ..., each with a log or not, a copy or not, and where its log was going.
fn listings(dirs: &[(bool, bool, Option<&str>)]) -> Vec<Listing> {
    let listing =
        |(index, (has_log, has_copy, goes_to)): (usize, &(bool, bool, Option<&str>))| Listing {
            path: format!("/{index}"),
            folders: has_log.then(log).into_iter().collect(),
            futures: has_copy.then(|| future(ID)).into_iter().collect(),
            leaving: goes_to.map(leaving).into_iter().collect(),
            grown: Vec::new(),
        };
    dirs.iter().enumerate().map(listing).collect()
}

fn decided(dirs: &[(bool, bool, Option<&str>)], is_all: bool) -> Places {
    decide(&listings(dirs), is_all).expect("it is clear which is newer")
}

#[test]
fn a_log_and_its_copy_stay() {
    for is_all in [true, false] {
        let places = decided(&[(true, false, None), (false, true, None)], is_all);
        assert_eq!(places, Places::default());
    }
}

#[test]
fn after_the_copy_got_its_name_it_is_the_log() {
    for is_all in [true, false] {
        let places = decided(&[(true, false, Some("/1")), (true, false, None)], is_all);
        let expected = Places {
            replaced: vec![(0, log())],
            settled: vec![(0, leaving("/1"))],
            ..Places::default()
        };
        assert_eq!(places, expected);
    }
}

#[test]
fn before_that_the_log_did_not_give_way() {
    for is_all in [true, false] {
        let places = decided(&[(true, false, Some("/1")), (false, true, None)], is_all);
        let expected = Places {
            settled: vec![(0, leaving("/1"))],
            ..Places::default()
        };
        assert_eq!(places, expected);
    }
}

#[test]
fn a_log_whose_copy_cannot_be_seen_is_not_served() {
    let places = decided(&[(true, false, Some("/1"))], false);
    let expected = Places {
        withheld: vec![(0, leaving("/1"))],
        ..Places::default()
    };
    assert_eq!(places, expected);
    let places = decided(&[(true, false, Some("/1")), (false, false, None)], false);
    assert_eq!(places, expected, "it may have moved on from there");
}

#[test]
fn another_copy_says_nothing_of_the_one_that_took_the_place() {
    let mut listings = listings(&[(true, false, Some("/1")), (false, true, None)]);
    listings[0].leaving[0].copy = future(OTHER_ID).name;
    let places = decide(&listings, false).expect("there is one log");
    assert_eq!(places.withheld, [(0, listings[0].leaving[0].clone())]);
}

#[test]
fn a_destination_that_is_no_log_directory_any_more_cannot_be_seen() {
    let places = decided(&[(true, false, Some("/2")), (false, false, None)], true);
    assert_eq!(places.withheld, [(0, leaving("/2"))]);
    let places = decided(&[(true, false, Some("/1/")), (false, false, None)], true);
    assert_eq!(places.settled, [(0, leaving("/1/"))], "it is the same one");
}

#[test]
fn without_a_copy_anywhere_the_log_stays() {
    let places = decided(&[(true, false, Some("/1")), (false, false, None)], true);
    let expected = Places {
        settled: vec![(0, leaving("/1"))],
        ..Places::default()
    };
    assert_eq!(places, expected);
}

#[test]
fn a_log_that_has_left_leaves_a_line() {
    let places = decided(&[(false, false, Some("/1")), (true, false, None)], true);
    let expected = Places {
        settled: vec![(0, leaving("/1"))],
        ..Places::default()
    };
    assert_eq!(places, expected);
}

#[test]
fn a_copy_that_moved_on_is_the_log_too() {
    let dirs = [
        (true, false, Some("/1")),
        (false, false, None),
        (true, false, None),
    ];
    let places = decided(&dirs, true);
    assert_eq!(places.replaced, [(0, log())]);
}

#[test]
fn two_logs_without_a_line_are_refused() {
    for dirs in [
        [(true, false, None), (true, false, None)],
        [(true, false, Some("/1")), (true, false, Some("/0"))],
    ] {
        let error = decide(&listings(&dirs), true).expect_err("either may be newer");
        assert_eq!((&*error.first, &*error.second), ("/0", "/1"));
        assert!(error.to_string().starts_with("t-0 is in /0 and in /1"));
    }
}

/// An older version, or another broker, ignored the line.
#[test]
fn a_log_that_took_records_against_its_line_is_not_replaced() {
    let mut grown = listings(&[(true, false, Some("/1")), (true, false, None)]);
    grown[0].grown = grown[0].leaving.clone();
    let error = decide(&grown, true).expect_err("either may be newer");
    assert_eq!((&*error.first, &*error.second), ("/0", "/1"));
    let mut grown = listings(&[(true, false, Some("/1")), (true, false, Some("/2"))]);
    grown[0].grown = grown[0].leaving.clone();
    decide(&grown, true).expect_err("it replaces none either");
    let mut grown = listings(&[(true, false, Some("/1")), (false, true, None)]);
    grown[0].grown = grown[0].leaving.clone();
    let places = decide(&grown, true).expect("there is one log");
    assert_eq!(places.settled, [(0, leaving("/1"))]);
}

/// A directory was away while its topic was deleted, and another one got its name.
#[test]
fn logs_of_different_topics_are_no_conflict() {
    for goes_to in [None, Some("/1")] {
        let mut listings = listings(&[(true, false, goes_to), (true, false, None)]);
        listings[0].folders[0].topic_id = Some(OTHER_ID);
        let places = decide(&listings, true).expect("they are of different topics");
        let expected = Places {
            settled: goes_to.map(|to| (0, leaving(to))).into_iter().collect(),
            ..Places::default()
        };
        assert_eq!(places, expected, "none replaces the other");
        for unknown in [None, Some([0; 16])] {
            listings[0].folders[0].topic_id = unknown;
            let decided = decide(&listings, true);
            assert_eq!(decided.is_err(), goes_to.is_none(), "it may be the same");
        }
    }
    let mut three = listings(&[
        (true, false, None),
        (true, false, None),
        (false, true, None),
    ]);
    three[0].folders[0].topic_id = Some(OTHER_ID);
    let places = decide(&three, true).expect("they are of different topics");
    assert_eq!(places, Places::default(), "the copy is of the second one");
}

#[test]
fn copies_that_lead_nowhere_go() {
    let same = decided(&[(true, true, None)], true);
    assert_eq!(same.worthless, [(0, future(ID))]);
    let two = decided(
        &[
            (true, false, None),
            (false, true, None),
            (false, true, None),
        ],
        true,
    );
    assert_eq!(two.worthless, [(1, future(ID)), (2, future(ID))]);
    let mut of_another = listings(&[(true, false, None), (false, false, None)]);
    of_another[1].futures.push(future(OTHER_ID));
    let places = decide(&of_another, true).expect("it is clear");
    assert_eq!(places.worthless, [(1, future(OTHER_ID))]);
}

#[test]
fn a_copy_without_a_log_stays() {
    for is_all in [true, false] {
        let places = decided(&[(false, true, None), (false, false, None)], is_all);
        let expected = Places {
            lonely: vec![(0, future(ID))],
            ..Places::default()
        };
        assert_eq!(places, expected);
    }
}

/// Every combination of two directories: one log remains at most, and a log is removed only if
/// another one remains.
#[test]
fn nothing_is_ever_lost() {
    let options = |other: &'static str| {
        let mut all = Vec::new();
        for has_log in [false, true] {
            for has_copy in [false, true] {
                for goes_to in [None, Some(other)] {
                    all.push((has_log, has_copy, goes_to));
                }
            }
        }
        all
    };
    for first in options("/1") {
        for second in options("/0") {
            for is_all in [true, false] {
                let Ok(places) = decide(&listings(&[first, second]), is_all) else {
                    assert!(first.0 && second.0 && first.2.is_some() == second.2.is_some());
                    continue;
                };
                let logs = usize::from(first.0) + usize::from(second.0);
                assert_eq!(logs - places.replaced.len(), logs.min(1));
                for (dir, _) in &places.withheld {
                    assert!(!places.settled.iter().any(|(other, _)| other == dir));
                }
            }
        }
    }
}
