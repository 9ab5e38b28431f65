//! The transaction indexes of a folder: reads them, and adds entries that a kill prevented.

use std::collections::BTreeSet;

use crate::disk;
use crate::names::FileKind;
use crate::open::load::LoadedState;
use crate::open::producers::Aborted;
use crate::open::{Loader, OpenError};
use crate::transaction_index::TransactionIndex;

impl Loader<'_> {
    /// Reads all transaction indexes. Unreadable ones are noted, to be rebuilt from the batches.
    pub(super) fn load_transaction_indexes(
        &self,
        bases: &BTreeSet<i64>,
        loading: &mut LoadedState,
    ) -> Result<(), OpenError> {
        for &base_offset in bases {
            let path = self
                .folder
                .segment_file(base_offset, FileKind::TransactionIndex);
            let content = disk::read_file(self.env.disk(), &path, i32::MAX as u64)?;
            match TransactionIndex::load(base_offset, &content) {
                Ok(index) if index.is_empty() => {}
                Ok(index) => {
                    loading.aborted.insert(base_offset, index);
                }
                Err(error) => {
                    loading
                        .report
                        .notes
                        .push(format!("rebuilding {}: {error}", path.display()));
                    loading.aborted_unread.insert(base_offset);
                }
            }
        }
        Ok(())
    }

    /// Adds aborted transactions that their segment's index lacks; writes changed indexes and those
    /// that could not be read.
    pub(super) fn enter_aborted(
        &self,
        loading: &mut LoadedState,
        aborted: Aborted,
    ) -> Result<(), OpenError> {
        let mut changed: BTreeSet<i64> = std::mem::take(&mut loading.aborted_unread);
        for (base_offset, txn) in aborted {
            let index = loading
                .aborted
                .entry(base_offset)
                .or_insert_with(|| TransactionIndex::new(base_offset));
            // An entry that does not rise above the last one is in the index already.
            if index.append(txn).is_ok() {
                changed.insert(base_offset);
            }
        }
        for base_offset in changed {
            let path = self
                .folder
                .segment_file(base_offset, FileKind::TransactionIndex);
            match loading.aborted.get(&base_offset) {
                Some(index) => {
                    disk::replace_file_unsynced(self.env.disk(), &path, &index.to_bytes())?;
                }
                None => disk::missing_is_fine(self.env.disk().remove_file(&path))?,
            }
        }
        Ok(())
    }
}
