use pyrklog_wire::metadata::MetadataResponse;

use super::*;
use pyrklog_control::image::testing::{broker, image, partition, topic};
use pyrklog_control::seam::{ImageDelta, TopicImage};

/// An unreachable leader.
const ABSENT: i32 = 4;

fn request(topics: Option<&[&str]>) -> MetadataRequest<'static> {
    let leak = |name: &&str| -> &'static str { Box::leak(name.to_string().into_boxed_str()) };
    let topics = topics.map(|names| {
        let ask = |name| MetadataRequestTopic {
            id: NO_TOPIC_ID,
            name: Some(leak(name)),
        };
        names.iter().map(ask).collect()
    });
    MetadataRequest {
        topics,
        allow_auto_topic_creation: true,
        include_cluster_authorized_operations: false,
        include_topic_authorized_operations: false,
    }
}

fn body(request: &MetadataRequest<'_>, version: i16) -> Vec<u8> {
    let mut body = Vec::new();
    request.encode(&mut body, version);
    body
}

fn ask_with(
    image: &Image,
    request: &MetadataRequest<'_>,
    version: i16,
    listener: &str,
    errors: &[(String, i16)],
) -> MetadataResponse<'static> {
    let mut out = Vec::new();
    let client = MetadataParams {
        listener,
        cluster_id: "the-cluster",
        absent: &[ABSENT],
        errors,
    };
    let body = body(request, version);
    let request = MetadataRequest::decode(&body, version).unwrap();
    answer(image, &request, version, client, &mut out);
    MetadataResponse::decode(Box::leak(out.into_boxed_slice()), version).unwrap()
}

fn missing(
    image: &Image,
    request: &MetadataRequest<'_>,
    version: i16,
    auto_create: bool,
) -> Vec<String> {
    let body = body(request, version);
    let request = MetadataRequest::decode(&body, version).unwrap();
    missing_topics(image, &request, version, auto_create)
}

fn ask(image: &Image, request: &MetadataRequest<'_>, version: i16) -> MetadataResponse<'static> {
    ask_with(image, request, version, "PLAINTEXT", &[])
}

fn names(response: &MetadataResponse<'static>) -> Vec<&'static str> {
    let mut names: Vec<_> = response
        .topics
        .iter()
        .filter_map(|topic| topic.name)
        .collect();
    names.sort_unstable();
    names
}

/// Brokers 1 and 2; topic "t" with a partition for each kind of trouble.
fn troubled() -> Image {
    let mut replicated = partition(0, 1);
    replicated.replicas = vec![1, 3];
    replicated.isr = vec![1];
    replicated.offline = vec![3];
    let mut leaderless = partition(1, -1);
    leaderless.replicas = vec![3];
    leaderless.isr = vec![3];
    let dead = partition(2, 3);
    let mut on_two = partition(3, 2);
    on_two.replicas = vec![2, 1];
    let troubled = TopicImage {
        partitions: vec![replicated, leaderless, dead, on_two],
        ..topic("t", 9, 0)
    };
    let mut two = broker(2, None);
    two.endpoints[0].0 = "INTERNAL".into();
    let delta = ImageDelta {
        version: 2,
        controller_id: 2,
        brokers: vec![broker(1, Some("r1")), two],
        topics: vec![troubled],
        removed_topics: vec![],
    };
    Image::default().apply(delta).unwrap()
}

#[test]
fn every_version_answers_for_all_topics() {
    let image = image(vec![topic("a", 1, 2), topic("__consumer_offsets", 2, 1)]);
    for version in 0..=12 {
        let response = ask(&image, &request(None), version);
        assert_eq!(names(&response), ["__consumer_offsets", "a"], "{version}");
        let brokers = &response.head.brokers;
        assert_eq!(
            (brokers.len(), brokers[0].host, brokers[0].port),
            (1, "host-1", 9092)
        );
        if version >= 1 {
            assert_eq!(brokers[0].rack, Some("r1"));
            assert_eq!(response.head.controller_id, 1);
        }
        if version >= 2 {
            assert_eq!(response.head.cluster_id, Some("the-cluster"));
        }
        for topic in &response.topics {
            assert_eq!(topic.error_code, ErrorCode::NONE);
            assert_eq!(topic.is_internal, version >= 1 && topic.name != Some("a"));
            assert_eq!(topic.id == NO_TOPIC_ID, version < 10);
            assert_eq!(topic.authorized_operations, OPERATIONS_OMITTED);
            for partition in &topic.partitions {
                assert_eq!(
                    (partition.leader_id, partition.error_code),
                    (1, ErrorCode::NONE)
                );
                assert_eq!(partition.leader_epoch, if version >= 7 { 5 } else { -1 });
                assert_eq!(partition.replicas[..], [1]);
            }
        }
    }
}

#[test]
fn an_empty_list_means_no_topics_but_in_version_0() {
    let image = image(vec![topic("a", 1, 1)]);
    let nothing = request(Some(&[]));
    assert_eq!(names(&ask(&image, &nothing, 0)), ["a"]);
    for version in 1..=12 {
        assert_eq!(ask(&image, &nothing, version).topics, vec![]);
    }
}

#[test]
fn named_topics_come_once_each_in_the_order_asked() {
    let image = image(vec![topic("a", 1, 1), topic("b", 2, 1)]);
    let response = ask(&image, &request(Some(&["b", "a", "b"])), 9);
    let order: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.name.unwrap())
        .collect();
    assert_eq!(order, ["b", "a"]);
}

#[test]
fn missing_and_illegal_names_get_their_errors() {
    let image = image(vec![]);
    let long = "x".repeat(250);
    let asked = request(Some(&["absent", "not legal", "", ".", "..", "ü", &long]));
    let response = ask(&image, &asked, 12);
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.error_code)
        .collect();
    assert_eq!(codes[0], ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(codes[1..], [ErrorCode::INVALID_TOPIC_EXCEPTION; 6]);
    assert!(is_legal_topic_name(&"x".repeat(249)));
    assert!(is_legal_topic_name("..."));
}

#[test]
fn a_missing_internal_topic_is_called_internal() {
    let names = [
        "__consumer_offsets",
        "__transaction_state",
        "__other",
        "absent",
    ];
    let response = ask(&image(vec![]), &request(Some(&names)), 12);
    let told: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.is_internal)
        .collect();
    assert_eq!(told, [true, true, false, false]);
}

