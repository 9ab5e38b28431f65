//! A plane on a temporary directory, driven as the control plane drives it, and a small client.

#![allow(dead_code, unused_imports)] // Each test binary uses its own part.

pub mod allow_list;
mod client;
mod dying_disk;
mod fetch_session;
pub mod full_disk;
pub mod internal;
pub mod kept;
pub mod moving;
mod pair;
mod slow_disk;
pub mod transactions;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyrklog_dataplane::seam::*;
use pyrklog_dataplane::testing::NetworkHook;
use pyrklog_dataplane::{DataPlane, OpenError};
use pyrklog_log::LogConfig;
use pyrklog_log::disk::testing::StallingDisk;
use pyrklog_log::disk::{Disk, RealDisk};

pub use client::*;
pub use dying_disk::DyingDisk;
pub use fetch_session::*;
pub use pair::*;
pub use pyrklog_dataplane::testing::{PATIENCE, eventually, within};
pub use slow_disk::SlowDisk;

/// Whether this is the binary of `restless.rs`, which holds the tests of others.
fn is_restless() -> bool {
    let binary = std::env::current_exe().unwrap();
    let name = binary.file_name().unwrap().to_string_lossy();
    name.starts_with("restless")
}

pub fn config(log_dirs: Vec<PathBuf>) -> PlaneConfig {
    PlaneConfig {
        node_id: 1,
        cluster_id: "test-cluster".into(),
        network_threads: 2,
        reader_threads: 2,
        recovery_threads_per_dir: 2,
        writer_threads_per_dir: 4,
        socket_request_max_bytes: 10 << 20,
        receive_buffers_max_bytes: 64 << 20,
        control_queue_max_requests: 100,
        connections_max_idle_ms: 600_000,
        max_connections: 1000,
        max_connections_per_ip: 1000,
        socket_send_buffer_bytes: -1,
        socket_receive_buffer_bytes: -1,
        fetch_max_bytes: 55 << 20,
        fetch_session_slots: 100,
        fetch_read_path: ReadPath::Auto,
        unwritten_max_bytes: Some(64 << 20),
        cache: CacheConfig::off(),
        log_dirs,
        recovery_checkpoint_interval_ms: 60_000,
        log_start_checkpoint_interval_ms: 60_000,
        high_watermark_checkpoint_interval_ms: 5_000,
        retention_check_interval_ms: 300_000,
        cleaner: CleanerConfig::default(),
        move_threads: 1,
        producer_id_expiration_ms: 86_400_000,
        auto_create_topics: true,
        cluster: None,
    }
}

/// Options of a broker in a cluster, with times that suit a test.
pub fn cluster() -> ClusterConfig {
    ClusterConfig {
        listener: "PLAINTEXT".into(),
        fetchers: 1,
        fetch_wait_max_ms: 50,
        fetch_min_bytes: 1,
        fetch_max_bytes: 1 << 20,
        fetch_response_max_bytes: 10 << 20,
        fetch_backoff_ms: 100,
        back_fill_rate_bytes: 0,
        promotion_window_ms: 3_000,
        socket_timeout_ms: 5_000,
        reads_by_rack: false,
    }
}

/// A block cache beside the log directories, with the test's other files.
pub fn cache(log_dirs: &[PathBuf]) -> CacheConfig {
    CacheConfig {
        dir: log_dirs[0].parent().map(PathBuf::from),
        max_bytes: Some(64 << 20),
        ..CacheConfig::off()
    }
}

fn broker_image(id: i32, port: u16) -> BrokerImage {
    BrokerImage {
        id,
        rack: None,
        endpoints: vec![("PLAINTEXT".into(), "127.0.0.1".into(), port)],
    }
}

pub fn topic_id(name: &str) -> TopicId {
    let mut id = [0x11; 16];
    for (slot, byte) in id.iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    id
}

/// The plane, and what the control plane would keep.
pub struct TestPlane {
    pub plane: DataPlane,
    pub port: u16,
    pub image_version: u64,
    /// Given to topics instead of one made of their name.
    pub topic_id: Option<TopicId>,
    /// Events that were drained and not waited for yet.
    pub events: Vec<Event>,
    brokers: Vec<BrokerImage>,
}

