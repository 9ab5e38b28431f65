//! A client with a fetch session of partitions of `t`.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api::key;
use pyrklog_wire::fetch::FetchPartition;

use super::{Ask, Client, Fetched, TestPlane, batch, eventually, fetched, partition};

pub struct SessionClient {
    pub client: Client,
    pub ask: Ask,
}

impl SessionClient {
    /// Opens a session of partitions of `t`; returns its first answer.
    pub fn open(
        test: &TestPlane,
        wanted: &[FetchPartition],
        change: impl Fn(&mut Ask),
    ) -> (SessionClient, Vec<Fetched>) {
        let mut ask = Ask::one("t", 0, 0).session(0, 0);
        ask.partitions = named(wanted);
        change(&mut ask);
        let mut client = test.client();
        let reply = client.fetch(&ask);
        assert!(reply.session_id > 0, "{reply:?}");
        ask.session = (reply.session_id, 1);
        (SessionClient { client, ask }, reply.partitions)
    }

    /// The next fetch names these partitions; returns its answer.
    pub fn fetch(&mut self, wanted: &[FetchPartition]) -> Vec<Fetched> {
        self.ask.partitions = named(wanted);
        let reply = self.client.fetch(&self.ask);
        self.ask.session.1 += 1;
        assert_eq!(reply.error, ErrorCode::NONE);
        reply.partitions
    }

    /// The next fetch forgets these partitions and names none; returns its answer.
    pub fn forget(&mut self, indexes: &[i32]) -> Vec<Fetched> {
        let with_topic = |index: &i32| ("t".to_owned(), *index);
        self.ask.forgotten = indexes.iter().map(with_topic).collect();
        let fetched = self.fetch(&[]);
        self.ask.forgotten.clear();
        fetched
    }

    pub fn send(&mut self, wanted: &[FetchPartition], wait_ms: i32) {
        self.ask.partitions = named(wanted);
        let ask = self.ask.clone().wait(wait_ms, 1);
        self.client.send(key::FETCH, ask.version, &ask.encode());
    }

    /// Sends the only fetch that names nothing and waits for long.
    pub fn begin_to_wait(&mut self, test: &TestPlane) {
        self.send(&[], 60_000);
        eventually("a fetch that waits", || {
            (test.statistic("purgatory_fetch") > 0).then_some(())
        });
    }

    pub fn receive(&mut self) -> Vec<Fetched> {
        let (_, body) = self.client.receive(key::FETCH, self.ask.version);
        self.ask.session.1 += 1;
        fetched(&body, &self.ask).partitions
    }
}

fn named(wanted: &[FetchPartition]) -> Vec<(String, FetchPartition)> {
    let with_topic = |partition: &FetchPartition| ("t".to_owned(), *partition);
    wanted.iter().map(with_topic).collect()
}

/// (Index, batches) of each partition.
pub fn found(partitions: &[Fetched]) -> Vec<(i32, Vec<i64>)> {
    let pair = |one: &Fetched| (one.index, one.batches());
    partitions.iter().map(pair).collect()
}

pub fn errors(partitions: &[Fetched]) -> Vec<(i32, ErrorCode)> {
    let pair = |one: &Fetched| (one.index, one.error);
    partitions.iter().map(pair).collect()
}

/// A partition whose client believes in leader epoch 0.
pub fn in_epoch_0(index: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        current_leader_epoch: 0,
        ..partition(index, fetch_offset)
    }
}

/// A broker that leads partitions of `t`, each with one record; a session that has read them and
/// believes in leader epoch 0.
pub fn settled(change: impl Fn(&mut Ask)) -> (tempfile::TempDir, TestPlane, SessionClient) {
    let dir = tempfile::tempdir().unwrap();
    let mut test = TestPlane::start(dir.path());
    test.create("t", 3);
    let mut producer = test.client();
    for index in 0..3 {
        producer.produce("t", index, &batch(&[b"old"]));
    }
    let wanted = [0, 1, 2].map(|index| in_epoch_0(index, 1));
    let (mut session, first) = SessionClient::open(&test, &wanted, change);
    assert_eq!(first.len(), 3);
    assert!(session.fetch(&[]).is_empty(), "nothing is new");
    (dir, test, session)
}
