//! Counters and gauges by name, for monitoring.

use std::sync::atomic::Ordering;

use pyrklog_arena::ArenaStatistics;
use pyrklog_wire::api::TABLE;

use crate::net::network::Network;
use pyrklog_base::clock::mono_ms;
use pyrklog_control::latency::{Group, Phase, Reading};
use pyrklog_control::statistics::{Counter, ThreadStatistics};

/// All of them; `requests.<API>` for each API of the table.
pub fn statistics(network: &Network) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    gauges(network, &mut all);
    sums(network, &mut all);
    internal(network, &mut all);
    queues(network, &mut all);
    let counters = &network.statistics;
    // Requests of our own tools are not counted.
    let apis = TABLE.iter().filter(|row| !row.is_private);
    all.extend(apis.map(|row| (format!("requests.{}", row.name), counters.requests(row.key))));
    all
}

/// Histograms: `request.<group>.<phase>`, and `write.<log directory>` and `read.<log directory>`. Each
/// with the counts of its buckets, whose bounds are [`pyrklog_control::latency::BOUNDS_NS`], and the
/// sum in nanoseconds.
pub fn times(network: &Network) -> Vec<(String, Vec<u64>)> {
    let mut all = Vec::new();
    let counters = &network.statistics;
    for (group, name) in Group::ALL {
        for (phase, of) in Phase::ALL {
            all.push((
                format!("request.{name}.{of}"),
                values(counters.times(group, phase)),
            ));
        }
    }
    for dir in &network.dirs {
        let (write, read) = (&dir.write_times, network.readers.read_times(dir.index));
        for (name, times) in [("write", write), ("read", read)] {
            all.push((
                format!("{name}.{}", dir.index),
                values(Reading::of([times])),
            ));
        }
    }
    all
}

fn values(reading: Reading) -> Vec<u64> {
    let mut values = reading.buckets.to_vec();
    values.push(reading.sum_ns);
    values
}

fn gauges(network: &Network, all: &mut Vec<(String, u64)>) {
    let control = network.channel.depth();
    let (mut produce_waiters, mut fetch_waiters, mut partitions) = (0, 0, 0);
    let mut internal_waiters = 0;
    for partition in network.registry.load().partitions() {
        let state = partition.lock();
        let (produces, fetches) = state.waiting();
        internal_waiters += state.internal.count();
        drop(state);
        produce_waiters += produces;
        fetch_waiters += fetches;
        partitions += 1;
    }
    let sessions = network.sessions.statistics();
    let dirs = &network.dirs;
    let unwritten_bytes = dirs.iter().map(|dir| dir.unwritten_bytes()).sum();
    let muted_for_room = dirs.iter().map(|dir| dir.muted.depth(0).waiting).sum();
    let parked_bytes = network.channel.waiting_memory().used_bytes();
    let gauges = [
        ("connections", network.limits.total()),
        ("partitions", partitions),
        ("unwritten_bytes", unwritten_bytes),
        ("connections_muted_for_room", muted_for_room),
        ("purgatory_produce", produce_waiters),
        ("purgatory_fetch", fetch_waiters),
        ("purgatory_internal", internal_waiters),
        ("control_queue_depth", control.in_flight),
        ("control_queue_placeless", control.placeless),
        ("control_queue_parked", control.parked),
        ("control_queue_waiting", control.waiting),
        ("control_queue_parked_bytes", parked_bytes),
        ("event_queue_depth", network.events.waiting()),
        ("reader_queue_depth", network.readers.waiting()),
        ("validation_waiting", network.validators.waiting()),
        ("validation_running", network.validators.running()),
        ("transaction_verifications", network.verifications.count()),
        ("reader_threads", network.readers.threads()),
        ("command_queue_depth", network.loader.depth()),
        ("receive_memory_bytes", network.budget.used_bytes()),
        ("reply_memory_bytes", network.replies.used_bytes()),
        ("replies_refused", network.replies.refused()),
        ("fetch_sessions", sessions.sessions),
        ("fetch_session_partitions", sessions.partitions),
    ];
    all.extend(gauges.map(|(name, value)| (name.to_owned(), value as u64)));
    all.push(("fetch_session_evictions".to_owned(), sessions.evictions));
    for (side, quota) in [
        ("leader", &network.quotas.leader),
        ("follower", &network.quotas.follower),
    ] {
        let name = format!("throttled_replication_bytes.{side}");
        all.push((name, quota.counted_bytes()));
    }
    cache(network, all);
}

type OfArena = fn(&ArenaStatistics) -> u64;
type OfThread = fn(&ThreadStatistics) -> &Counter;

