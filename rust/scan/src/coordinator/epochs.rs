//! Whether a leader's log has what was read, and whether metadata is older than that.
//!
//! A leader epoch that is newer than the one in which a position was last valid means that another
//! replica leads, which may have lost records: the leader is asked where the epoch of the last
//! record read ends (KIP-320).
//!
//! One that is older comes from a broker that is cut off, perhaps the old leader itself, which has
//! records that the cluster has lost. It is not used, and another broker is asked.

use std::time::{Duration, Instant};

use pyrklog_client::{ClientError, EpochEnd, EpochQuery, Metadata};
use pyrklog_wire::ErrorCode;

use super::{Coordinator, Waiting};
use crate::doubts::Doubts;
use crate::error::{ErrorKind, Result, ScanError};
use crate::openers;
use crate::split::Cursor;

/// How long all brokers may name an older leader epoch before it counts: one that has just become
/// leader may not have its own metadata yet. A stream's look for truncations takes longer
/// (`python/pyrklog/spark/cluster.py`).
const OLDER_FOR: Duration = Duration::from_secs(3);

impl Coordinator {
    /// Asks new leaders whether the splits' positions are in their logs. Returns those whose
    /// positions are.
    pub(super) fn check_epochs(&mut self, all: Vec<Waiting>) -> Result<Vec<Waiting>> {
        let (mut asked, mut passed) = (Vec::new(), Vec::new());
        for mut one in all {
            let epoch = leader_epoch(self.client.metadata(), &one.cursor);
            if (0..one.cursor.leader_epoch).contains(&epoch) {
                self.wait_for_newer(one, epoch)?;
            } else if one.cursor.last_epoch >= 0 && epoch > one.cursor.leader_epoch {
                asked.push((one, epoch));
            } else {
                one.valid_in(epoch);
                passed.push(one);
            }
        }
        if asked.is_empty() {
            return Ok(passed);
        }
        let queries: Vec<EpochQuery> = asked.iter().map(query).collect();
        let places = queries.iter().map(|one| (&*one.topic, one.partition));
        openers::connect(&mut self.client, places)?;
        let answers = match self.client.epoch_ends(&queries) {
            Ok(answers) => answers.into_iter().map(Some).collect(),
            // Before Kafka 2.3 nobody can tell.
            Err(ClientError::Unsupported { .. }) => vec![None; asked.len()],
            Err(error) => return Err(error.into()),
        };
        for ((mut one, epoch), answer) in asked.into_iter().zip(answers) {
            let is_older = (0..one.cursor.last_epoch).contains(&epoch);
            let checked = match answer {
                None => Ok(is_older),
                Some(answer) if answer.error == ErrorCode::NONE => check_end(&one.cursor, answer),
                Some(answer) => {
                    let reason = format!("no answer about leader epochs: {}", answer.error);
                    self.is_stale = true;
                    self.wait_again(one, &reason)?;
                    continue;
                }
            };
            match checked {
                Ok(true) | Err(_) if is_older => self.wait_for_newer(one, epoch)?,
                Ok(is_doubted) => {
                    one.cursor.is_doubted = is_doubted;
                    one.valid_in(epoch);
                    passed.push(one);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(passed)
    }

    /// The split waits for metadata of another broker.
    fn wait_for_newer(&mut self, mut one: Waiting, epoch: i32) -> Result<()> {
        let now = Instant::now();
        let mut older = one.older.take().unwrap_or_else(|| Doubts::new(now));
        older.note(&mut self.client);
        self.is_stale = true;
        let known = one.cursor.leader_epoch.max(one.cursor.last_epoch);
        if older.are_of_all(self.client.metadata(), now, OLDER_FOR) {
            let (name, position) = (one.cursor.name(), one.cursor.position);
            let text = format!(
                "partition {name} was truncated or created anew: it was to be read on at offset \
                 {position} in leader epoch {known} or a later one, and all brokers name {epoch}"
            );
            return Err(ScanError::new(ErrorKind::LogTruncated, text));
        }
        let wait = older.next_wait(self.client.metadata(), &mut one.cursor.backoff);
        one.older = Some(older);
        let reason =
            format!("the metadata is out of date: it has leader epoch {epoch}, {known} is known");
        self.wait_for(wait, one, &reason)
    }
}

impl Waiting {
    /// The position is in the log of the leader of this epoch.
    fn valid_in(&mut self, leader_epoch: i32) {
        self.cursor.leader_epoch = leader_epoch;
        self.older = None;
    }
}

fn query((one, epoch): &(Waiting, i32)) -> EpochQuery {
    EpochQuery {
        topic: one.cursor.topic.clone(),
        partition: one.cursor.partition,
        current_leader_epoch: *epoch,
        leader_epoch: one.cursor.last_epoch,
    }
}

fn leader_epoch(metadata: &Metadata, cursor: &Cursor) -> i32 {
    let topic = metadata.topics.get(&cursor.topic);
    let partition = topic.and_then(|topic| topic.partition(cursor.partition));
    partition.map_or(-1, |partition| partition.leader_epoch)
}

/// Whether the record read last may be another one in the leader's log, which has the position. It
/// is if the log does not have that record's epoch but older ones up to there, unless compaction
/// took all of that epoch before the leader got its log: what lies there tells. A listed epoch may
/// never have had a record.
///
/// # Errors
/// The position is not within what the leader's log has of that epoch.
fn check_end(cursor: &Cursor, answer: EpochEnd) -> Result<bool> {
    let (name, position, epoch) = (cursor.name(), cursor.position, cursor.last_epoch);
    if answer.end_offset >= 0 && answer.end_offset >= position && answer.leader_epoch >= 0 {
        return Ok(answer.leader_epoch < epoch && position > 0 && !cursor.is_listed);
    }
    let where_to = match answer.end_offset {
        end if end < 0 => "the leader does not know that epoch".to_owned(),
        end => format!("the leader's log has it up to offset {end} only"),
    };
    let text = format!(
        "partition {name} was truncated: it was read up to offset {position} in leader epoch \
         {epoch}, and {where_to}"
    );
    Err(ScanError::new(ErrorKind::LogTruncated, text))
}
