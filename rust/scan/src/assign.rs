//! Which lane reads a split, and which worker polls a lane.

use std::collections::HashMap;

use crate::lane::LaneId;

#[derive(Clone, Copy, Debug)]
struct LaneState {
    number: u64,
    worker: usize,
    splits: usize,
}

/// A broker, and which of several lanes to it.
type Place = (i32, usize);

/// The lanes that are open or are being opened.
#[derive(Debug)]
pub(crate) struct Lanes {
    open: HashMap<Place, LaneState>,
    /// Lanes that were opened.
    count: u64,
    /// Lanes of each worker.
    of_workers: Vec<usize>,
    /// Lanes to one broker at most.
    shards: usize,
    lanes_max: usize,
}

/// Where a split is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// On an open lane.
    Open(LaneId),
    /// On a lane to be opened.
    New(LaneId),
    /// Nowhere: all lanes that there may be are busy with other brokers.
    Later,
}

impl Lanes {
    /// For splits led by `brokers` brokers at first: with fewer brokers than workers each gets
    /// several lanes, so that all workers have something to do.
    pub fn new(workers: usize, brokers: usize, lanes_max: usize) -> Lanes {
        Lanes {
            open: HashMap::new(),
            count: 0,
            of_workers: vec![0; workers],
            shards: (workers / brokers.max(1)).max(1),
            lanes_max,
        }
    }

    /// The lane to `broker` with the fewest splits.
    pub fn choose(&mut self, broker: i32) -> Choice {
        let places = (0..self.shards).map(|shard| (broker, shard));
        let splits = |place: &Place| self.open.get(place).map_or(0, |lane| lane.splits);
        let Some(best) = places.min_by_key(splits) else {
            return Choice::Later;
        };
        if let Some(lane) = self.open.get(&best) {
            return Choice::Open(id(best, lane.number));
        }
        if self.open.len() < self.lanes_max {
            return Choice::New(id(best, self.count));
        }
        let mut own = (0..self.shards).map(|shard| (broker, shard));
        let open = own.find_map(|place| self.open.get(&place).map(|lane| id(place, lane.number)));
        open.map_or(Choice::Later, Choice::Open)
    }

    /// A lane without a split, which may be closed for another broker's, and its worker.
    pub fn idle(&self) -> Option<(LaneId, usize)> {
        let mut idle = self.open.iter().filter(|(_, lane)| lane.splits == 0);
        idle.next()
            .map(|(place, lane)| (id(*place, lane.number), lane.worker))
    }

    /// A lane is open; returns its worker, the one with the fewest lanes.
    pub fn opened(&mut self, id: LaneId) -> usize {
        let workers = 0..self.of_workers.len();
        let worker = workers.min_by_key(|one| self.of_workers[*one]).unwrap_or(0);
        self.of_workers[worker] += 1;
        self.count = self.count.max(id.number) + 1;
        let state = LaneState {
            number: id.number,
            worker,
            splits: 0,
        };
        self.open.insert((id.broker, id.shard), state);
        worker
    }

    /// The worker of a lane.
    pub fn worker(&self, id: LaneId) -> Option<usize> {
        let lane = self.open.get(&(id.broker, id.shard))?;
        (lane.number == id.number).then_some(lane.worker)
    }

    /// A split goes to a lane; returns its worker.
    pub fn assigned(&mut self, id: LaneId) -> Option<usize> {
        let lane = self.lane(id)?;
        lane.splits += 1;
        Some(lane.worker)
    }

    /// A split left a lane.
    pub fn left(&mut self, id: LaneId) {
        if let Some(lane) = self.lane(id) {
            lane.splits = lane.splits.saturating_sub(1);
        }
    }

    /// A lane is gone. News of one that was closed before count for no other in its place.
    pub fn lost(&mut self, id: LaneId) {
        if let Some(worker) = self.worker(id) {
            self.of_workers[worker] -= 1;
            self.open.remove(&(id.broker, id.shard));
        }
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut LaneState> {
        let lane = self.open.get_mut(&(id.broker, id.shard))?;
        (lane.number == id.number).then_some(lane)
    }
}

fn id((broker, shard): Place, number: u64) -> LaneId {
    LaneId {
        broker,
        shard,
        number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(lanes: &mut Lanes, broker: i32) -> LaneId {
        let id = match lanes.choose(broker) {
            Choice::New(id) => {
                lanes.opened(id);
                id
            }
            Choice::Open(id) => id,
            Choice::Later => panic!("no lane"),
        };
        lanes.assigned(id).unwrap();
        id
    }

    #[test]
    fn one_broker_gets_a_lane_a_worker() {
        let mut lanes = Lanes::new(2, 1, 8);
        let ids: Vec<_> = (0..4).map(|_| open(&mut lanes, 1).shard).collect();
        assert_eq!(ids, [0, 1, 0, 1]);
        assert_eq!(lanes.of_workers, [1, 1]);
    }

    #[test]
    fn many_brokers_share_the_workers() {
        let mut lanes = Lanes::new(2, 6, 8);
        for broker in 0..6 {
            open(&mut lanes, broker);
        }
        assert_eq!(lanes.of_workers, [3, 3]);
    }

    #[test]
    fn splits_of_a_further_broker_wait_for_a_lane() {
        let mut lanes = Lanes::new(1, 2, 2);
        let first = open(&mut lanes, 1);
        open(&mut lanes, 2);
        assert_eq!(lanes.choose(3), Choice::Later);
        assert_eq!(lanes.choose(1), Choice::Open(first));
        assert_eq!(lanes.idle(), None);
        lanes.left(first);
        assert_eq!(lanes.idle(), Some((first, 0)));
        lanes.lost(first);
        assert!(matches!(lanes.choose(3), Choice::New(_)));
    }

    /// Else the lane in its place would be closed for another broker's, though it has splits.
    #[test]
    fn late_news_of_a_lane_that_was_closed_take_no_other_from_the_list() {
        let mut lanes = Lanes::new(1, 1, 1);
        let old = open(&mut lanes, 1);
        lanes.left(old);
        lanes.lost(old);
        let new = open(&mut lanes, 1);
        assert_ne!(old, new);
        lanes.left(old);
        lanes.lost(old);
        assert_eq!((lanes.worker(old), lanes.worker(new)), (None, Some(0)));
        assert_eq!((lanes.idle(), lanes.choose(2)), (None, Choice::Later));
        assert_eq!(lanes.of_workers, [1]);
    }
}
