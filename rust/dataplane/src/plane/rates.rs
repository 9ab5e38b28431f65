//! Rates of copies between brokers and between log directories, of [`DataPlane`].

use super::DataPlane;
use pyrklog_base::clock::mono_ms;

impl DataPlane {
    /// Bytes a second that this broker sends to, and fetches for, the replicas that topics name as
    /// throttled (KIP-73); `None` (the initial state): no limit.
    pub fn set_replication_rates(&self, leader_bytes: Option<u64>, follower_bytes: Option<u64>) {
        let now_ms = mono_ms();
        self.network.quotas.leader.set_rate(leader_bytes, now_ms);
        self.network
            .quotas
            .follower
            .set_rate(follower_bytes, now_ms);
    }

    /// Bytes a second that this broker's back-fills fetch together; 0: none.
    pub fn set_back_fill_rate(&self, bytes: u64) {
        let quota = &self.network.quotas.back_fill;
        quota.set_rate(Some(bytes), mono_ms());
    }

    /// Time over which these rates are averaged.
    pub fn set_replication_window_ms(&self, window_ms: i64) {
        self.network.quotas.leader.set_window_ms(window_ms);
        self.network.quotas.follower.set_window_ms(window_ms);
    }

    /// Bytes a second at which replicas are moved between log directories
    /// (`replica.alter.log.dirs.io.max.bytes.per.second`); `None` (the initial state): no limit.
    pub fn set_move_rate(&self, bytes: Option<u64>) {
        self.network.moves.rate.set_rate(bytes, mono_ms());
    }

    /// Time over which that rate is averaged.
    pub fn set_move_window_ms(&self, window_ms: i64) {
        self.network.moves.rate.set_window_ms(window_ms);
    }
}
