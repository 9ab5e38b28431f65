//! Histograms of times. All have the same bounds: those of several threads and brokers are added.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets; one more has what is longer.
pub const BOUNDS_NS: [u64; 18] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
];

const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// How many times were in each bucket, and their sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

fn bucket_of(time_ns: u64) -> usize {
    // Most are that short.
    if time_ns <= BOUNDS_NS[0] {
        return 0;
    }
    BOUNDS_NS.partition_point(|bound_ns| *bound_ns < time_ns)
}

impl Histogram {
    /// Counts a time; any thread.
    pub fn record(&self, time_ns: u64) {
        self.buckets[bucket_of(time_ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// Adds what it has to a reading.
    pub fn add_to(&self, reading: &mut Reading) {
        for (sum, bucket) in reading.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
        }
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        reading.sum_ns = reading.sum_ns.wrapping_add(sum_ns);
    }
}

/// What one or more histograms had when they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Times in each bucket; not cumulative.
    pub buckets: [u64; BUCKETS],
    /// Their sum.
    pub sum_ns: u64,
}

impl Reading {
    /// Of several histograms together.
    pub fn of<'h>(histograms: impl IntoIterator<Item = &'h Histogram>) -> Reading {
        let mut reading = Reading::default();
        for one in histograms {
            one.add_to(&mut reading);
        }
        reading
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Requests that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Produce.
    Produce,
    /// Fetch of consumers.
    FetchConsumer,
    /// Fetch of followers.
    FetchFollower,
    /// What the control plane answers.
    Control,
    /// JoinGroup and SyncGroup, which wait for other members.
    JoinGroup,
    /// What else network threads answer: Metadata, ListOffsets and the like.
    Other,
}

impl Group {
    /// Whether they wait for records.
    pub fn is_fetch(self) -> bool {
        matches!(self, Group::FetchConsumer | Group::FetchFollower)
    }

    /// All.
    pub const ALL: [(Group, &'static str); 6] = [
        (Group::Produce, "Produce"),
        (Group::FetchConsumer, "FetchConsumer"),
        (Group::FetchFollower, "FetchFollower"),
        (Group::Control, "Control"),
        (Group::JoinGroup, "JoinGroup"),
        (Group::Other, "Other"),
    ];
}

/// A part of a request's time, or several together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// From its arrival until its reply was sent.
    Total,
    /// The same; of a fetch without [`Phase::Remote`]. Recorded for fetches only.
    Served,
    /// Until its turn.
    Queue,
    /// Work of the broker.
    Local,
    /// At the readers, or waiting for them.
    Read,
    /// Waiting for other brokers, other clients or new records.
    Remote,
    /// From the reply's being ready until the socket has taken it.
    Send,
}

impl Phase {
    /// All.
    pub const ALL: [(Phase, &'static str); 7] = [
        (Phase::Total, "total"),
        (Phase::Served, "served"),
        (Phase::Queue, "queue"),
        (Phase::Local, "local"),
        (Phase::Read, "read"),
        (Phase::Remote, "remote"),
        (Phase::Send, "send"),
    ];
}

/// A counter for each phase, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Row([AtomicU64; Phase::ALL.len()]);

impl Row {
    /// Only the owning thread: no atomic read-modify-write.
    fn add(&self, phase: Phase, more: u64) {
        let counter = &self.0[phase as usize];
        let before = counter.load(Ordering::Relaxed);
        counter.store(before.wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self, phase: Phase) -> u64 {
        self.0[phase as usize].load(Ordering::Relaxed)
    }
}

/// The histograms of all phases side by side: most phases are short, and a request then counts all
/// of them in two cache lines.
#[derive(Debug, Default)]
struct GroupTimes {
    buckets: [Row; BUCKETS],
    sums: Row,
}

/// The requests of one network thread.
#[derive(Debug, Default)]
pub struct RequestTimes([GroupTimes; Group::ALL.len()]);

impl RequestTimes {
    /// Counts a time; only the owning thread.
    pub fn record(&self, group: Group, phase: Phase, time_ns: u64) {
        let times = &self.0[group as usize];
        times.buckets[bucket_of(time_ns)].add(phase, 1);
        times.sums.add(phase, time_ns);
    }

    /// Adds what it has of a phase to a reading.
    pub fn add_to(&self, group: Group, phase: Phase, reading: &mut Reading) {
        let times = &self.0[group as usize];
        for (sum, bucket) in reading.buckets.iter_mut().zip(&times.buckets) {
            *sum = sum.wrapping_add(bucket.get(phase));
        }
        reading.sum_ns = reading.sum_ns.wrapping_add(times.sums.get(phase));
    }

    /// What it has of a phase.
    pub fn reading(&self, group: Group, phase: Phase) -> Reading {
        let mut reading = Reading::default();
        self.add_to(group, phase, &mut reading);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_a_bound_is_below_it() {
        let histogram = Histogram::default();
        for time_ns in [
            0,
            50_000,
            50_001,
            20_000_000_000,
            20_000_000_001,
            u64::MAX / 2,
        ] {
            histogram.record(time_ns);
        }
        let reading = Reading::of([&histogram]);
        let filled: Vec<(usize, u64)> = (reading.buckets.into_iter().enumerate())
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(filled, [(0, 2), (1, 1), (17, 1), (18, 2)]);
        assert_eq!(reading.count(), 6);
    }

    #[test]
    fn bounds_grow() {
        assert!(BOUNDS_NS.is_sorted_by(|bound, next| bound < next));
    }

    #[test]
    fn histograms_of_threads_are_added() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.record(60_000);
        one.record(3_000_000);
        other.record(60_001);
        let both = Reading::of([&one, &other]);
        assert_eq!((both.count(), both.buckets[1], both.buckets[6]), (3, 2, 1));
        assert_eq!(both.sum_ns, 3_120_001);
    }

    #[test]
    fn shared_histogram_loses_nothing() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|time_ns| histogram.record(time_ns)));
            }
        });
        let reading = Reading::of([&histogram]);
        assert_eq!((reading.count(), reading.sum_ns), (4_000, 4 * 499_500));
    }

    #[test]
    fn each_group_and_phase_has_its_own_histogram() {
        let times = RequestTimes::default();
        for (number, (group, _)) in Group::ALL.into_iter().enumerate() {
            assert_eq!(group as usize, number);
            for (position, (phase, _)) in Phase::ALL.into_iter().enumerate() {
                assert_eq!(phase as usize, position);
                assert_eq!(times.reading(group, phase), Reading::default());
                times.record(group, phase, 60_000);
                times.record(group, phase, 1);
                let reading = times.reading(group, phase);
                assert_eq!((reading.buckets[0], reading.buckets[1]), (1, 1));
                assert_eq!((reading.count(), reading.sum_ns), (2, 60_001));
            }
        }
    }
}
