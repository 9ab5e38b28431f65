//! A segment that is being received: checks each batch, writes `.log.fill`, and in the end the
//! indexes.

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;

use super::{FillError, FillPlan, JoinJob};
use crate::cleaner::copy::{Copied, Copier, remove};
use crate::digest::BatchDigest;
use crate::disk::OpenMode;
use crate::leader_epochs::LeaderEpochs;
use crate::log::Log;
use crate::names::{FileKind, Suffix};
use crate::scan::{BatchFacts, BatchScanner, ScanError, WALK_CHUNK_BYTES};
use crate::segment::SegmentBytes;
use crate::transaction_index::AbortedTxn;
use crate::validate::validate_replica;
use crate::wait::Wait;
use pyrklog_wire::batch::{self, BatchHeader, HEADER_LEN};

/// A segment that is being received.
#[derive(Debug)]
pub struct Fill {
    plan: FillPlan,
    /// From the first batch on.
    copier: Option<Copier>,
    base_offset: i64,
    next: i64,
    digest: BatchDigest,
    /// Where transactions begin in it, by producer.
    open: HashMap<i64, i64>,
    /// Its abort markers by offset: the producer, and the first record of the transaction if that
    /// is in it, too.
    aborts: HashMap<i64, (i64, Option<i64>)>,
    /// Leader epochs of its batches, below those that are known.
    met: LeaderEpochs,
    last_epoch: i32,
}

impl FillPlan {
    /// Begins to receive.
    pub fn open(self) -> Fill {
        Fill {
            copier: None,
            base_offset: self.begin,
            next: self.begin,
            digest: BatchDigest::default(),
            open: HashMap::new(),
            aborts: HashMap::new(),
            met: LeaderEpochs::new(),
            last_epoch: -1,
            plan: self,
        }
    }
}

impl Fill {
    /// Whether the log is the one that it was planned for, in its place: it has not begun anew, nor
    /// moved to another directory.
    pub fn is_of(&self, log: &Log) -> bool {
        self.plan.is_of(log)
    }