impl TestPlane {
    /// On one directory, `dir/logs`, with a block cache, as a broker has it.
    pub fn start(dir: &Path) -> TestPlane {
        let mut config = config(vec![dir.join("logs")]);
        config.cache = cache(&config.log_dirs);
        TestPlane::start_with(config, Arc::new(RealDisk))
    }

    pub fn start_with(config: PlaneConfig, disk: Arc<dyn Disk>) -> TestPlane {
        TestPlane::try_start(config, disk).unwrap()
    }

    pub fn try_start(config: PlaneConfig, disk: Arc<dyn Disk>) -> Result<TestPlane, OpenError> {
        let node_id = config.node_id;
        let plane = DataPlane::open_on(config, disk)?;
        Ok(TestPlane::listen(plane, node_id))
    }

    pub fn start_hooked(config: PlaneConfig, disk: Arc<dyn Disk>, hook: NetworkHook) -> TestPlane {
        let node_id = config.node_id;
        let plane = DataPlane::open_on(config, disk).unwrap();
        plane.set_network_hook(hook);
        TestPlane::listen(plane, node_id)
    }

    fn listen(plane: DataPlane, node_id: i32) -> TestPlane {
        if is_restless() {
            plane.be_restless();
        }
        let port = plane.listen("PLAINTEXT", "127.0.0.1", 0, false).unwrap();
        let mut test = TestPlane {
            plane,
            port,
            image_version: 0,
            topic_id: None,
            events: Vec::new(),
            brokers: vec![broker_image(1, port)],
        };
        test.apply(vec![], vec![broker_image(node_id, port)], vec![]);
        test
    }

    /// Live brokers, each with its port and rack.
    pub fn know_in_racks(&mut self, brokers: &[(i32, u16, &str)]) {
        let in_rack = |(id, port, rack): &(i32, u16, &str)| BrokerImage {
            rack: Some((*rack).to_owned()),
            ..broker_image(*id, *port)
        };
        self.brokers = brokers.iter().map(in_rack).collect();
        self.apply(vec![], vec![], vec![]);
    }

    /// Live brokers, each with its port.
    pub fn know(&mut self, brokers: &[(i32, u16)]) {
        self.brokers = brokers
            .iter()
            .map(|(id, port)| broker_image(*id, *port))
            .collect();
        self.apply(vec![], vec![], vec![]);
    }

    fn apply(
        &mut self,
        topics: Vec<TopicImage>,
        brokers: Vec<BrokerImage>,
        removed_topics: Vec<String>,
    ) {
        self.image_version += 1;
        let brokers = if brokers.is_empty() {
            self.brokers.clone()
        } else {
            brokers
        };
        let delta = ImageDelta {
            version: self.image_version,
            controller_id: 1,
            brokers,
            topics,
            removed_topics,
        };
        self.plane.apply_image(delta).unwrap();
    }

    /// Tells the plane of a topic without making it a leader.
    pub fn describe_topic(&mut self, name: &str, partitions: i32, config: &TopicConfig) {
        self.describe_topic_led_by(name, partitions, config, 1);
    }

    pub fn describe_topic_led_by(
        &mut self,
        name: &str,
        partitions: i32,
        config: &TopicConfig,
        leader: i32,
    ) {
        let partitions = (0..partitions)
            .map(|index| PartitionImage {
                index,
                leader,
                leader_epoch: 0,
                replicas: vec![leader],
                isr: vec![leader],
                offline: vec![],
            })
            .collect();
        let topic = TopicImage {
            name: name.into(),
            id: self.topic_id.unwrap_or_else(|| topic_id(name)),
            internal: name.starts_with("__"),
            config: config.clone(),
            partitions,
        };
        self.apply(vec![topic], vec![], vec![]);
    }

