//! Cases of KIP-227 and KIP-516, and of Kafka's rules for the cache.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::fetch::{FetchPartition, FetchRequest, FetchRequestToWrite, FetchTopicToWrite};

use super::*;
use pyrklog_control::image::Image;
use pyrklog_control::image::testing::{broker, image, topic};
use pyrklog_control::seam::ImageDelta;

const BY_NAME: i16 = 12;
const BY_ID: i16 = 13;

/// A requested topic: name, id, partitions with fetch offsets.
type Wanted<'a> = (&'a str, u8, &'a [(i32, i64)]);

struct Client {
    cache: SessionCache,
    image: Image,
    now_ms: i64,
    next_id: i32,
    version: i16,
    replica_id: i32,
}

impl Client {
    fn new(slots: usize, version: i16) -> Self {
        let image = image(vec![topic("a", 1, 3), topic("b", 2, 3)]);
        let cache = SessionCache::new(slots);
        Client {
            cache,
            image,
            now_ms: 0,
            next_id: 100,
            version,
            replica_id: -1,
        }
    }

    fn change(&mut self, topics: Vec<pyrklog_control::seam::TopicImage>, removed: &[&str]) {
        let delta = ImageDelta {
            version: self.image.version() + 1,
            controller_id: 1,
            brokers: vec![broker(1, None)],
            topics,
            removed_topics: removed.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.image = self.image.apply(delta).unwrap();
    }

    fn begin(
        &mut self,
        session: (i32, i32),
        wanted: &[Wanted<'_>],
        forgotten: &[(&str, u8, &[i32])],
    ) -> Result<FetchContext, ErrorCode> {
        let partitions: Vec<Vec<FetchPartition>> = wanted
            .iter()
            .map(|(.., list)| list.iter().map(|(index, at)| ask(*index, *at)).collect())
            .collect();
        let topics: Vec<_> = wanted
            .iter()
            .zip(&partitions)
            .map(|((name, id, _), list)| FetchTopicToWrite {
                name,
                id: [*id; 16],
                partitions: list,
            })
            .collect();
        let forgotten: Vec<_> = forgotten
            .iter()
            .map(|(name, id, list)| FetchTopicToWrite {
                name,
                id: [*id; 16],
                partitions: list,
            })
            .collect();
        let written = FetchRequestToWrite {
            replica_id: self.replica_id,
            session_id: session.0,
            session_epoch: session.1,
            topics: &topics,
            forgotten: &forgotten,
            ..FetchRequestToWrite::default()
        };
        let mut frame = vec![0xee; 7];
        written.encode(&mut frame, self.version);
        let mut request = FetchRequest::default();
        request.decode(&frame, 7, self.version).unwrap();
        let next_id = &mut self.next_id;
        let mut fresh_id = || {
            *next_id += 1;
            *next_id - 1
        };
        let (version, now_ms) = (self.version, self.now_ms);
        let mut context = self.cache.begin(
            &request,
            &frame,
            version,
            &self.image,
            now_ms,
            &mut fresh_id,
        )?;
        context.choose(&self.image);
        Ok(context)
    }

    /// A whole request whose partitions all have `outcome`; returns session id and answer.
    fn fetch(
        &mut self,
        session: (i32, i32),
        wanted: &[Wanted<'_>],
        forgotten: &[(&str, u8, &[i32])],
        outcome: impl Fn(&Target) -> PartitionOutcome,
    ) -> Result<(i32, Vec<(String, i32)>), ErrorCode> {
        let mut context = self.begin(session, wanted, forgotten)?;
        for position in 0..context.partitions() {
            let outcome = match context.target(position).refusal(&self.image) {
                Some(error_code) => PartitionOutcome {
                    error_code,
                    ..nothing_new(-1)
                },
                None => outcome(context.target(position)),
            };
            context.record(position, &outcome);
        }
        let answer = context
            .included()
            .iter()
            .map(|position| label(context.target(*position)))
            .collect();
        let id = context.session_id();
        self.cache.finish(context);
        Ok((id, answer))
    }

    fn sessions(&self) -> usize {
        self.cache.statistics().sessions
    }
}

fn ask(index: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: 5,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1000,
        directory_id: [0; 16],
    }
}

fn label(target: &Target) -> (String, i32) {
    (
        target.topic.as_deref().unwrap_or("?").to_owned(),
        target.partition,
    )
}

fn nothing_new(high_watermark: i64) -> PartitionOutcome {
    PartitionOutcome {
        error_code: ErrorCode::NONE,
        high_watermark,
        log_start_offset: 0,
        has_records: false,
        has_diverging_epoch: false,
        has_preferred_replica: false,
        // Without partitions there are no marks: everything is looked at each time.
        is_settled: false,
    }
}

fn quiet(_: &Target) -> PartitionOutcome {
    nothing_new(10)
}

fn labels(answer: &[(&str, i32)]) -> Vec<(String, i32)> {
    answer
        .iter()
        .map(|(name, index)| ((*name).to_owned(), *index))
        .collect()
}

const AB: &[Wanted<'static>] = &[("a", 1, &[(0, 5), (1, 6)]), ("b", 2, &[(2, 7)])];

#[test]
fn epochs_follow_one_another_and_wrap_to_1() {
    assert_eq!(next_epoch(0), 1);
    assert_eq!(next_epoch(i32::MAX - 1), i32::MAX);
    assert_eq!(next_epoch(i32::MAX), 1);
}

#[test]
fn a_request_without_session_is_answered_in_full() {
    for version in [4, 6, 7, 11, BY_NAME, BY_ID, 17] {
        let mut client = Client::new(10, version);
        for _ in 0..2 {
            let (id, answer) = client.fetch((0, FINAL_EPOCH), AB, &[], quiet).unwrap();
            assert_eq!(id, NO_SESSION_ID);
            assert_eq!(answer, labels(&[("a", 0), ("a", 1), ("b", 2)]));
        }
        assert_eq!(client.sessions(), 0);
    }
}

#[test]
fn a_session_leaves_out_what_did_not_change() {
    for version in [7, BY_NAME, BY_ID, 17] {
        let mut client = Client::new(10, version);
        let (id, answer) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        assert_eq!((id, answer.len()), (100, 3), "{version}");
        assert_eq!(client.cache.statistics().partitions, 3);
        assert_eq!(client.fetch((id, 1), &[], &[], quiet), Ok((id, vec![])));

        let moved = |target: &Target| nothing_new(10 + i64::from(target.partition == 1));
        let (_, answer) = client.fetch((id, 2), &[], &[], moved).unwrap();
        assert_eq!(answer, labels(&[("a", 1)]), "a high watermark moved");
        assert_eq!(client.fetch((id, 3), &[], &[], moved), Ok((id, vec![])));

        let start = |target: &Target| PartitionOutcome {
            log_start_offset: 4,
            ..moved(target)
        };
        assert_eq!(client.fetch((id, 4), &[], &[], start).unwrap().1.len(), 3);
        assert_eq!(client.fetch((id, 5), &[], &[], start), Ok((id, vec![])));
    }
}

#[test]
fn data_errors_hints_and_divergence_are_always_told() {
    let kinds: [fn(&mut PartitionOutcome); 3] = [
        |outcome| outcome.has_records = true,
        |outcome| outcome.has_diverging_epoch = true,
        |outcome| outcome.has_preferred_replica = true,
    ];
    for kind in kinds {
        let mut client = Client::new(10, BY_ID);
        let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        let busy = |target: &Target| {
            let mut outcome = nothing_new(10);
            if target.partition == 2 {
                kind(&mut outcome);
            }
            outcome
        };
        for epoch in 1..4 {
            let (_, answer) = client.fetch((id, epoch), &[], &[], busy).unwrap();
            assert_eq!(answer, labels(&[("b", 2)]));
        }
    }
}

#[test]
fn an_error_is_repeated_and_its_end_is_told() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let failing = |target: &Target| match target.partition {
        0 => PartitionOutcome {
            error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ..nothing_new(10)
        },
        _ => nothing_new(10),
    };
    for epoch in 1..3 {
        let (_, answer) = client.fetch((id, epoch), &[], &[], failing).unwrap();
        assert_eq!(answer, labels(&[("a", 0)]));
    }
    let (_, answer) = client.fetch((id, 3), &[], &[], quiet).unwrap();
    assert_eq!(
        answer,
        labels(&[("a", 0)]),
        "same high watermark, but the error is gone"
    );
    assert_eq!(client.fetch((id, 4), &[], &[], quiet), Ok((id, vec![])));
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    for version in [BY_NAME, BY_ID] {
        let mut client = Client::new(10, version);
        let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        let more: &[Wanted<'_>] = &[("b", 2, &[(0, 1)]), ("a", 1, &[(1, 60)])];
        let gone: &[(&str, u8, &[i32])] = &[("a", 1, &[0, 2]), ("nobody", 9, &[0])];
        let context = client.begin((id, 1), more, gone).unwrap();
        let targets: Vec<_> = context
            .targets()
            .map(|target| (label(target), target.fetch_offset))
            .collect();
        let expected = [("a", 1, 60), ("b", 2, 7), ("b", 0, 1)]
            .map(|(name, index, offset)| ((name.to_owned(), index), offset));
        assert_eq!(targets, expected);
        client.cache.finish(context);
        // After the positions moved, every partition is still found by its key.
        let changed: &[Wanted<'_>] = &[("b", 2, &[(0, 11), (2, 12)]), ("a", 1, &[(1, 13)])];
        let context = client.begin((id, 2), changed, &[]).unwrap();
        let offsets: Vec<_> = context
            .targets()
            .map(|target| target.fetch_offset)
            .collect();
        assert_eq!(offsets, [13, 12, 11]);
        client.cache.finish(context);
        assert_eq!(client.cache.statistics().partitions, 3);
    }
}

#[test]
fn a_session_that_forgets_everything_ends() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let all: &[(&str, u8, &[i32])] = &[("a", 1, &[0, 1]), ("b", 2, &[2])];
    assert_eq!(
        client.fetch((id, 1), &[], all, quiet),
        Ok((NO_SESSION_ID, vec![]))
    );
    assert_eq!(
        (client.sessions(), client.cache.statistics().partitions),
        (0, 0)
    );
    let after = client.fetch((id, 2), &[], &[], quiet);
    assert_eq!(after, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
}

#[test]
fn unknown_sessions_and_wrong_epochs_are_errors_that_change_nothing() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    let unknown = client.fetch((id + 1, 1), &[], &[], quiet);
    assert_eq!(unknown, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    let without_id = client.fetch((0, 1), &[], &[], quiet);
    assert_eq!(without_id, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    for epoch in [2, 3, -5, i32::MAX, i32::MIN] {
        let wrong = client.fetch((id, epoch), &[], &[], quiet);
        assert_eq!(wrong, Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    }
    assert_eq!(client.fetch((id, 1), &[], &[], quiet), Ok((id, vec![])));
    let repeated = client.fetch((id, 1), &[], &[], quiet);
    assert_eq!(repeated, Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
}

#[test]
fn a_session_cannot_switch_between_names_and_ids() {
    for (first, then) in [(BY_NAME, BY_ID), (BY_ID, BY_NAME)] {
        let mut client = Client::new(10, first);
        let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        client.version = then;
        let switched = client.fetch((id, 1), &[], &[], quiet);
        assert_eq!(switched, Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
        // The client starts anew and names the old session, which ends.
        let (next, answer) = client.fetch((id, INITIAL_EPOCH), AB, &[], quiet).unwrap();
        assert_eq!((next, answer.len(), client.sessions()), (id + 1, 3, 1));
    }
}

#[test]
fn a_full_request_ends_the_session_that_it_names() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    assert_eq!(
        client.fetch((id, FINAL_EPOCH), &[], &[], quiet),
        Ok((NO_SESSION_ID, vec![]))
    );
    assert_eq!(
        (client.sessions(), client.cache.statistics().partitions),
        (0, 0)
    );
}

#[test]
fn a_partition_named_twice_counts_once_in_a_session() {
    let mut client = Client::new(10, BY_ID);
    let twice: &[Wanted<'_>] = &[("a", 1, &[(0, 1), (0, 2)]), ("a", 1, &[(0, 3)])];
    let context = client.begin((0, INITIAL_EPOCH), twice, &[]).unwrap();
    assert_eq!(context.partitions(), 1);
    assert_eq!(context.target(0).fetch_offset, 3);
    assert_eq!(client.cache.statistics().partitions, 1);
}

#[test]
fn partitions_with_records_go_to_the_end_of_the_line() {
    let mut client = Client::new(10, BY_ID);
    let three: &[Wanted<'_>] = &[("a", 1, &[(0, 0), (1, 0), (2, 0)])];
    let (id, _) = client.fetch((0, INITIAL_EPOCH), three, &[], quiet).unwrap();
    let busy = |part: i32| {
        move |target: &Target| PartitionOutcome {
            has_records: target.partition == part,
            ..nothing_new(10)
        }
    };
    client.fetch((id, 1), &[], &[], busy(0)).unwrap();
    let order = |client: &mut Client, epoch| {
        let context = client.begin((id, epoch), &[], &[]).unwrap();
        let order: Vec<_> = context.targets().map(|target| target.partition).collect();
        client.cache.finish(context);
        order
    };
    assert_eq!(order(&mut client, 2), [1, 2, 0]);
    let (_, answer) = client.fetch((id, 3), &[], &[], busy(2)).unwrap();
    assert_eq!(answer, labels(&[("a", 2)]));
    assert_eq!(order(&mut client, 4), [1, 0, 2]);
}

#[test]
fn topics_of_the_answer_are_runs_of_partitions() {
    let mut client = Client::new(10, BY_NAME);
    let mixed: &[Wanted<'_>] = &[
        ("a", 1, &[(0, 0), (1, 0)]),
        ("b", 2, &[(0, 0)]),
        ("a", 1, &[(2, 0)]),
    ];
    let mut context = client.begin((0, INITIAL_EPOCH), mixed, &[]).unwrap();
    for position in 0..context.partitions() {
        assert!(context.record(position, &nothing_new(1)));
    }
    let runs: Vec<_> = context.topic_runs().map(<[usize]>::to_vec).collect();
    assert_eq!(runs, [vec![0, 1], vec![2], vec![3]]);
}

#[test]
fn an_unknown_topic_id_is_an_error_until_the_topic_is_known() {
    let mut client = Client::new(10, BY_ID);
    let future: &[Wanted<'_>] = &[("", 7, &[(0, 0)]), ("", 1, &[(0, 0)])];
    let (id, answer) = client
        .fetch((0, INITIAL_EPOCH), future, &[], quiet)
        .unwrap();
    assert_eq!(answer, labels(&[("?", 0), ("a", 0)]));
    let context = client.begin((id, 1), &[], &[]).unwrap();
    assert_eq!(
        context.target(0).refusal(&client.image),
        Some(ErrorCode::UNKNOWN_TOPIC_ID)
    );
    assert_eq!(context.target(1).refusal(&client.image), None);
    client.cache.finish(context);

    client.change(vec![topic("c", 7, 1)], &[]);
    let (_, answer) = client.fetch((id, 2), &[], &[], quiet).unwrap();
    assert_eq!(answer, labels(&[("c", 0)]));
}

#[test]
fn a_recreated_or_deleted_topic_is_noticed_during_a_session() {
    let mut client = Client::new(10, BY_ID);
    let (id, _) = client.fetch((0, INITIAL_EPOCH), AB, &[], quiet).unwrap();
    client.change(vec![topic("a", 8, 1)], &["b"]);
    let context = client.begin((id, 1), &[], &[]).unwrap();
    let refusals: Vec<_> = (0..3)
        .map(|position| context.target(position).refusal(&client.image))
        .collect();
    let inconsistent = Some(ErrorCode::INCONSISTENT_TOPIC_ID);
    let gone = Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(refusals, [inconsistent, inconsistent, gone]);
    client.cache.finish(context);

    // The client forgets the old id and asks for the new one.
    let renewed: &[Wanted<'_>] = &[("", 8, &[(0, 0)])];
    let old: &[(&str, u8, &[i32])] = &[("", 1, &[0, 1])];
    let (_, answer) = client.fetch((id, 2), renewed, old, quiet).unwrap();
    assert_eq!(
        answer,
        labels(&[("b", 2), ("a", 0)]),
        "b's error, and the new a"
    );
    // A new full request with the old id gets UNKNOWN_TOPIC_ID.
    let context = client
        .begin((0, FINAL_EPOCH), &[("", 1, &[(0, 0)])], &[])
        .unwrap();
    assert_eq!(
        context.target(0).refusal(&client.image),
        Some(ErrorCode::UNKNOWN_TOPIC_ID)
    );
}

#[test]
fn by_name_a_recreated_topic_is_just_the_topic() {
    let mut client = Client::new(10, BY_NAME);
    let wanted: &[Wanted<'_>] = &[("a", 0, &[(0, 5), (2, 0), (3, 0)]), ("zz", 0, &[(0, 0)])];
    client.change(vec![topic("a", 8, 3)], &[]);
    let context = client.begin((0, FINAL_EPOCH), wanted, &[]).unwrap();
    let refusals: Vec<_> = (0..4)
        .map(|position| context.target(position).refusal(&client.image))
        .collect();
    let unknown = Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(refusals, [None, None, unknown, unknown]);
}

mod eviction;

#[test]
fn a_partition_named_twice_is_read_once_without_a_session_too() {
    for count in [3, 300] {
        let mut client = Client::new(2, BY_ID);
        // As in a session: the last one counts, at the position of the first.
        let many: Vec<(i32, i64)> = (0..count).map(|at| (0, i64::from(at))).collect();
        let wanted: &[Wanted<'_>] = &[("a", 1, &many), ("b", 2, &[(0, 5)]), ("a", 1, &[(0, 7)])];
        let context = client.begin((0, FINAL_EPOCH), wanted, &[]).unwrap();
        let read: Vec<_> = context
            .targets()
            .map(|t| (label(t), t.fetch_offset))
            .collect();
        assert_eq!(read, [(("a".into(), 0), 7), (("b".into(), 0), 5)]);
    }
}