    /// Offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.next
    }

    /// Whether all records are there.
    pub fn is_complete(&self) -> bool {
        self.next == self.plan.end
    }

    /// Takes the next batches. The last one may be incomplete, and is left out, as are those behind
    /// the segment's end. Where offsets may be left out, one that begins there ends the segment. The
    /// caller must hold no lock.
    ///
    /// # Errors
    /// [`FillError`]: [`Fill::discard`] it.
    pub fn add(&mut self, records: &[u8]) -> Result<(), FillError> {
        let mut begin = 0;
        while !self.is_complete() && records.len() - begin >= HEADER_LEN {
            let rest = &records[begin..];
            let header = BatchHeader::parse(rest).map_err(|error| self.unfit(&error))?;
            let len = header.total_len();
            if len > rest.len() {
                break;
            }
            if self.plan.has_gaps() && header.base_offset >= self.plan.end {
                self.next = self.plan.end;
                break;
            }
            self.add_batch(&rest[..len])?;
            begin += len;
        }
        Ok(())
    }

    fn add_batch(&mut self, bytes: &[u8]) -> Result<(), FillError> {
        let info = validate_replica(bytes).map_err(|error| self.unfit(&error.message))?;
        let (base_offset, end) = (info.base_offset, info.last_offset() + 1);
        let has_gaps = self.plan.has_gaps();
        // The first one may begin before the source's log start, which lies within it.
        let follows = match self.copier {
            None => (has_gaps || base_offset <= self.next) && end > self.next,
            Some(_) if has_gaps => base_offset >= self.next,
            Some(_) => base_offset == self.next,
        };
        if !follows || end > self.plan.end {
            let range = format!("a batch of {base_offset} to {}", end - 1);
            return Err(self.unfit(&range));
        }
        self.check_epoch(base_offset.max(self.next), info.partition_leader_epoch)?;
        if self.copier.is_some() && self.plan.leaves_out(end) {
            self.next = end;
            return Ok(());
        }
        if self.copier.is_none() {
            // What was left out before the first batch belongs to the segment, too.
            self.base_offset = base_offset.min(self.plan.begin);
            self.copier = Some(self.new_copier()?);
        }
        let facts = BatchFacts {
            size: bytes.len() as u32,
            last_offset: info.last_offset(),
            max_timestamp: info.max_timestamp,
        };
        if let Some(copier) = &mut self.copier {
            copier.add(bytes, facts)?;
        }
        // Its bytes have the stored checksum.
        self.digest.add(&info, info.crc);
        if let Some(marker) = info.marker {
            let first = self.open.remove(&info.producer_id);
            if !marker.commit {
                self.aborts
                    .insert(info.base_offset, (info.producer_id, first));
            }
        } else if info.is_transactional() && !info.is_control() {
            self.open.entry(info.producer_id).or_insert(base_offset);
        }
        self.next = end;
        Ok(())
    }

    fn new_copier(&self) -> io::Result<Copier> {
        let FillPlan {
            env,
            folder,
            config,
            ..
        } = &self.plan;
        Copier::new(env, folder, self.base_offset, Suffix::Fill, config)
    }

    /// The epoch of a batch with a record at this offset.
    fn check_epoch(&mut self, offset: i64, epoch: i32) -> Result<(), FillError> {
        // The first one known may begin within the segment's first batch.
        let known = self.plan.epochs.epoch_for_offset(offset);
        let expected = self.expected_epochs(known);
        if !expected.contains(&epoch) && !self.plan.takes_any_epoch() {
            return Err(self.unfit(&format!("a batch of epoch {epoch}, not of {expected:?}")));
        }
        self.last_epoch = epoch;
        if known.is_none() {
            self.met.assign(epoch, offset);
        }
        Ok(())
    }

    /// Below the epochs that are known those of the batches rise. Who told of them may have met
    /// their first batches compacted away: then they begin earlier than was told.
    fn expected_epochs(&self, known: Option<i32>) -> RangeInclusive<i32> {
        let epochs = &self.plan.epochs;
        match known {
            Some(known) if self.plan.has_gaps() => {
                let at_end = epochs.at_or_behind(self.plan.end).or(epochs.latest());
                known.max(self.last_epoch)..=at_end.map_or(known, |one| one.epoch)
            }
            Some(known) => known..=known,
            None => {
                let next = epochs.earliest();
                self.last_epoch..=next.map_or(i32::MAX, |next| next.epoch)
            }
        }
    }

    fn unfit(&self, what: &dyn std::fmt::Display) -> FillError {
        FillError::unfit(format!("at offset {}: {what}", self.next))
    }

    /// Completes the files, makes them durable, and reads the records back. `aborted`: the source's
    /// transaction index; entries outside of the segment are left out. `modified_ms`: when the
    /// source's file was last changed. The caller must hold no lock.
    ///
    /// # Errors
    /// [`FillError`]; nothing is left of the files, unless the disk fails.
    pub fn finish(
        mut self,
        aborted: &[AbortedTxn],
        modified_ms: i64,
    ) -> Result<JoinJob, FillError> {
        let finished = self.try_finish(aborted, modified_ms);
        if finished.is_err() {
            self.discard()?;
        }
        let new = finished?;
        Ok(JoinJob {
            plan: self.plan,
            new,
            met: self.met,
            first: None,
            holds: None,
            noted: None,
            is_unclear: false,
        })
    }

    fn try_finish(
        &mut self,
        aborted: &[AbortedTxn],
        modified_ms: i64,
    ) -> Result<Copied, FillError> {
        if !self.is_complete() {
            return Err(self.unfit(&format!("the segment goes on to {}", self.plan.end)));
        }
        let mut copier = match self.copier.take() {
            Some(copier) => copier,
            // Nothing is left of it, but where it began.
            None if self.plan.has_gaps() => self.new_copier()?,
            None => return Err(FillError::Stale),
        };
        let within = self.base_offset..self.plan.end;
        for txn in aborted.iter().filter(|t| within.contains(&t.last_offset)) {
            self.check_aborted(txn)?;
            copier.add_aborted(*txn)?;
        }
        if let Some((offset, (id, _))) = self.aborts.iter().find(|(_, one)| one.1.is_some()) {
            let missing = format!("no aborted transaction of producer {id} ends at {offset}");
            return Err(self.unfit(&missing));
        }
        let new = copier.finish(modified_ms)?;
        self.read_back(new.segment.size())?;
        Ok(new)
    }

    /// Consumers would drop other records, or see what was aborted.
    fn check_aborted(&mut self, txn: &AbortedTxn) -> Result<(), FillError> {
        let met = self.aborts.remove(&txn.last_offset);
        let fits = met.is_some_and(|(producer_id, first)| {
            let begins = first.is_none_or(|first| txn.first_offset <= first);
            producer_id == txn.producer_id && begins && txn.first_offset < txn.last_offset
        });
        match fits {
            true => Ok(()),
            false => Err(self.unfit(&format!("an aborted transaction: {txn:?}"))),
        }
    }

    /// Compares the file with what was received.
    fn read_back(&self, size: u64) -> Result<(), FillError> {
        let path = self
            .plan
            .path(self.base_offset, FileKind::Log, Suffix::Fill);
        let file = self.plan.env.disk().open(&path, OpenMode::Read)?;
        let bytes = SegmentBytes::of_file(file);
        let mut scanner = BatchScanner::new(bytes, 0, size, WALK_CHUNK_BYTES, Wait::PastCache);
        let mut digest = BatchDigest::default();
        loop {
            match scanner.next_whole() {
                Ok(Some((met, bytes))) => digest.add(&met.header, batch::compute_crc(bytes)),
                Ok(None) if digest == self.digest => return Ok(()),
                Err(ScanError::Io(error)) => return Err(error.into()),
                Ok(None) | Err(ScanError::NotABatch { .. }) => {
                    let path = path.display();
                    return Err(FillError::unfit(format!("{path} is not what was written")));
                }
            }
        }
    }

    /// Removes the files.
    ///
    /// # Errors
    /// A disk error.
    pub fn discard(&self) -> io::Result<()> {
        remove(
            &self.plan.env,
            &self.plan.folder,
            self.base_offset,
            Suffix::Fill,
        )
    }
}