    pub fn leader_spec(name: &str, partition: i32, leader_epoch: i32) -> LeaderSpec {
        LeaderSpec {
            topic: name.into(),
            partition,
            leader_epoch,
            replicas: vec![1],
            isr: vec![1],
            is_new: false,
            is_held: false,
            partial: Vec::new(),
        }
    }

    /// Creates a topic and waits until it is led; returns the error codes.
    pub fn lead(&mut self, name: &str, partitions: i32, config: &TopicConfig) -> Vec<i16> {
        self.describe_topic(name, partitions, config);
        let specs = (0..partitions)
            .map(|index| TestPlane::leader_spec(name, index, 0))
            .collect();
        self.become_leaders(specs)
    }

    pub fn become_leaders(&mut self, specs: Vec<LeaderSpec>) -> Vec<i16> {
        let ticket = self.plane.become_leaders(specs).unwrap();
        match self.ticket(ticket) {
            TicketOutcome::Partitions(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    pub fn become_followers(&mut self, specs: Vec<FollowerSpec>) -> Vec<i16> {
        let ticket = self.plane.become_followers(specs).unwrap();
        match self.ticket(ticket) {
            TicketOutcome::Partitions(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    /// A topic with default options, led.
    pub fn create(&mut self, name: &str, partitions: i32) {
        let codes = self.lead(name, partitions, &topic_config());
        assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
    }

    pub fn delete(&mut self, name: &str, partitions: i32) -> Vec<i16> {
        self.apply(vec![], vec![], vec![name.into()]);
        let specs = (0..partitions)
            .map(|partition| StopSpec {
                topic: name.into(),
                partition,
                delete: true,
            })
            .collect();
        let ticket = self.plane.stop_partitions(specs).unwrap();
        match self.ticket(ticket) {
            TicketOutcome::Partitions(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    pub fn ticket(&mut self, ticket: TicketId) -> TicketOutcome {
        let event = self.wait_for(
            "a ticket",
            |event| matches!(event, Event::Ticket { id, .. } if *id == ticket),
        );
        match event {
            Event::Ticket { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for an event; others are kept.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        eventually(what, || {
            self.events.extend(self.plane.drain_events(100));
            let place = self.events.iter().position(&wanted)?;
            Some(self.events.remove(place))
        })
    }

    pub fn wait_for_request(&mut self) -> ControlRequest {
        match self.wait_for("a control request", |event| {
            matches!(event, Event::Request(_))
        }) {
            Event::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    pub fn wait_for_notice(&mut self, name: &str) -> Vec<(&'static str, String)> {
        let event = self.wait_for(
            name,
            |event| matches!(event, Event::Notice { event, .. } if *event == name),
        );
        match event {
            Event::Notice { fields, .. } => fields,
            other => panic!("{other:?}"),
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// A client on 127.0.0.`host`.
    pub fn client_from(&self, host: u8) -> Client {
        Client::connect_from(host, self.port)
    }

    /// Ends in order; returns whether everything is clean.
    pub fn shutdown(mut self) -> bool {
        let ticket = self.plane.shutdown(2000);
        match self.ticket(ticket) {
            TicketOutcome::Shutdown(clean) => clean,
            other => panic!("{other:?}"),
        }
    }

    pub fn statistic(&self, name: &str) -> u64 {
        let all = self.plane.statistics();
        let found = all.iter().find(|(known, _)| known == name);
        found
            .unwrap_or_else(|| panic!("no statistic {name}: {all:?}"))
            .1
    }
}

/// A stalling disk that goes on when dropped: declared after a plane, it lets a failed test end.
pub struct Stalling(pub StallingDisk);

impl Stalling {
    pub fn new() -> Stalling {
        Stalling(StallingDisk::new(Arc::new(RealDisk)))
    }
}

impl std::ops::Deref for Stalling {
    type Target = StallingDisk;

    fn deref(&self) -> &StallingDisk {
        &self.0
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        self.0.resume();
    }
}

pub fn topic_config() -> TopicConfig {
    TopicConfig {
        log: LogConfig::default(),
        min_insync_replicas: 1,
        throttled: Throttled::default(),
    }
}