const OF_ARENA: [(&str, OfArena); 10] = [
    ("cache_populated_bytes", |of| of.populated_bytes),
    ("cache_free_bytes", |of| of.free_bytes),
    ("cache_limit_bytes", |of| of.limit_bytes),
    ("cache_appended_bytes", |of| of.appended_bytes),
    ("cache_appends_refused", |of| of.refused),
    ("cache_chunks_reclaimed", |of| of.reclaimed),
    ("cache_transient_bytes", |of| of.transient_bytes),
    ("cache_held_bytes", |of| of.held_bytes),
    ("cache_chunks_given_back", |of| of.given_back),
    ("cache_chunks_populated_by_appends", |of| {
        of.populated_by_appends
    }),
];

fn cache(network: &Network, all: &mut Vec<(String, u64)>) {
    let dirs = network.dirs.iter();
    let arenas: Vec<ArenaStatistics> = dirs
        .filter_map(|dir| Some(dir.env().arena()?.statistics()))
        .collect();
    all.extend(OF_ARENA.map(|(name, value)| (name.to_owned(), arenas.iter().map(value).sum())));
}

/// Appends to and reads of internal topics by the control plane.
fn internal(network: &Network, all: &mut Vec<(String, u64)>) {
    let counters = &network.statistics.internal;
    let internal = [
        ("internal_appends", &counters.appends),
        ("internal_appended_bytes", &counters.appended_bytes),
        ("internal_appends_refused", &counters.refused),
        ("internal_reads", &counters.reads),
        ("internal_read_bytes", &counters.read_bytes),
        ("internal_damaged_batches", &counters.damaged_batches),
    ];
    all.extend(internal.map(|(name, value)| (name.to_owned(), value.load(Ordering::Relaxed))));
}

/// Each queue that may back up: `<what>.<log directory>.<queue>`, and `<what>.<log directory>` for
/// producers that wait for their log directory. A directory goes by its position in `log.dirs` (of
/// those that could be opened).
fn queues(network: &Network, all: &mut Vec<(String, u64)>) {
    for (dir, kind, depth) in network.readers.depths() {
        let values = [
            ("reader_queue_waiting", depth.waiting as u64),
            ("reader_queue_running", depth.running as u64),
            ("reader_queue_oldest_wait_ms", depth.oldest_wait_ms as u64),
            ("reader_queue_stalled_ms", depth.stalled_ms as u64),
            ("reader_queue_rejected", depth.rejected),
        ];
        all.extend(values.map(|(name, value)| (format!("{name}.{dir}.{kind}"), value)));
    }
    let now_ms = mono_ms();
    for dir in &network.dirs {
        let depth = dir.muted.depth(now_ms);
        // Without descriptors or memory it takes no records either; that is no full disk.
        let is_full = dir.is_read_only() && dir.lacks_space();
        let values = [
            ("produce_muted_waiting", depth.waiting as u64),
            ("produce_muted_bytes", depth.bytes as u64),
            ("produce_muted_oldest_wait_ms", depth.oldest_wait_ms as u64),
            ("produce_muted_rejected", depth.rejected),
            ("produce_muted_timed_out", depth.timed_out),
            ("writer_queue_waiting", dir.writer.depth() as u64),
            ("unwritten_bytes", dir.unwritten_bytes() as u64),
            ("read_window_bytes", dir.env().window_bytes() as u64),
            ("read_kept_bytes", dir.env().kept_bytes()),
            ("log_dir_read_only", u64::from(is_full)),
        ];
        all.extend(values.map(|(name, value)| (format!("{name}.{}", dir.index), value)));
    }
}

/// Counters of the network threads, which are summed, by name.
const OF_THREAD: [(&str, OfThread); 15] = [
    ("received_bytes", |of| &of.received_bytes),
    ("sent_bytes", |of| &of.sent_bytes),
    ("produced_bytes", |of| &of.produced_bytes),
    ("fetched_bytes.cached", |of| &of.fetched_bytes_cached),
    ("fetched_bytes.copy", |of| &of.fetched_bytes_copy),
    ("fetched_bytes.sendfile", |of| &of.fetched_bytes_sendfile),
    ("fetched_bytes.window", |of| &of.fetched_bytes_window),
    ("fetched_bytes.inline", |of| &of.fetched_bytes_inline),
    ("heavy_requests", |of| &of.heavy_requests),
    ("fetch_looks", |of| &of.fetch_looks),
    ("connections_moved", |of| &of.connections_moved),
    ("network_threads_worked_ns", |of| &of.worked_ns),
    ("connections_muted", |of| &of.muted),
    ("protocol_errors", |of| &of.protocol_errors),
    ("idle_closed", |of| &of.idle_closed),
];

fn sums(network: &Network, all: &mut Vec<(String, u64)>) {
    let counters = &network.statistics;
    all.extend(OF_THREAD.map(|(name, counter)| (name.to_owned(), counters.sum(counter))));
    let (failed, at_limit) = (&counters.accepts_failed, &counters.connections_at_limit);
    let others = [
        ("accepts_failed", failed.load(Ordering::Relaxed)),
        ("connections_at_limit", at_limit.load(Ordering::Relaxed)),
        ("reader_jobs", network.readers.jobs_done()),
    ];
    all.extend(others.map(|(name, value)| (name.to_owned(), value)));
}
