//! Which folder is a partition's log, when several directories hold one.
//!
//! Pure: decides from the listings of all readable directories (`moving-replicas.md`, section 4).

use std::collections::BTreeMap;
use std::path::Path;

use crate::log_dir::{FutureFolder, Leaving, PartitionFolder};
use crate::open::TopicId;

/// What one log directory holds.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Its path, as in `log.dirs`.
    pub path: String,
    /// The partitions' logs.
    pub folders: Vec<PartitionFolder>,
    /// Copies that move here.
    pub futures: Vec<FutureFolder>,
    /// Logs that were giving way to copies elsewhere.
    pub leaving: Vec<Leaving>,
    /// Those of them that took records since: none of this broker.
    pub grown: Vec<Leaving>,
}

/// What becomes of the folders. Directories are given by their position in the listings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Logs to remove: the partition's is elsewhere.
    pub replaced: Vec<(usize, PartitionFolder)>,
    /// Copies to remove.
    pub worthless: Vec<(usize, FutureFolder)>,
    /// Logs that did not give way after all, or have: their lines are to be removed, after the
    /// folders.
    pub settled: Vec<(usize, Leaving)>,
    /// Logs that may be older than copies in directories that cannot be read: not to be served.
    pub withheld: Vec<(usize, Leaving)>,
    /// Copies without a log, each in a directory: kept.
    pub lonely: Vec<(usize, FutureFolder)>,
}

/// Two directories hold the log of one partition, and nothing says which is the newer one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{topic}-{partition} is in {first} and in {second}; find out which of them is the newer one, \
     and move the other one away"
)]
#[allow(missing_docs)] // The message names the fields.
pub struct Conflict {
    pub topic: String,
    pub partition: i32,
    pub first: String,
    pub second: String,
}

type Name<'a> = (&'a str, i32);

#[derive(Default)]
struct Found<'a> {
    logs: Vec<(usize, &'a PartitionFolder)>,
    futures: Vec<(usize, &'a FutureFolder)>,
    leaving: Vec<(usize, &'a Leaving)>,
}

/// Decides what the folders are. `is_all`: no log directory is missing from the listings.
///
/// # Errors
/// [`Conflict`], as in Kafka; nothing should be changed then.
pub fn decide(listings: &[Listing], is_all: bool) -> Result<Places, Conflict> {
    let mut by_name: BTreeMap<Name<'_>, Found<'_>> = BTreeMap::new();
    for (dir, listing) in listings.iter().enumerate() {
        for log in &listing.folders {
            let found = by_name.entry((&log.topic, log.partition)).or_default();
            found.logs.push((dir, log));
        }
        for future in &listing.futures {
            let name: Name<'_> = (&future.topic, future.partition);
            by_name.entry(name).or_default().futures.push((dir, future));
        }
        for leaving in &listing.leaving {
            let name: Name<'_> = (&leaving.topic, leaving.partition);
            by_name
                .entry(name)
                .or_default()
                .leaving
                .push((dir, leaving));
        }
    }
    let mut places = Places::default();
    for found in by_name.values() {
        let logs = settle_logs(&mut places, listings, is_all, found)?;
        settle_futures(&mut places, &logs, found);
    }
    Ok(places)
}

/// Returns the partition's log; several if topics of one name left some.
fn settle_logs<'a>(
    places: &mut Places,
    listings: &[Listing],
    is_all: bool,
    found: &Found<'a>,
) -> Result<Vec<(usize, &'a PartitionFolder)>, Conflict> {
    let leaving_in = |dir: usize| found.leaving.iter().find(|(other, _)| *other == dir);
    let yields = |dir: usize| {
        let line = leaving_in(dir);
        line.is_some_and(|(_, leaving)| !listings[dir].grown.contains(leaving))
    };
    let (yielding, stays): (Vec<_>, Vec<_>) = found
        .logs
        .iter()
        .copied()
        .partition(|(dir, _)| yields(*dir));
    let is_replaced = |log: &PartitionFolder| {
        // One that took records against its line replaces none.
        let mut others = stays.iter().filter(|(dir, _)| leaving_in(*dir).is_none());
        others.any(|(_, other)| may_be_of_one_topic(log.topic_id, other.topic_id))
    };
    let (replaced, unreplaced): (Vec<_>, Vec<_>) =
        yielding.into_iter().partition(|(_, log)| is_replaced(log));
    let mut chosen: Vec<_> = stays.iter().copied().chain(unreplaced).collect();
    chosen.sort_by_key(|(dir, _)| *dir);
    for (at, (first, log)) in chosen.iter().enumerate() {
        let is_same = |(_, other): &&(usize, &PartitionFolder)| {
            may_be_of_one_topic(log.topic_id, other.topic_id)
        };
        if let Some((second, _)) = chosen[at + 1..].iter().find(is_same) {
            return Err(Conflict {
                topic: log.topic.clone(),
                partition: log.partition,
                first: listings[*first].path.clone(),
                second: listings[*second].path.clone(),
            });
        }
    }
    let replaced = replaced.into_iter().map(|(dir, log)| (dir, log.clone()));
    places.replaced.extend(replaced);
    for (dir, leaving) in &found.leaving {
        let is_chosen = chosen.iter().any(|(chosen, _)| chosen == dir);
        // While the copy has not its name yet, the log did not give way.
        let mut futures = found.futures.iter();
        let has_copy = futures.any(|(_, future)| future.name == leaving.copy);
        let entry = (*dir, (*leaving).clone());
        let destination = Path::new(&leaving.destination);
        let mut paths = listings.iter().map(|listing| Path::new(&listing.path));
        let is_all = is_all && paths.any(|path| path == destination);
        if is_chosen && !is_all && !has_copy {
            places.withheld.push(entry);
        } else {
            places.settled.push(entry);
        }
    }
    Ok(chosen)
}

/// False if the ids are known and differ: a topic was deleted, and another one got its name, while a
/// directory was away.
fn may_be_of_one_topic(one: Option<TopicId>, other: Option<TopicId>) -> bool {
    let known = |id: Option<TopicId>| id.filter(|id| *id != [0; 16]);
    let ids = known(one).zip(known(other));
    ids.is_none_or(|(one, other)| one == other)
}

fn settle_futures(places: &mut Places, logs: &[(usize, &PartitionFolder)], found: &Found<'_>) {
    let is_one = found.futures.len() == 1;
    for (dir, future) in &found.futures {
        let entry = (*dir, (*future).clone());
        let mut of_it = logs.iter();
        let is_of_one = of_it.any(|(_, log)| may_be_of_one_topic(log.topic_id, future.topic_id));
        let is_beside_one = logs.iter().any(|(own, _)| own == dir);
        if logs.is_empty() {
            places.lonely.push(entry);
        } else if is_beside_one || !is_of_one || !is_one {
            // Of several copies it is unknown which one was asked for last.
            places.worthless.push(entry);
        }
    }
}

#[cfg(test)]
mod tests;
