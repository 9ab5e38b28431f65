//! Log ends of replicas without a leader, which the controller compares; and log starts of this
//! broker's followers.

use pyrklog_wire::ErrorCode;

use crate::DataPlane;

/// Of a replica here: log end, high watermark and log start offset, and its bytes.
pub type ReplicaOffsets = (i64, i64, i64, u64);

/// Of this broker's log, and of each follower's (broker, offset; -1 unknown).
pub type LogStarts = (i64, Vec<(i32, i64)>);

impl DataPlane {
    /// Of each partition the leader epoch of its last record (-1 without any) and its log end
    /// offset; `None` if its log is not open here.
    pub fn log_ends(&self, partitions: &[(String, i32)]) -> Vec<Option<(i32, i64)>> {
        let hosted = self.network.registry.load();
        let end_of = |(topic, partition): &(String, i32)| {
            let state = hosted.partition(topic, *partition)?.lock();
            let log = state.log.as_ref()?;
            Some((log.latest_epoch().unwrap_or(-1), log.log_end_offset()))
        };
        partitions.iter().map(end_of).collect()
    }

    /// Of each replica where it stands; `None` if its log is not open here. Memory only.
    pub fn replica_offsets(&self, partitions: &[(String, i32)]) -> Vec<Option<ReplicaOffsets>> {
        let hosted = self.network.registry.load();
        let offsets_of = |(topic, partition): &(String, i32)| {
            let state = hosted.partition(topic, *partition)?.lock();
            let log = state.log.as_ref()?;
            Some((
                log.log_end_offset(),
                log.high_watermark(),
                log.log_start_offset(),
                log.size_bytes(),
            ))
        };
        partitions.iter().map(offsets_of).collect()
    }

    /// Record bytes of a topic's replicas here that fetches got: out of the block cache, and out of
    /// files.
    pub fn served_bytes(&self, topic: &str) -> (u64, u64) {
        let hosted = self.network.registry.load();
        let partitions = hosted.topic(topic).into_iter();
        let served = partitions.flat_map(|topic| topic.partitions());
        served.map(|partition| partition.served.get()).fold(
            (0, 0),
            |(cached, from_files), (more_cached, more_from_files)| {
                (cached + more_cached, from_files + more_from_files)
            },
        )
    }

    /// Of each partition the offset behind its last batch that is no transaction marker
    /// ([`pyrklog_log::Log::data_end_offset`]); `None` if its log is not open here.
    pub fn data_ends(&self, partitions: &[(String, i32)]) -> Vec<Option<i64>> {
        let hosted = self.network.registry.load();
        let end_of = |(topic, partition): &(String, i32)| {
            let state = hosted.partition(topic, *partition)?.lock();
            Some(state.log.as_ref()?.data_end_offset())
        };
        partitions.iter().map(end_of).collect()
    }

    /// The log start offset of each partition that this broker leads, and those last reported by
    /// its followers; an error code where it does not lead.
    /// [`pyrklog_control::seam::Event::FollowerLogStart`] reports once that one of them has moved
    /// since.
    pub fn log_starts(&self, partitions: &[(String, i32)]) -> Vec<Result<LogStarts, ErrorCode>> {
        let hosted = self.network.registry.load();
        let starts_of = |(topic, partition): &(String, i32)| {
            let partition = hosted.partition(topic, *partition);
            let partition = partition.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
            let mut state = partition.lock();
            let own = state.led()?.log_start_offset();
            Ok((own, state.follower_log_starts()))
        };
        partitions.iter().map(starts_of).collect()
    }
}