#[test]
fn creatable_topics_are_planned_and_answered_afterwards() {
    let image = image(vec![topic("a", 1, 1)]);
    let mut asked = request(Some(&["a", "new", "no good", "new", "taken"]));
    assert_eq!(missing(&image, &asked, 12, true), ["new", "taken"]);
    assert!(missing(&image, &asked, 12, false).is_empty());
    asked.allow_auto_topic_creation = false;
    assert!(missing(&image, &asked, 4, true).is_empty());
    // Before version 4 clients cannot decline.
    assert_eq!(missing(&image, &asked, 3, true), ["new", "taken"]);
    assert!(missing(&image, &request(None), 12, true).is_empty());

    let errors = [
        ("taken".to_owned(), ErrorCode::POLICY_VIOLATION.0),
        ("a".to_owned(), 36),
    ];
    let response = ask_with(&image, &asked, 12, "PLAINTEXT", &errors);
    let code = |name| {
        response
            .topics
            .iter()
            .find(|t| t.name == Some(name))
            .unwrap()
            .error_code
    };
    assert_eq!(code("taken"), ErrorCode::POLICY_VIOLATION);
    assert_eq!(code("new"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(code("no good"), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code("a"), ErrorCode::NONE);
}

#[test]
fn leaders_that_cannot_be_reached_are_errors_of_their_partition() {
    let image = troubled();
    let asked = request(Some(&["t"]));
    for version in 1..=12 {
        let response = ask(&image, &asked, version);
        let partitions = &response.topics[0].partitions;
        let codes: Vec<_> = partitions.iter().map(|part| part.error_code).collect();
        let gone = ErrorCode::LEADER_NOT_AVAILABLE;
        let hidden = if version >= 6 {
            ErrorCode::LISTENER_NOT_FOUND
        } else {
            gone
        };
        assert_eq!(codes, [ErrorCode::NONE, gone, gone, hidden], "{version}");
        let leaders: Vec<_> = partitions.iter().map(|part| part.leader_id).collect();
        assert_eq!(leaders, [1, -1, -1, -1]);
        assert_eq!(partitions[0].replicas[..], [1, 3]);
        assert_eq!(partitions[0].offline.len(), usize::from(version >= 5));
        assert_eq!(response.head.brokers.len(), 1);
    }
    let internal = ask_with(&image, &asked, 12, "INTERNAL", &[]);
    assert_eq!(internal.topics[0].partitions[3].leader_id, 2);
    assert_eq!(
        internal.topics[0].partitions[0].error_code,
        ErrorCode::LISTENER_NOT_FOUND
    );
}

#[test]
fn a_leader_that_has_just_gone_is_as_good_as_dead() {
    let mut image = ImageDelta {
        version: 2,
        controller_id: 1,
        brokers: vec![broker(1, None), broker(ABSENT, None)],
        topics: vec![topic("t", 9, 0)],
        removed_topics: vec![],
    };
    image.topics[0].partitions = vec![partition(0, 1), partition(1, ABSENT)];
    let image = Image::default().apply(image).unwrap();
    for version in 1..=12 {
        let response = ask(&image, &request(Some(&["t"])), version);
        let partitions = &response.topics[0].partitions;
        let found: Vec<_> = partitions
            .iter()
            .map(|part| (part.error_code, part.leader_id))
            .collect();
        let gone = (ErrorCode::LEADER_NOT_AVAILABLE, -1);
        assert_eq!(found, [(ErrorCode::NONE, 1), gone], "{version}");
        // It stays registered.
        assert_eq!(response.head.brokers.len(), 2);
    }
}

#[test]
fn version_0_hides_replicas_that_cannot_be_reached() {
    let response = ask(&troubled(), &request(Some(&["t"])), 0);
    let partition = &response.topics[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::REPLICA_NOT_AVAILABLE);
    assert_eq!(partition.replicas[..], [1]);
    assert_eq!(partition.leader_id, 1);
}

#[test]
fn topic_ids_are_answered_from_version_12_and_refused_before() {
    let image = image(vec![topic("a", 1, 1), topic("b", 2, 1)]);
    let by_id = |id: u8| MetadataRequestTopic {
        id: [id; 16],
        name: None,
    };
    let by_name = MetadataRequestTopic {
        id: NO_TOPIC_ID,
        name: Some("b"),
    };
    let mut asked = request(None);
    asked.topics = Some(vec![by_id(1), by_id(7), by_name, by_id(1)]);
    let response = ask(&image, &asked, 12);
    assert_eq!(response.topics.len(), 2, "ids alone count, each once");
    assert_eq!(response.topics[0].name, Some("a"));
    let unknown = &response.topics[1];
    assert_eq!((unknown.name, unknown.id), (None, [7; 16]));
    assert_eq!(unknown.error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    assert!(missing(&image, &asked, 12, true).is_empty());

    for version in [10, 11] {
        let response = ask(&image, &asked, version);
        assert_eq!(response.head.brokers, vec![]);
        assert!(
            response
                .topics
                .iter()
                .all(|t| t.error_code == ErrorCode::INVALID_REQUEST)
        );
        assert_eq!(response.topics.len(), 4);
    }
    asked.topics = Some(vec![MetadataRequestTopic {
        id: NO_TOPIC_ID,
        name: None,
    }]);
    assert_eq!(
        ask(&image, &asked, 12).topics[0].error_code,
        ErrorCode::INVALID_REQUEST
    );
}

#[test]
fn authorized_operations_are_told_when_asked_for() {
    let image = image(vec![topic("a", 1, 1)]);
    let mut asked = request(Some(&["a", "absent"]));
    asked.include_topic_authorized_operations = true;
    asked.include_cluster_authorized_operations = true;
    for version in 8..=12 {
        let response = ask(&image, &asked, version);
        // Kafka 3.9's answer without an authorizer.
        assert_eq!(response.topics[0].authorized_operations, 3576);
        assert_eq!(response.topics[1].authorized_operations, 3576);
        let cluster = if version <= 10 {
            8096
        } else {
            OPERATIONS_OMITTED
        };
        assert_eq!(response.cluster_authorized_operations, cluster, "{version}");
    }
    let response = ask(&image, &request(Some(&["a"])), 9);
    assert_eq!(response.cluster_authorized_operations, OPERATIONS_OMITTED);
}

#[test]
fn malformed_requests_are_refused() {
    let is_refused = |body: &[u8], version| MetadataRequest::decode(body, version).is_err();
    assert!(is_refused(&[0, 0], 1));
    assert!(is_refused(&[0xff; 4], 0));
    assert!(is_refused(&[0x7f, 0xff, 0xff, 0xff], 1));
    assert!(is_refused(&[], 13));
}
