//! Two brokers with a partition on both.

use std::path::Path;
use std::sync::Arc;

use pyrklog_dataplane::seam::{FollowerSpec, LeaderSpec, PlaneConfig, TicketOutcome, TopicConfig};
use pyrklog_log::RealDisk;
use pyrklog_log::disk::Disk;
use pyrklog_wire::ErrorCode;

use super::{TestPlane, batch, cache, cluster, config, eventually, topic_config};

pub const BOTH: [i32; 2] = [1, 2];

/// A broker of a cluster, with a block cache.
pub fn cluster_config(dir: &Path, node_id: i32) -> PlaneConfig {
    let mut config = config(vec![dir.join(format!("logs{node_id}"))]);
    config.cache = cache(&config.log_dirs);
    config.node_id = node_id;
    config.cluster = Some(cluster());
    config
}

/// Brokers 1 and 2 and a topic `t` of one partition on both.
pub struct Pair {
    pub dir: tempfile::TempDir,
    pub planes: [TestPlane; 2],
    pub config: TopicConfig,
}

impl Pair {
    pub fn start() -> Pair {
        Pair::start_with(topic_config(), |_| {})
    }

    pub fn start_with(options: TopicConfig, change: impl Fn(&mut PlaneConfig)) -> Pair {
        Pair::start_on(options, change, Arc::new(RealDisk))
    }

    /// `disk`: of broker 2.
    pub fn start_on(
        options: TopicConfig,
        change: impl Fn(&mut PlaneConfig),
        disk: Arc<dyn Disk>,
    ) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let disks: [Arc<dyn Disk>; 2] = [Arc::new(RealDisk), disk];
        let mut node_id = 0;
        let planes = disks.map(|disk| {
            node_id += 1;
            let mut config = cluster_config(dir.path(), node_id);
            change(&mut config);
            TestPlane::start_with(config, disk)
        });
        let mut pair = Pair {
            dir,
            planes,
            config: options,
        };
        let brokers = [(1, pair.planes[0].port), (2, pair.planes[1].port)];
        for plane in &mut pair.planes {
            plane.know(&brokers);
            plane.describe_topic("t", 1, &pair.config);
        }
        pair
    }

    pub fn plane(&mut self, broker: i32) -> &mut TestPlane {
        &mut self.planes[broker as usize - 1]
    }

    /// Another topic, known to both brokers.
    pub fn describe(&mut self, topic: &str, partitions: i32, config: &TopicConfig) {
        for plane in &mut self.planes {
            plane.describe_topic(topic, partitions, config);
        }
    }

    pub fn lead(&mut self, broker: i32, leader_epoch: i32, isr: &[i32]) {
        let spec = LeaderSpec {
            replicas: BOTH.to_vec(),
            isr: isr.to_vec(),
            ..TestPlane::leader_spec("t", 0, leader_epoch)
        };
        assert_eq!(self.plane(broker).become_leaders(vec![spec]), [0]);
    }

    pub fn follow(&mut self, broker: i32, leader: i32, leader_epoch: i32) {
        let spec = FollowerSpec {
            topic: "t".into(),
            partition: 0,
            leader,
            leader_epoch,
            replicas: BOTH.to_vec(),
            isr: vec![leader],
            is_new: false,
            is_partial: false,
        };
        assert_eq!(self.plane(broker).become_followers(vec![spec]), [0]);
    }

    /// Produces with acks=1; returns the offset.
    pub fn produce(&mut self, broker: i32, value: &[u8]) -> i64 {
        let mut client = self.plane(broker).client();
        let (error, offset) = client.produce("t", 0, &batch(&[value]));
        assert_eq!(error, ErrorCode::NONE);
        offset
    }

    /// Waits until clients of `leader` may read up to the offset.
    pub fn wait_visible(&mut self, leader: i32, high_watermark: i64) {
        let plane = self.plane(leader);
        eventually("the high watermark", || {
            // Asking for the latest offset would make followers fetch, and so learn of it.
            let mut client = plane.client();
            let start = client.list_offset("t", 0, -2).offset;
            let seen = client.fetch_one("t", 0, start);
            (seen.high_watermark == high_watermark).then_some(())
        });
    }

    pub fn size_bytes(&mut self, broker: i32) -> i64 {
        self.size_of(broker, "t")
    }

    /// Bytes of a topic's logs at a broker.
    pub fn size_of(&mut self, broker: i32, topic: &str) -> i64 {
        let plane = self.plane(broker);
        let ticket = plane.plane.describe_log_dirs().unwrap();
        let TicketOutcome::LogDirs(dirs) = plane.ticket(ticket) else {
            panic!()
        };
        let partitions = dirs.iter().flat_map(|dir| &dir.partitions);
        let own = partitions.filter(|(name, ..)| name == topic);
        own.map(|(_, _, size, ..)| *size).sum()
    }

    /// Waits until both logs have the same number of bytes.
    pub fn wait_copied(&mut self) {
        eventually("both logs alike", || {
            let sizes = (self.size_bytes(1), self.size_bytes(2));
            (sizes.0 == sizes.1 && sizes.0 > 0).then_some(())
        });
    }

    /// A broker's records, read as its leader in a new epoch.
    pub fn values(&mut self, broker: i32, leader_epoch: i32) -> Vec<u8> {
        self.lead(broker, leader_epoch, &[broker]);
        let plane = self.plane(broker);
        let end = eventually("a latest offset", || {
            let found = plane.client().list_offset("t", 0, -1);
            (found.error_code == ErrorCode::NONE).then_some(found.offset)
        });
        let mut all = Vec::new();
        let mut offset = plane.client().list_offset("t", 0, -2).offset;
        while offset < end {
            let found = plane.client().fetch_one("t", 0, offset);
            assert_eq!(found.error, ErrorCode::NONE);
            all.extend(&found.records);
            offset += found.batches().len() as i64;
        }
        all
    }
}
